# SPDX-License-Identifier: Apache-2.0
"""What the store's queues and the broker's meters have that a run of sends changes, as plain numbers side by side."""

from libc.stdint cimport int64_t, uint8_t

cdef enum:
    UNIT_SIZE = 20


cdef class QueueEnd:
    cdef public int64_t max_offset
    cdef public bytearray tail
    # Of the draft that is being made: there is one at a time.
    cdef int64_t run  # the last one that the queue was in
    cdef Py_ssize_t number  # which of the run's queues
    cdef int64_t next_offset
    cdef int64_t found_at  # how many queues of the store had been unloaded when it was
    cdef uint8_t* unit  # where in the tail the next one goes
    cdef tuple key

    cdef inline Py_ssize_t more(self) noexcept:
        """Bytes that the draft adds to the tail."""
        return UNIT_SIZE * (self.next_offset - self.max_offset)


cdef class Counts:
    cdef public int64_t calls, count, size_bytes
