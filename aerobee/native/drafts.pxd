# SPDX-License-Identifier: Apache-2.0
"""Records that are going to be appended together, with their queue units and index keys."""

cimport cython
from libc.stdint cimport int64_t, uint8_t

from aerobee.native.memory cimport Buffer, Span
from aerobee.native.send_topics cimport Topic
from aerobee.native.state cimport QueueEnd
from aerobee.native.texts cimport Named


cdef struct Message:
    Span body
    Span before, text, after  # its properties are these three
    Named named  # what is in them
    int64_t queue_id, flag, sys_flag, born_timestamp, reconsume_times
    Span born_host


cdef struct Mark:
    Py_ssize_t records, keys, places
    int64_t next_offset


@cython.final
cdef class Draft:
    cdef object _find
    cdef int64_t _unloaded
    cdef readonly list queues  # used in this run, in the order of their first record
    cdef int64_t run
    cdef readonly int64_t start  # where in the log the first record goes
    cdef int64_t _limit
    cdef Py_ssize_t _key_room
    cdef readonly int64_t now  # the store time
    cdef bytes _store_host
    cdef Py_ssize_t check_size, longest_text, longest_body
    cdef object _settings, _file  # of the store; the index file that the keys went to
    cdef int64_t _last_start, _kept_until, _entries  # of the log, of the index
    cdef Py_ssize_t _least_keys
    cdef Buffer _records, _keys, _places

    cdef int64_t end(self) noexcept
    cdef QueueEnd open(self, Topic topic, Py_ssize_t queue_id)
    cdef QueueEnd _found(self, Topic topic, Py_ssize_t queue_id)
    cdef bint put(self, Topic topic, QueueEnd queue, Message* message) except -1
    cdef void mark(self, QueueEnd queue, Mark* mark) noexcept
    cdef void back_to(self, Mark* mark, QueueEnd queue) noexcept
    cdef void _write(self, uint8_t* p, Py_ssize_t size, Topic topic, QueueEnd queue, Message* message) noexcept
    cdef int _note(self, Topic topic, QueueEnd queue, Message* message) except -1
    cdef int _note_key(self, Topic topic, Span word) except -1
    cdef int _make_room_in_tails(self, dict dirty) except -1
    cdef int64_t _enter(self, uint8_t* entry, uint8_t* heads, int64_t slots, int64_t number, int64_t seconds) noexcept
