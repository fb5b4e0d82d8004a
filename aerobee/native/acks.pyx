# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3
"""Acks of popped messages, gathered by the checkpoint they belong to.

A consumer acks the messages of one pop one after the other. As long as they are of one checkpoint that is in memory and
whose messages lie together, their bits are gathered here and closed by Python at once; every other ack (a receipt that is
expired, used or unknown, an ordered one, a checkpoint in the log) is left to `broker/operations/ack.py`, the reference.
"""

from libc.stdint cimport int64_t, uint64_t

from aerobee.native.memory cimport Span
from aerobee.native.receipts cimport ReceiptLane, same

cdef enum:
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
            and same(topic, self._topic)
            and same(group, self._group)
        )


cdef class AckLane(ReceiptLane):
    """`ask.open_bits(sheaf)` says which messages of a checkpoint may be acked here."""

    cdef readonly list sheaves

    cdef int begin(self) except -1:
        self.sheaves = []
        return 0

    cdef bint serve(self, Span topic, Span group, int64_t queue_id, int64_t offset, const int64_t* receipt) except -1:
        cdef int64_t place = offset - receipt[0]
        cdef Sheaf sheaf
        if not 0 <= place < MOST_BITS:
            return False
        sheaf = self._sheaf_of(topic, group, queue_id, receipt)
        if not sheaf.open >> place & 1:
            return False
        if not sheaf.bits:
            self.sheaves.append(sheaf)
        sheaf.open ^= 1ULL << place
        sheaf.bits |= 1ULL << place
        self.answer(NULL)
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
        sheaf.open = self.ask.open_bits(sheaf)
        return sheaf
