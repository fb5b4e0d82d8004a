# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3
"""Answers from templates: Python renders one with values that stand nowhere else, and what lies between them is copied
for every answer. So no text of an answer is written twice, and a field added in Python is in the lane's answers too.

    JSON:    length 4 | 0, header length 3 | {"code":0,"extFields":{"msgId":"<value>",...},...,"opaque":<value>,...}
    binary:  length 4 | 1, header length 3 | code 2, language 1, version 2, opaque 4, flag 4 | remark's length 4, remark
             | fields' length 4 | name | value's length 4, value | ...
"""

from libc.stdint cimport int64_t, uint8_t

from aerobee.native.memory cimport Buffer, Span, append, decimal, get32, put32

cdef enum:
    BINARY_OPAQUE = 13
    BINARY_REMARK = 21  # where its length stands; after it the length of the fields, and they


cdef class Template:
    """`values` are those the frame was rendered with, by their number: each stands in it exactly once. `opaque` too,
    where it is text."""

    def __cinit__(self, bytes frame not None, values, opaque=None):
        self._frame, self.is_binary = frame, frame[4] == 1
        marks = list(values)
        if not self.is_binary:
            marks.append(opaque)
        if len(marks) > MOST_PLACES or any(frame.count(mark) != 1 for mark in marks):
            raise ValueError(f"{frame!r} does not have each of {marks!r} exactly once")
        cdef Py_ssize_t at = 8, size
        if self.is_binary:
            self._fields_at = BINARY_REMARK + 4 + get32(<const uint8_t*>frame + BINARY_REMARK)
        self._count = len(marks)
        for number, mark in enumerate(sorted(marks, key=frame.index)):
            slot = marks.index(mark)
            self._slots[number] = slot if slot < len(values) else -1
            size = frame.index(mark) - at
            self._pieces[number].at = <const uint8_t*>frame + at
            self._pieces[number].size = size - 4 if self.is_binary else size  # without the length of the value
            at += size + len(mark)
        self._pieces[self._count].at = <const uint8_t*>frame + at
        self._pieces[self._count].size = len(frame) - at

    cdef int write(self, Buffer* out, int64_t opaque, const Span* values, Py_ssize_t body_size) except -1:
        """The frame of an answer, after what is in `out`; the body is left to the caller."""
        cdef Py_ssize_t start = out.size, head
        cdef uint8_t number[20]
        cdef uint8_t length[4]
        cdef Span value
        cdef int place
        append(out, <const uint8_t*>self._frame, 8)
        for place in range(self._count):
            append(out, self._pieces[place].at, self._pieces[place].size)
            if self._slots[place] >= 0:
                value = values[self._slots[place]]
            else:
                value.at, value.size = number, decimal(number, opaque)
            if self.is_binary:
                put32(length, <unsigned int>value.size)
                append(out, length, 4)
            append(out, value.at, value.size)
        append(out, self._pieces[self._count].at, self._pieces[self._count].size)
        head = out.size - start - 8
        put32(out.at + start, <unsigned int>(4 + head + body_size))
        put32(out.at + start + 4, <unsigned int>head | (1U << 24 if self.is_binary else 0U))
        if self.is_binary:
            put32(out.at + start + BINARY_OPAQUE, <unsigned int>opaque)
            put32(out.at + start + self._fields_at, <unsigned int>(head - (self._fields_at + 4 - 8)))
        return 0
