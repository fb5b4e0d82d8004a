# SPDX-License-Identifier: Apache-2.0
"""Requests that bring the receipt of a popped message."""

from libc.stdint cimport int64_t

from aerobee.native.answers cimport Template
from aerobee.native.headers cimport Fields
from aerobee.native.memory cimport Buffer, Span

cdef enum:
    NUMBERS = 4  # a receipt begins with: start offset, pop time, invisible time, revive queue


cdef class ReceiptLane:
    cdef Fields fields
    cdef object ask
    cdef int64_t _code, _orderly
    cdef Template _json, _binary
    cdef int _topic, _group, _queue_id, _offset, _receipt
    cdef Buffer _answers
    cdef readonly int64_t calls

    cdef int begin(self) except -1
    cdef bint _take_one(self) except -1
    cdef bint serve(self, Span topic, Span group, int64_t queue_id, int64_t offset, const int64_t* receipt) except -1
    cdef int answer(self, const Span* values) except -1


cdef bint same(Span text, bytes known) noexcept
