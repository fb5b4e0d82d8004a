# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3
"""Topics that a send may go to without further questions, what went there in this run, and a table to find them in.

The table is one of numbers and addresses, not a dictionary: where a name stands in it can be fetched from memory some
frames before it is asked for.
"""

import os

from cpython.object cimport PyObject
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcmp, memcpy

from aerobee.native.memory cimport Span, java_hash, span_of
from aerobee.native.state cimport QueueEnd

cdef extern from "Python.h":
    PyObject** PySequence_Fast_ITEMS(list items)

cdef enum:
    FIRST_ROOM = 64


cdef class Topic:
    def __cinit__(self, bytes name not None, config):
        cdef bytes before_key = name + b"#"
        self.name, self.config, self._ends, self.run = config.topic_name, config, [], 0
        self._name, self.label = name, span_of(name)
        self.ends, self.known = NULL, 0
        self.write_queues, self.read_queues = config.write_queue_nums, config.read_queue_nums
        self.key_hash = java_hash(0, before_key, len(before_key))

    cdef QueueEnd end(self, Py_ssize_t queue_id):
        """The store's queue, as far as it is known; it may have been unloaded since."""
        return <QueueEnd>self.ends[queue_id] if queue_id < self.known else None

    cdef int set_end(self, Py_ssize_t queue_id, QueueEnd end, bytes field, uint32_t magic) except -1:
        while len(self._ends) <= queue_id:
            self._ends.append(None)
        self._ends[queue_id] = end
        self.ends, self.known = PySequence_Fast_ITEMS(self._ends), len(self._ends)
        if self.known <= FEW:
            memcpy(self._few, self.ends, self.known * sizeof(PyObject*))
            self.ends = self._few
        self._field, self.field, self.magic = field, span_of(field), magic
        if self.field.size <= SHORT:
            memcpy(self._short, self.field.at, self.field.size)
            self.field.at = self._short
        # The name is the end of the field, which is written into every record: one place to fetch, not two.
        self.label.at = self.field.at + (self.field.size - self.label.size)
        return 0

    cdef tuple large(self):
        """Messages by size: over 1 KiB up to 4 KiB, up to 512 KiB, 1, 2 and 4 MiB, and beyond."""
        return tuple([self._large[place] for place in range(SIZES)])

    cdef void start(self, int64_t run) noexcept:
        self.run, self.calls, self.count, self.size_bytes, self.has_large = run, 0, 0, 0, False

    cdef void add_large(self, int64_t messages, int64_t size_bytes) noexcept:
        cdef int place
        if not self.has_large:
            for place in range(SIZES):
                self._large[place] = 0
        self.has_large = True
        self._large[
            0 if size_bytes <= messages << 12 else 1 if size_bytes <= messages << 19
            else 2 if size_bytes <= messages << 20 else 3 if size_bytes <= messages << 21
            else 4 if size_bytes <= messages << 22 else 5
        ] += messages


cdef class Topics:
    """By name, with open addressing: a name stands in its slot or in one of the next."""

    def __cinit__(self):
        self._seed = int.from_bytes(os.urandom(8))  # nobody can choose names that meet
        self._kept, self._slots = {}, NULL
        self.clear(FIRST_ROOM)

    def __dealloc__(self):
        free(self._slots)

    cdef int clear(self, Py_ssize_t room) except -1:
        cdef Slot* slots = <Slot*>calloc(room, sizeof(Slot))
        if slots == NULL:
            raise MemoryError
        free(self._slots)
        self._slots, self._mask, self._used = slots, room - 1, 0
        return 0

    cdef uint64_t hash(self, Span name) noexcept:
        """Never 0."""
        cdef uint64_t found = self._seed ^ <uint64_t>name.size, eight
        cdef Py_ssize_t at = 0
        while at < name.size:
            eight = 0
            memcpy(&eight, name.at + at, min(8, name.size - at))
            found = (found ^ eight) * 0x9E3779B97F4A7C15U
            found ^= found >> 29
            at += 8
        return found | 1U

    cdef Slot* first(self, uint64_t hash) noexcept:
        return self._slots + (hash >> 7 & self._mask)

    cdef PyObject* hinted(self, uint64_t hash) noexcept:
        """What stands first where the name belongs: the topic, nearly always, or none."""
        cdef Slot* slot = self.first(hash)
        return slot.topic if slot.hash == hash else NULL

    cdef Topic find(self, uint64_t hash, Span name):
        cdef uint64_t place = hash >> 7 & self._mask
        cdef Slot* slot = self._slots + place
        cdef Topic topic
        while slot.hash:
            if slot.hash == hash and slot.topic != NULL:
                topic = <Topic>slot.topic
                if topic.label.size == name.size and memcmp(topic.label.at, name.at, name.size) == 0:
                    return topic
            place = (place + 1) & self._mask
            slot = self._slots + place
        return None

    cdef int add(self, Topic topic) except -1:
        """One that is not there."""
        cdef Topic each
        self._kept[topic._name] = topic
        if 2 * self._used >= <Py_ssize_t>self._mask:
            self.clear(4 * FIRST_ROOM * (1 << (len(self._kept) // FIRST_ROOM).bit_length()))
            for each in self._kept.values():
                self._enter(each)
        else:
            self._enter(topic)
        return 0

    def _enter(self, Topic topic not None):
        cdef uint64_t hash = self.hash(topic.label)
        cdef uint64_t place = hash >> 7 & self._mask
        while self._slots[place].hash:
            place = (place + 1) & self._mask
        self._slots[place].hash, self._slots[place].topic = hash, <PyObject*>topic
        self._used += 1

    cdef int forget(self, bytes name) except -1:
        """An empty name means all."""
        cdef Topic topic
        cdef uint64_t place
        if not name:
            self.clear(FIRST_ROOM)
            self._kept.clear()
            return 0
        topic = self._kept.pop(name, None)
        if topic is None:
            return 0
        place = self.hash(topic.label) >> 7 & self._mask
        while self._slots[place].topic != <PyObject*>topic:
            place = (place + 1) & self._mask
        self._slots[place].topic = NULL
        return 0
