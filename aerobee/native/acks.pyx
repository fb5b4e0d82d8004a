# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3
"""Acks of popped messages, gathered by the checkpoint they belong to.

A consumer acks the messages of one pop one after the other. As long as they are of one checkpoint that is in memory and
whose messages lie together, their bits are gathered here and closed by Python at once; every other ack (a receipt that is
expired, used or unknown, an ordered one, a checkpoint in the log) is left to `broker/operations/ack.py`, the reference.
"""

from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.string cimport memcmp

from aerobee.native.answers cimport Template
from aerobee.native.headers cimport Fields, code_at, number_of
from aerobee.native.memory cimport Buffer, Span, let_go

cdef enum:
    ONE_WAY = 2
    LEAST_FIELDS = 6
    MOST_BITS = 32


cdef class Sheaf:
    """Acks of one checkpoint."""

    cdef readonly str topic, group
    cdef readonly int64_t queue_id, start, pop_time
    cdef readonly uint64_t bits  # the messages acked, by their offset after the start
    cdef uint64_t open  # those that were not before
    cdef bytes _topic, _group

    cdef bint is_of(self, Span topic, Span group, int64_t queue_id, const int64_t* receipt) noexcept:
        return (
            self.start == receipt[0]
            and self.pop_time == receipt[1]
            and self.queue_id == queue_id
            and _same(topic, self._topic)
            and _same(group, self._group)
        )


cdef class AckLane:
    """`ask.open_bits(sheaf)` says which messages of a checkpoint may be acked here; `answers`: done, as JSON and binary;
    `orderly` is the revive queue of receipts that have no checkpoint."""

    cdef Fields _fields
    cdef int64_t _code, _orderly
    cdef object _ask
    cdef Template _json, _binary
    cdef int _topic, _group, _queue_id, _offset, _receipt
    cdef Buffer _answers
    cdef readonly list sheaves

    def __cinit__(self, header, ask, answers, int64_t orderly):
        self._fields, self._code = Fields(header), header.code
        self._ask, self._orderly, self.sheaves = ask, orderly, []
        self._json, self._binary = answers
        place = self._fields.attributes.index
        self._topic, self._group, self._queue_id = place("topic"), place("consumer_group"), place("queue_id")
        self._offset, self._receipt = place("offset"), place("extra_info")
        self._answers.at, self._answers.size, self._answers.room = NULL, 0, 0

    def __dealloc__(self):
        let_go(&self._answers)

    def take(self, bytes data not None, Py_ssize_t at, Py_ssize_t most):
        """Gather and answer the acks from `at` on; where the first frame is that is left alone."""
        cdef const uint8_t* start = data
        cdef Py_ssize_t size = len(data)
        cdef Fields fields = self._fields
        if not 0 <= at <= size:
            raise ValueError(f"no place {at} in {size} bytes")
        self.sheaves, self._answers.size = [], 0
        while code_at(start + at, size - at) == self._code:
            if not fields.read(start + at, size - at, most) or fields.frame.code != self._code:
                break
            if fields.frame.flag & ~ONE_WAY or not self._gather():
                break
            if not fields.frame.flag & ONE_WAY:
                (self._binary if fields.frame.serialize else self._json).write(&self._answers, fields.frame.opaque, NULL, 0)
            at += fields.frame.size
        return at

    @property
    def answers(self):
        return self._answers.at[:self._answers.size]

    cdef bint _gather(self) except -1:
        cdef int64_t receipt[NUMBERS]
        cdef Fields fields = self._fields
        cdef int64_t place, queue_id = fields.values[self._queue_id].number
        cdef Sheaf sheaf
        cdef Span topic = fields.values[self._topic].text, group = fields.values[self._group].text
        if not read_receipt(fields.values[self._receipt].text, receipt) or receipt[3] == self._orderly:
            return False
        place = fields.values[self._offset].number - receipt[0]
        if not 0 <= place < MOST_BITS:
            return False
        sheaf = self._sheaf_of(topic, group, queue_id, receipt)
        if not sheaf.open >> place & 1:
            return False
        if not sheaf.bits:
            self.sheaves.append(sheaf)
        sheaf.open ^= 1ULL << place
        sheaf.bits |= 1ULL << place
        return True

    cdef Sheaf _sheaf_of(self, Span topic, Span group, int64_t queue_id, const int64_t* receipt):
        """The one that is being gathered, or a new one."""
        cdef Sheaf sheaf
        for sheaf in reversed(self.sheaves):
            if sheaf.is_of(topic, group, queue_id, receipt):
                return sheaf
        sheaf = Sheaf.__new__(Sheaf)
        sheaf._topic, sheaf._group = topic.at[:topic.size], group.at[:group.size]
        sheaf.topic, sheaf.group = sheaf._topic.decode(), sheaf._group.decode()
        sheaf.queue_id, sheaf.start, sheaf.pop_time, sheaf.bits = queue_id, receipt[0], receipt[1], 0
        sheaf.open = self._ask.open_bits(sheaf)
        return sheaf


cdef bint read_receipt(Span text, int64_t* numbers) noexcept:
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


cdef bint _same(Span text, bytes known) noexcept:
    return text.size == len(known) and memcmp(text.at, <const uint8_t*>known, text.size) == 0
