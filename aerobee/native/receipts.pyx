# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3
"""Receipts of popped messages: read from the requests that bring them back, and told in the answer of a pop.
`protocol/receipt.py` says how they look."""

from libc.stdint cimport int64_t, uint8_t
from libc.string cimport memcmp

from aerobee.native.answers cimport Template
from aerobee.native.headers cimport Fields, code_at, number_of
from aerobee.native.memory cimport Buffer, Span, append, decimal, let_go, make_room

cdef enum:
    ONE_WAY = 2
    LEAST_FIELDS = 6
    MOST_DIGITS = 20

cdef enum:  # values of a pop's answer
    POP_TIME, INVISIBLE, REVIVE_QUEUE, REST, STARTS, OFFSETS, VALUES


cdef class ReceiptLane:
    """A run of requests of one code with a receipt each. `answers`: done, as JSON and binary; `orderly` is the revive queue
    of receipts that have no checkpoint: they are Python's."""

    def __cinit__(self, header, ask, answers, int64_t orderly):
        self.fields, self._code = Fields(header), header.code
        self.ask, self._orderly = ask, orderly
        self._json, self._binary = answers
        place = self.fields.attributes.index
        self._topic, self._group, self._queue_id = place("topic"), place("consumer_group"), place("queue_id")
        self._offset, self._receipt = place("offset"), place("extra_info")
        self._answers.at, self._answers.size, self._answers.room = NULL, 0, 0

    def __dealloc__(self):
        let_go(&self._answers)

    def take(self, bytes data not None, Py_ssize_t at, Py_ssize_t most):
        """Serve the requests from `at` on; where the first frame is that is left alone."""
        cdef const uint8_t* start = data
        cdef Py_ssize_t size = len(data)
        cdef Fields fields = self.fields
        if not 0 <= at <= size:
            raise ValueError(f"no place {at} in {size} bytes")
        self.calls, self._answers.size = 0, 0
        self.begin()
        while code_at(start + at, size - at) == self._code:
            if not fields.read(start + at, size - at, most) or fields.frame.code != self._code:
                break
            if fields.frame.flag & ~ONE_WAY or not self._take_one():
                break
            self.calls += 1
            at += fields.frame.size
        return at

    cdef bint _take_one(self) except -1:
        cdef int64_t receipt[NUMBERS]
        cdef Fields fields = self.fields
        if not _read_receipt(fields.values[self._receipt].text, receipt) or receipt[3] == self._orderly:
            return False
        return self.serve(
            fields.values[self._topic].text, fields.values[self._group].text, fields.values[self._queue_id].number,
            fields.values[self._offset].number, receipt,
        )

    @property
    def answers(self):
        return self._answers.at[:self._answers.size]

    cdef int begin(self) except -1:
        """A run starts."""
        return 0

    cdef bint serve(self, Span topic, Span group, int64_t queue_id, int64_t offset, const int64_t* receipt) except -1:
        """Do what is asked of the message, and `answer`; False leaves it to the ordinary way."""
        raise NotImplementedError

    cdef int answer(self, const Span* values) except -1:
        if self.fields.frame.flag & ONE_WAY:
            return 0
        template = self._binary if self.fields.frame.serialize else self._json
        return (<Template>template).write(&self._answers, self.fields.frame.opaque, values, 0)


cdef bint _read_receipt(Span text, int64_t* numbers) noexcept:
    """The numbers that a receipt begins with; there must be more fields, though nothing is asked of them."""
    cdef Span word
    cdef Py_ssize_t at = 0, count = 0
    while True:
        word.at, word.size = text.at + at, 0
        while at < text.size and text.at[at] != c" ":
            at += 1
            word.size += 1
        if count < NUMBERS and not number_of(word, &numbers[count]):
            return False
        count += 1
        if at == text.size:
            return count >= LEAST_FIELDS
        at += 1


cdef bint same(Span text, bytes known) noexcept:
    return text.size == len(known) and memcmp(text.at, <const uint8_t*>known, text.size) == 0


# -- the answer of a pop ------------------------------------------------------------------------------------------------


cdef class PopAnswers:
    """Answers of pops that found something, from one as JSON and one binary."""

    cdef Template _json, _binary
    cdef Buffer _head, _starts, _offsets

    def __cinit__(self, answers):
        self._json, self._binary = answers
        self._head.at = self._starts.at = self._offsets.at = NULL
        self._head.size = self._starts.size = self._offsets.size = 0
        self._head.room = self._starts.room = self._offsets.room = 0

    def __dealloc__(self):
        let_go(&self._head)
        let_go(&self._starts)
        let_go(&self._offsets)

    def frame(self, int64_t opaque, int serialize, tuple numbers not None, list taken not None, list messages not None):
        """`numbers`: pop time, invisible time, revive queue, how many are left; `taken`: of each queue its retry flag, its
        number, the start offset and the offsets."""
        cdef uint8_t digits[4 * MOST_DIGITS]
        cdef Span values[VALUES]
        cdef Py_ssize_t body_size = 0
        cdef int place
        for place in range(4):
            values[place].at = digits + place * MOST_DIGITS
            values[place].size = decimal(digits + place * MOST_DIGITS, numbers[place])
        self._tell(taken)
        values[STARTS].at, values[STARTS].size = self._starts.at, self._starts.size
        values[OFFSETS].at, values[OFFSETS].size = self._offsets.at, self._offsets.size
        for message in messages:
            body_size += len(message)
        self._head.size = 0
        template = self._binary if serialize else self._json
        (<Template>template).write(&self._head, opaque, values, body_size)
        return b"".join([self._head.at[:self._head.size], *messages])

    cdef int _tell(self, list taken) except -1:
        self._starts.size = self._offsets.size = 0
        for retry, queue_id, start, offsets in taken:
            if self._starts.size:
                append(&self._starts, b";", 1)
                append(&self._offsets, b";", 1)
            _place(&self._starts, retry, queue_id)
            _place(&self._offsets, retry, queue_id)
            _number(&self._starts, start)
            for offset in offsets:
                _number(&self._offsets, offset)
                append(&self._offsets, b",", 1)
            if offsets:
                self._offsets.size -= 1  # the comma after the last
        return 0


cdef int _place(Buffer* info, str retry, int64_t queue_id) except -1:
    cdef bytes flag = retry.encode()
    append(info, flag, len(flag))
    append(info, b" ", 1)
    _number(info, queue_id)
    return append(info, b" ", 1)


cdef int _number(Buffer* info, int64_t number) except -1:
    make_room(info, MOST_DIGITS)
    info.size += decimal(info.at + info.size, number)
    return 0
