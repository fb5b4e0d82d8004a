# SPDX-License-Identifier: Apache-2.0
"""Requests of one kind that come again and again, alike but for a few fields."""

from libc.stdint cimport int64_t, uint8_t

from aerobee.native.headers cimport Fields
from aerobee.native.memory cimport Buffer

cdef enum:
    MOST_KEYED = 16


cdef class Repeats:
    cdef Fields fields
    cdef int64_t _code
    cdef object _judge
    cdef dict _known
    cdef bytes _data  # what texts and body of the request point into
    cdef int _keyed_count
    cdef int _keyed[MOST_KEYED]
    cdef Buffer _key

    cdef bint read(self, const uint8_t* data, Py_ssize_t size, Py_ssize_t most) except -1
    cdef object judged(self)
