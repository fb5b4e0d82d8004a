# SPDX-License-Identifier: Apache-2.0
"""Records of a queue, chosen out of one file of the log."""

from libc.stdint cimport int32_t, int64_t, uint8_t

from aerobee.native.memory cimport Buffer, Span

cdef enum:
    MOST_CODES = 64
    UNIT_SIZE = 20


cdef struct Limits:
    int64_t messages, size_bytes
    int code_count  # -1: every tag
    int32_t codes[MOST_CODES]


cdef struct Log:
    const uint8_t* at  # a file of it, mapped
    int64_t size, base


cdef struct Chosen:
    const uint8_t* at  # a record, in the map
    int64_t size
    int64_t offset  # in its queue


cdef struct Found:
    Buffer chosen  # of Chosen
    int64_t taken  # units that were dealt with
    int64_t size_bytes
    int64_t end  # where in the log the last one ends
    bint is_all  # nothing was met that Python must look at


cdef bint set_codes(Limits* wanted, codes) except -1
cdef int choose(Span units, const Log* log, int64_t queue_id, int64_t offset, const Limits* wanted, Found* found) except -1
cdef int64_t store_time(const uint8_t* record) noexcept


cdef inline Py_ssize_t count_of(const Found* found) noexcept:
    return found.chosen.size // <Py_ssize_t>sizeof(Chosen)
