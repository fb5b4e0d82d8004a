# SPDX-License-Identifier: Apache-2.0
"""Topics that a send may go to without further questions, found by name."""

cimport cython
from cpython.object cimport PyObject
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from aerobee.native.memory cimport Span
from aerobee.native.state cimport Counts, QueueEnd

cdef enum:
    SIZES = 6
    SHORT = 56  # bytes of a field that stands in the topic itself
    FEW = 8  # queues whose places do


@cython.final
cdef class Topic:
    # What every send looks at, side by side.
    cdef Span label  # its name
    cdef PyObject** ends  # its queues by number, or None
    cdef Py_ssize_t known  # of those
    cdef int64_t write_queues, read_queues
    cdef Span field  # length and name as in a record, once a queue of it was found
    cdef uint32_t magic
    cdef uint32_t key_hash  # of the name and the # that stands before a key
    cdef int64_t run, calls, count, size_bytes
    cdef bint has_large
    cdef Counts meter
    cdef uint8_t _short[SHORT]  # what `field` and `ends` point to, unless it is longer: no other place in memory
    cdef PyObject* _few[FEW]
    cdef str name
    cdef object config
    cdef list _ends
    cdef bytes _name, _field
    cdef int64_t[SIZES] _large

    cdef QueueEnd end(self, Py_ssize_t queue_id)
    cdef int set_end(self, Py_ssize_t queue_id, QueueEnd end, bytes field, uint32_t magic) except -1
    cdef tuple large(self)
    cdef void start(self, int64_t run) noexcept
    cdef void add_large(self, int64_t messages, int64_t size_bytes) noexcept


cdef struct Slot:
    uint64_t hash  # 0 in a free one
    PyObject* topic  # NULL where one was forgotten


@cython.final
cdef class Topics:
    cdef dict _kept  # by name: it owns them
    cdef Slot* _slots
    cdef uint64_t _mask, _seed
    cdef Py_ssize_t _used  # slots that are not free

    cdef uint64_t hash(self, Span name) noexcept
    cdef Slot* first(self, uint64_t hash) noexcept
    cdef PyObject* hinted(self, uint64_t hash) noexcept
    cdef Topic find(self, uint64_t hash, Span name)
    cdef int add(self, Topic topic) except -1
    cdef int forget(self, bytes name) except -1
    cdef int clear(self, Py_ssize_t room) except -1
