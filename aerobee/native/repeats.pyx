# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3
"""Requests of one kind that come again and again, alike but for a few fields: a reader asks for the next messages of the
same queue. What is alike Python judges once, and its word is kept until `forget`; of the rest only numbers and texts are
handed over. Python's word may be None, which is not kept: such a request takes the ordinary way.
"""

from libc.stdint cimport int64_t, uint8_t

from aerobee.native.headers cimport Fields, code_at
from aerobee.native.memory cimport Span, let_go

cdef enum:
    MOST_KNOWN = 10_000


cdef class Repeats:
    """`moving` are the fields that may differ, `ignored` those that mean nothing; `judge(header)` is Python's word."""

    def __cinit__(self, header, moving, ignored, judge):
        self.fields, self._code, self._judge, self._known = Fields(header), header.code, judge, {}
        self._data = b""
        self._key.at, self._key.size, self._key.room = NULL, 0, 0
        keyed = [at for at, name in enumerate(self.fields.attributes) if name not in (*moving, *ignored)]
        if len(keyed) > MOST_KEYED:
            raise ValueError(f"{header.__name__}: {len(keyed)} fields that must be alike; {MOST_KEYED} are foreseen")
        self._keyed_count = len(keyed)
        for number, at in enumerate(keyed):
            self._keyed[number] = at

    def __dealloc__(self):
        let_go(&self._key)

    def forget(self):
        """Something that Python looked at may be another now."""
        self._known.clear()

    cdef bint read(self, const uint8_t* data, Py_ssize_t size, Py_ssize_t most) except -1:
        """Whether such a request, to be answered, stands at the start of `data` and is understood."""
        if code_at(data, size) != self._code or not self.fields.read(data, size, most):
            return False
        return self.fields.frame.code == self._code and self.fields.frame.flag == 0

    cdef object judged(self):
        """Python's word on the request that was read last."""
        cdef bytes key
        cdef int number
        self._key.size = 0
        for number in range(self._keyed_count):
            self.fields.add_to(&self._key, self._keyed[number])
        key = self._key.at[:self._key.size]
        word = self._known.get(key)
        if word is None:
            word = self._judge(self.fields.header())
            if word is not None:
                if len(self._known) >= MOST_KNOWN:
                    self._known.clear()
                self._known[key] = word
        return word

    # -- for who goes on in Python -----------------------------------------------------------------------------

    def take(self, bytes data not None, Py_ssize_t at, Py_ssize_t most):
        """Python's word on the request at `at`; None when it is left alone. What is told of the request below holds until
        the next one is taken."""
        if not 0 <= at <= len(data):
            raise ValueError(f"no place {at} in {len(data)} bytes")
        self._data = data
        return self.judged() if self.read(<const uint8_t*>data + at, len(data) - at, most) else None

    def place(self, str attribute not None):
        """Where a field is, for `number` and `text`."""
        return self.fields.attributes.index(attribute)

    def number(self, int place):
        """Its default when it is not there."""
        if not 0 <= place < self.fields.count:
            raise IndexError(place)
        return self.fields.values[place].number

    def text(self, int place):
        """The same for a text, which is empty when it is not there."""
        cdef Span text
        if not 0 <= place < self.fields.count:
            raise IndexError(place)
        text = self.fields.values[place].text
        return text.at[:text.size].decode()

    @property
    def body(self):
        return self.fields.frame.body.at[:self.fields.frame.body.size]

    @property
    def opaque(self):
        return self.fields.frame.opaque

    @property
    def serialize(self):
        return self.fields.frame.serialize

    @property
    def size(self):
        """Of its frame."""
        return self.fields.frame.size
