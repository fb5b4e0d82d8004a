# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3
"""The end of a queue and the counts of a meter: Python's classes are made upon these where the lane is on.

With 80,000 queues every number that is an object of its own is one more place in memory that has left the cache when
the queue's turn comes again, and no turn of a queue costs less than the next place it has to be fetched from.
`store/consume_queue.py` and `broker/state/stats.py` say what they mean, and have their own where the lane is off.
"""


cdef class QueueEnd:
    def __cinit__(self):
        self.run, self.found_at = 0, -1


cdef class Counts:
    pass
