# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3
"""Changes of the invisible time of popped messages: requests and receipts are read here, answers written; the lease is
changed by Python, whose state it is. `broker/operations/change_invisible.py` is the reference, and has every request that
it would refuse, and those of ordered groups, which have no lease.
"""

from libc.stdint cimport int64_t, uint8_t
from libc.string cimport memcmp

from aerobee.native.acks cimport NUMBERS, read_receipt
from aerobee.native.answers cimport Template
from aerobee.native.headers cimport Fields, code_at
from aerobee.native.memory cimport Buffer, Span, decimal, let_go

cdef enum:
    ONE_WAY = 2

cdef enum:  # values of an answer
    POP_TIME, INVISIBLE, REVIVE_QUEUE, VALUES


cdef class ChangeLane:
    """`ask.change(place, offset, receipt, invisible_ms)` gives the new pop time, or None for what it leaves to the ordinary
    way; `place` is topic, group and queue, `receipt` the four numbers that one begins with. `answers`: as JSON and binary."""

    cdef Fields _fields
    cdef int64_t _code, _orderly
    cdef object _ask
    cdef Template _json, _binary
    cdef int _topic, _group, _queue_id, _offset, _receipt, _invisible, _failure
    cdef Buffer _answers
    cdef bytes _last_topic, _last_group
    cdef str _topic_text, _group_text
    cdef readonly int64_t calls

    def __cinit__(self, header, ask, answers, int64_t orderly):
        self._fields, self._code = Fields(header), header.code
        self._ask, self._orderly = ask, orderly
        self._json, self._binary = answers
        place = self._fields.attributes.index
        self._topic, self._group, self._queue_id = place("topic"), place("consumer_group"), place("queue_id")
        self._offset, self._receipt, self._invisible = place("offset"), place("extra_info"), place("invisible_time")
        self._failure = place("failure")
        self._last_topic = self._last_group = b""
        self._topic_text = self._group_text = ""
        self._answers.at, self._answers.size, self._answers.room = NULL, 0, 0

    def __dealloc__(self):
        let_go(&self._answers)

    def take(self, bytes data not None, Py_ssize_t at, Py_ssize_t most):
        """Have the changes from `at` on made, and answer them; where the first frame is that is left alone."""
        cdef const uint8_t* start = data
        cdef Py_ssize_t size = len(data)
        cdef Fields fields = self._fields
        if not 0 <= at <= size:
            raise ValueError(f"no place {at} in {size} bytes")
        self.calls, self._answers.size = 0, 0
        while code_at(start + at, size - at) == self._code:
            if not fields.read(start + at, size - at, most) or fields.frame.code != self._code:
                break
            if fields.frame.flag & ~ONE_WAY or not self._serve():
                break
            self.calls += 1
            at += fields.frame.size
        return at

    @property
    def answers(self):
        return self._answers.at[:self._answers.size]

    cdef bint _serve(self) except -1:
        cdef int64_t receipt[NUMBERS]
        cdef Fields fields = self._fields
        cdef int64_t invisible_ms = fields.values[self._invisible].number
        if fields.values[self._failure].text.size:  # rare, and long: Python's
            return False
        if not read_receipt(fields.values[self._receipt].text, receipt) or receipt[3] == self._orderly:
            return False
        place = self._place(fields.values[self._topic].text, fields.values[self._group].text)
        numbers = (receipt[0], receipt[1], receipt[2], receipt[3])
        pop_time = self._ask.change(place, fields.values[self._offset].number, numbers, invisible_ms)
        if pop_time is None:
            return False
        if not fields.frame.flag & ONE_WAY:
            self._answer(pop_time, invisible_ms, receipt[3])
        return True

    cdef tuple _place(self, Span topic, Span group):
        if not _same(topic, self._last_topic):
            self._last_topic = topic.at[:topic.size]
            self._topic_text = self._last_topic.decode()
        if not _same(group, self._last_group):
            self._last_group = group.at[:group.size]
            self._group_text = self._last_group.decode()
        return self._topic_text, self._group_text, self._fields.values[self._queue_id].number

    cdef int _answer(self, int64_t pop_time, int64_t invisible_ms, int64_t revive_queue) except -1:
        cdef uint8_t digits[60]
        cdef Span values[VALUES]
        cdef Fields fields = self._fields
        values[POP_TIME].at, values[POP_TIME].size = digits, decimal(digits, pop_time)
        values[INVISIBLE].at, values[INVISIBLE].size = digits + 20, decimal(digits + 20, invisible_ms)
        values[REVIVE_QUEUE].at, values[REVIVE_QUEUE].size = digits + 40, decimal(digits + 40, revive_queue)
        return (self._binary if fields.frame.serialize else self._json).write(
            &self._answers, fields.frame.opaque, values, 0
        )


cdef bint _same(Span text, bytes known) noexcept:
    return text.size == len(known) and memcmp(text.at, <const uint8_t*>known, text.size) == 0
