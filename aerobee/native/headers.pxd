# SPDX-License-Identifier: Apache-2.0
"""The header of a request, read by the fields that its type declares."""

from libc.stdint cimport int64_t, uint8_t, uint32_t

from aerobee.native.memory cimport Buffer, Span

cdef enum:
    MOST_FIELDS = 24
    MOST_GATHERED = 64
    NO_FRAME = -1


cdef struct Value:
    int64_t number  # of an integer or a truth value; what the header declares when the field is absent
    Span text
    bint is_there


cdef struct Frame:
    int serialize  # 0 = JSON, 1 = binary
    int64_t code
    int64_t opaque
    int64_t flag
    Span body
    Py_ssize_t size  # of the whole frame, its length included


cdef int64_t code_at(const uint8_t* data, Py_ssize_t size) noexcept
cdef bint is_utf8(const uint8_t* p, Py_ssize_t size) noexcept
cdef bint number_of(Span text, int64_t* number) noexcept


cdef class Fields:
    cdef int count
    cdef int kinds[MOST_FIELDS]
    cdef int64_t defaults[MOST_FIELDS]
    cdef bint has_default[MOST_FIELDS]
    cdef Span names[MOST_FIELDS]
    cdef int by_letter[256]  # fields whose names are one letter, as those of the busiest requests
    cdef object _header  # the type
    cdef list _names  # keeps the bytes of `names`
    cdef readonly list attributes
    cdef Value values[MOST_FIELDS]
    cdef Frame frame
    cdef Buffer _scratch
    cdef bint gathers  # all fields, those too that the header does not declare
    cdef int gathered
    cdef Span gathered_names[MOST_GATHERED]
    cdef Span gathered_values[MOST_GATHERED]

    cdef int find(self, const uint8_t* name, Py_ssize_t size) noexcept
    cdef bint read(self, const uint8_t* data, Py_ssize_t size, Py_ssize_t most) except -1
    cdef object header(self)
    cdef dict as_values(self)
    cdef int add_to(self, Buffer* key, int field) except -1
    cdef bint _read_binary(self, const uint8_t* p, const uint8_t* end) noexcept
    cdef bint _read_json(self, const uint8_t* p, const uint8_t* end) noexcept
    cdef const uint8_t* _read_fields(self, const uint8_t* p, const uint8_t* end) noexcept
    cdef bint _take(self, int field, Span text) noexcept
    cdef bint _gather(self, Span name, Span value) noexcept
    cdef bint _set(self, int member, Span text) noexcept
    cdef const uint8_t* _string_or_null(self, const uint8_t* p, const uint8_t* end) noexcept
    cdef const uint8_t* _string(self, const uint8_t* p, const uint8_t* end, Span* text) noexcept
    cdef const uint8_t* _escaped(
        self, const uint8_t* start, const uint8_t* p, const uint8_t* end, Span* text, bint* plain
    ) noexcept
    cdef bint _complete(self) noexcept
