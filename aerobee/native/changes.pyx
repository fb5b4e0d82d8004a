# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3
"""Changes of the invisible time of popped messages: requests and receipts are read here, answers written; the lease is
changed by Python, whose state it is. `broker/operations/change_invisible.py` is the reference, and has every request that
it would refuse, and those of ordered groups, which have no lease.
"""

from libc.stdint cimport int64_t, uint8_t

from aerobee.native.memory cimport Span, decimal
from aerobee.native.receipts cimport ReceiptLane, same

cdef enum:  # values of an answer
    POP_TIME, INVISIBLE, REVIVE_QUEUE, VALUES


cdef class ChangeLane(ReceiptLane):
    """`ask.change(place, offset, receipt, invisible_ms)` gives the new pop time, or None for what it leaves to the ordinary
    way; `place` is topic, group and queue, `receipt` the four numbers that one begins with."""

    cdef int _invisible, _failure
    cdef bytes _last_topic, _last_group
    cdef str _topic_text, _group_text

    def __cinit__(self, header, ask, answers, orderly):
        place = self.fields.attributes.index
        self._invisible, self._failure = place("invisible_time"), place("failure")
        self._last_topic = self._last_group = b""
        self._topic_text = self._group_text = ""

    cdef bint serve(self, Span topic, Span group, int64_t queue_id, int64_t offset, const int64_t* receipt) except -1:
        cdef int64_t invisible_ms = self.fields.values[self._invisible].number
        if self.fields.values[self._failure].text.size:  # rare, and long: Python's
            return False
        self._know(topic, group)
        place = (self._topic_text, self._group_text, queue_id)
        numbers = (receipt[0], receipt[1], receipt[2], receipt[3])
        pop_time = self.ask.change(place, offset, numbers, invisible_ms)
        if pop_time is None:
            return False
        self._tell(pop_time, invisible_ms, receipt[3])
        return True

    cdef int _know(self, Span topic, Span group) except -1:
        """The names as Python has them: they are the same for many."""
        if not same(topic, self._last_topic):
            self._last_topic = topic.at[:topic.size]
            self._topic_text = self._last_topic.decode()
        if not same(group, self._last_group):
            self._last_group = group.at[:group.size]
            self._group_text = self._last_group.decode()
        return 0

    cdef int _tell(self, int64_t pop_time, int64_t invisible_ms, int64_t revive_queue) except -1:
        cdef uint8_t digits[60]
        cdef Span values[VALUES]
        values[POP_TIME].at, values[POP_TIME].size = digits, decimal(digits, pop_time)
        values[INVISIBLE].at, values[INVISIBLE].size = digits + 20, decimal(digits + 20, invisible_ms)
        values[REVIVE_QUEUE].at, values[REVIVE_QUEUE].size = digits + 40, decimal(digits + 40, revive_queue)
        return self.answer(values)
