# SPDX-License-Identifier: Apache-2.0
"""Answers from templates that Python has rendered."""

from libc.stdint cimport int64_t, uint8_t

from aerobee.native.memory cimport Buffer, Span

cdef enum:
    MOST_PLACES = 8


cdef class Template:
    cdef bytes _frame
    cdef bint is_binary
    cdef int _count
    cdef Py_ssize_t _fields_at  # of a binary one: where the length of its fields stands
    cdef int _slots[MOST_PLACES]  # whose value stands after each piece
    cdef Span _pieces[MOST_PLACES + 1]

    cdef int write(self, Buffer* out, int64_t opaque, const Span* values, Py_ssize_t body_size) except -1
