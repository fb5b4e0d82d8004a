# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3
"""Signed requests: who asks, which names they name, and the bytes that their signature is made over.

`protocol/accounts.py` says what is signed: the values of all fields but the signature, in order of their names, and the
body. The signature itself is reckoned by Python. A frame that is unusual in any way is not read: Python reads it.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int64_t, uint8_t
from libc.string cimport memchr, memcmp

from aerobee.native.headers cimport MOST_GATHERED, Fields
from aerobee.native.memory cimport Span, put_bytes, span_of

cdef enum:
    ONE_WAY = 2
    MOST_NAMES = 4


cdef class SignedRequests:
    """Of one kind of header. `marks`: the names of the fields with the user and with the signature. `names` are the
    fields that decide about the user's rights. `never` is a word that a frame with `properties` must not have there."""

    cdef Fields _fields
    cdef int64_t _code
    cdef bytes _user_name, _signature_name, _never
    cdef int _name_count, _properties
    cdef int _names[MOST_NAMES]
    cdef int _order[MOST_GATHERED]  # of the request before: a client writes its fields always alike
    cdef int _ordered
    cdef readonly Py_ssize_t size
    cdef readonly bytes content, signature
    cdef readonly str user
    cdef readonly tuple names

    def __cinit__(self, header, tuple marks not None, tuple names not None, str never not None):
        self._fields, self._code, self._ordered = Fields(header), header.code, 0
        self._fields.gathers = True
        user, signature = marks
        self._user_name, self._signature_name, self._never = user.encode(), signature.encode(), never.encode()
        place = self._fields.attributes.index
        self._properties = place("properties") if never else -1
        if len(names) > MOST_NAMES:
            raise ValueError(f"{names!r} are more than {MOST_NAMES}")
        self._name_count = len(names)
        for number, name in enumerate(names):
            self._names[number] = place(name)

    def read(self, bytes data not None, Py_ssize_t at, Py_ssize_t most):
        """Whether such a request, of some user, begins at `at` and is understood. All that it says is here then."""
        cdef Fields fields = self._fields
        if not 0 <= at <= len(data):
            raise ValueError(f"no place {at} in {len(data)} bytes")
        if not fields.read(<const uint8_t*>data + at, len(data) - at, most) or fields.frame.code != self._code:
            return False
        if fields.frame.flag & ~ONE_WAY or not self._is_in_order() or self._has_never():
            return False
        self.user = self.signature = None
        self._gather()
        self.size = fields.frame.size
        return self.user is not None and self.signature is not None

    cdef bint _has_never(self) noexcept:
        cdef Span text, word = span_of(self._never)
        cdef const uint8_t* p
        if self._properties < 0:
            return False
        text = self._fields.values[self._properties].text
        while text.size >= word.size:
            p = <const uint8_t*>memchr(text.at, word.at[0], text.size - word.size + 1)
            if p == NULL:
                return False
            if memcmp(p, word.at, word.size) == 0:
                return True
            text.size -= p + 1 - text.at
            text.at = p + 1
        return False

    cdef bint _is_in_order(self) noexcept:
        """Find the order of the names, by their bytes, which is that of their letters; False when one is there twice."""
        cdef int count = self._fields.gathered, place, at, moved
        cdef const Span* names = self._fields.gathered_names
        if self._ordered != count or not self._is_sorted():
            for place in range(count):
                moved, at = place, place
                while at and _compare(names[self._order[at - 1]], names[moved]) > 0:
                    self._order[at] = self._order[at - 1]
                    at -= 1
                self._order[at] = moved
            self._ordered = count
            return self._is_sorted()
        return True

    cdef bint _is_sorted(self) noexcept:
        cdef int place
        cdef const Span* names = self._fields.gathered_names
        for place in range(1, self._fields.gathered):
            if _compare(names[self._order[place - 1]], names[self._order[place]]) >= 0:
                return False
        return True

    cdef int _gather(self) except -1:
        cdef Fields fields = self._fields
        cdef Py_ssize_t size = fields.frame.body.size
        cdef Span name, value
        cdef uint8_t* p
        cdef int place, field, mine = -1
        for place in range(fields.gathered):
            field = self._order[place]
            name, value = fields.gathered_names[field], fields.gathered_values[field]
            if _is(name, self._signature_name):
                self.signature = value.at[:value.size]
                mine = field
                continue
            if _is(name, self._user_name):
                self.user = value.at[:value.size].decode()
            size += value.size
        self.content = PyBytes_FromStringAndSize(NULL, size)
        p = <uint8_t*>PyBytes_AS_STRING(self.content)
        for place in range(fields.gathered):
            field = self._order[place]
            if field != mine:
                value = fields.gathered_values[field]
                p = put_bytes(p, value.at, value.size)
        put_bytes(p, fields.frame.body.at, fields.frame.body.size)
        self.names = tuple([self._text(self._names[place]) for place in range(self._name_count)])
        return 0

    cdef str _text(self, int field):
        cdef Span text = self._fields.values[field].text
        return text.at[:text.size].decode()


cdef int _compare(Span one, Span other) noexcept:
    cdef int order = memcmp(one.at, other.at, min(one.size, other.size))
    return order if order else (one.size > other.size) - (one.size < other.size)


cdef bint _is(Span text, bytes known) noexcept:
    return text.size == len(known) and memcmp(text.at, <const uint8_t*>known, text.size) == 0
