# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3, cdivision=True
"""A draft: the records of a run, written one after the other in memory of its own, with their queue units and keys.

Nothing of the store changes while it grows. `store/runs.py` tells it at the start where the log ends and how much fits,
and at the end copies it to its places at once, or drops it. The bytes are those of `store/appender.py`, which says what
they mean.
"""

from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_Resize
from cpython.buffer cimport PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.list cimport PyList_GET_ITEM
from cpython.memoryview cimport PyMemoryView_FromMemory
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.string cimport memcpy

from aerobee.native.memory cimport (
    Buffer, Span, append, crc32, get32, java_hash, let_go, make_room, put16, put32, put64, put_bytes, soon_at,
)
from aerobee.native.send_topics cimport Topic
from aerobee.native.state cimport QueueEnd
from aerobee.native.texts cimport next_word

cdef extern from "Python.h":
    ctypedef struct PyByteArrayObject:
        Py_ssize_t ob_alloc  # bytes it has, with one for the 0 at its end

cdef enum:
    FIXED = 74  # a record without hosts, topic field, body and properties
    ENTRY_SIZE = 20  # of the key index
    SLOT_SIZE = 4
    BORN_V6 = 0x10
    STORE_V6 = 0x20
    TRANSACTION = 0xC
    HOST = 8
    WIDE_HOST = 20
    PYBUF_READ = 0x100
    HEAD = 8  # of a record: its size and magic
    SOON = 8  # keys ahead: where a slot is takes longer to fetch than to write
    MORE_ROOM = 480  # bytes of a tail, at most, unless it is long


cdef extern from *:
    """
    /* Eight bytes in one store that stays after all before it. */
    #if defined(__GNUC__) || defined(__clang__)
    #define AFTER_ALL_BEFORE() __atomic_thread_fence(__ATOMIC_RELEASE)
    #else
    #include <intrin.h>
    #define AFTER_ALL_BEFORE() _ReadWriteBarrier()
    #endif
    static void appear(unsigned char *to, const unsigned char *from) {
        AFTER_ALL_BEFORE();
        memcpy(to, from, 8);
    }
    """
    void appear(uint8_t* to, const uint8_t* source) nogil


cdef struct Key:
    int64_t offset
    uint32_t hash


cdef struct Place:
    Py_ssize_t at  # in the records
    int64_t code  # of its tag
    Py_ssize_t queue  # which of `queues`


cdef int64_t _runs = 0  # of all drafts: a queue knows by its number whether it is in this one


cdef class Draft:
    """`find` gives the store's queue of a topic and number, if it is loaded. The first message of one is Python's."""

    def __cinit__(self, find):
        self._find = find
        self._records.at = self._keys.at = self._places.at = NULL
        self._records.size = self._keys.size = self._places.size = 0
        self._records.room = self._keys.room = self._places.room = 0
        self.queues, self.run, self._last_start = [], 0, -1

    def __dealloc__(self):
        let_go(&self._records)
        let_go(&self._keys)
        let_go(&self._places)

    def begin(
        self, int64_t start, int64_t limit, Py_ssize_t key_room, int64_t now, bytes store_host not None, tuple sizes,
        int64_t unloaded,
    ):
        """`sizes`: of the record check, of the longest properties text, of the longest body. `unloaded`: how many queues
        of the store were so far; those found before the last of them are looked for again."""
        self.drop()
        global _runs
        _runs += 1
        self.run, self._unloaded, self._last_start = _runs, unloaded, -1
        self.start, self._limit, self._key_room, self.now = start, limit, key_room, now
        self._store_host = store_host
        self.check_size, self.longest_text, self.longest_body = sizes

    def lease(self, settings, file, int64_t run_bytes, Py_ssize_t least_keys):
        """The room that `begin` was told is for the runs that follow as well, by `goes_on`: as long as a whole run of so
        many bytes and keys fits. `settings` are those the sizes follow from, `file` is where keys go."""
        self._settings, self._file, self._least_keys = settings, file, least_keys
        self._last_start, self._kept_until, self._entries = self._limit - run_bytes, -1, file.count

    def goes_on(self, int64_t start, int64_t now, index, bytes store_host, settings, int64_t unloaded):
        """`begin` for one more run, in the room that was leased; False when that is over: somebody else has appended
        meanwhile, it is short, or what the draft was told has changed."""
        cdef list files
        if (
            start != self._kept_until or start > self._last_start or self._key_room < self._least_keys
            or store_host is not self._store_host or settings is not self._settings
            or index.waiting
        ):
            return False
        files = index.files
        if files[len(files) - 1] is not self._file or self._file.count != self._entries:
            return False
        self.drop()
        global _runs
        _runs += 1
        self.run, self.start, self.now, self._unloaded = _runs, start, now, unloaded
        return True

    def drop(self):
        """Forget what was drafted."""
        self.queues = []
        self._records.size = self._keys.size = self._places.size = 0

    # -- drafting ------------------------------------------------------------------------------------------

    cdef int64_t end(self) noexcept:
        return self.start + self._records.size

    cdef QueueEnd open(self, Topic topic, Py_ssize_t queue_id):
        """The queue, in this run; None when the store has none loaded."""
        cdef QueueEnd queue = topic.end(queue_id)
        if queue is None or queue.found_at != self._unloaded:
            queue = self._found(topic, queue_id)
        if queue is not None and queue.run != self.run:
            queue.run, queue.number, queue.next_offset = self.run, len(self.queues), queue.max_offset
            self.queues.append(queue)
        return queue

    cdef QueueEnd _found(self, Topic topic, Py_ssize_t queue_id):
        cdef tuple key = (topic.name, queue_id)
        stored = self._find(key)
        if stored is None:
            return None
        cdef QueueEnd queue = stored
        queue.key, queue.found_at = key, self._unloaded
        topic.set_end(queue_id, queue, stored.topic_field, <uint32_t>(stored.magic & 0xFFFFFFFF))
        return queue

    cdef bint put(self, Topic topic, QueueEnd queue, Message* message) except -1:
        """Add a record; False when it does not fit: into the log, the index or its own fields."""
        cdef Py_ssize_t text = message.before.size + message.text.size + message.after.size
        cdef Py_ssize_t size = FIXED + message.born_host.size + len(self._store_host) + message.body.size
        cdef Py_ssize_t keys = message.named.key_count + (message.named.unique.size > 0)
        size += topic.field.size + text + self.check_size
        if (
            text > self.longest_text
            or message.body.size > self.longest_body
            or self.end() + size > self._limit
            or self._keys.size // <Py_ssize_t>sizeof(Key) + keys > self._key_room
            or message.sys_flag & TRANSACTION
            or not _fits32(message.flag)
            or not _fits32(message.sys_flag)
            or not _fits32(message.reconsume_times)
        ):
            return False
        make_room(&self._records, size)
        self._write(self._records.at + self._records.size, size, topic, queue, message)
        self._note(topic, queue, message)
        self._records.size += size
        queue.next_offset += 1
        return True

    cdef void mark(self, QueueEnd queue, Mark* mark) noexcept:
        """Where the draft is now, for a batch, which is drafted whole or not at all."""
        mark.records, mark.keys, mark.places = self._records.size, self._keys.size, self._places.size
        mark.next_offset = queue.next_offset

    cdef void back_to(self, Mark* mark, QueueEnd queue) noexcept:
        self._records.size, self._keys.size, self._places.size = mark.records, mark.keys, mark.places
        queue.next_offset = mark.next_offset

    cdef void _write(self, uint8_t* p, Py_ssize_t size, Topic topic, QueueEnd queue, Message* message) noexcept:
        """protocol/message.py has the picture."""
        cdef uint8_t* start = p
        cdef uint32_t flags = <uint32_t>message.sys_flag & ~<uint32_t>(BORN_V6 | STORE_V6)
        flags |= (BORN_V6 if message.born_host.size == WIDE_HOST else 0)
        flags |= (STORE_V6 if len(self._store_host) == WIDE_HOST else 0)
        p = put32(p, <uint32_t>size)
        p = put32(p, topic.magic)
        p = put32(p, crc32(0, message.body.at, message.body.size) & 0x7FFFFFFF)
        p = put32(p, <uint32_t>message.queue_id)
        p = put32(p, <uint32_t>message.flag)
        p = put64(p, queue.next_offset)
        p = put64(p, self.end())
        p = put32(p, flags)
        p = put64(p, message.born_timestamp)
        p = _put_host(p, message.born_host.at, message.born_host.size)
        p = put64(p, self.now)
        p = _put_host(p, self._store_host, len(self._store_host))
        p = put32(p, <uint32_t>message.reconsume_times)
        p = put64(p, 0)  # the offset of a prepared message
        p = put32(p, <uint32_t>message.body.size)
        p = put_bytes(p, message.body.at, message.body.size)
        p = put_bytes(p, topic.field.at, topic.field.size)
        p = put16(p, <uint32_t>(message.before.size + message.text.size + message.after.size + self.check_size))
        if message.before.size:
            p = put_bytes(p, message.before.at, message.before.size)
        p = put_bytes(p, message.text.at, message.text.size)
        if message.after.size:
            p = put_bytes(p, message.after.at, message.after.size)
        if self.check_size:
            _write_check(p, crc32(0, start, p - start) & 0x7FFFFFFF)

    cdef int _note(self, Topic topic, QueueEnd queue, Message* message) except -1:
        """Place and keys of the record that is being added."""
        cdef Span rest = message.named.keys, word
        cdef Place place
        if message.named.unique.size:
            self._note_key(topic, message.named.unique)
        while next_word(&rest, &word):
            self._note_key(topic, word)
        place.at, place.queue = self._records.size, queue.number
        place.code = <int32_t>java_hash(0, message.named.tag.at, message.named.tag.size)
        return append(&self._places, <uint8_t*>&place, sizeof(Place))

    cdef int _note_key(self, Topic topic, Span word) except -1:
        """abs(hashCode) of topic#key as RocketMQ has it: 0 for the one value whose abs overflows."""
        cdef Key key
        key.offset, key.hash = self.end(), java_hash(topic.key_hash, word.at, word.size)
        if key.hash >= 0x80000000U:
            key.hash = (0U - key.hash) & 0x7FFFFFFFU
        return append(&self._keys, <uint8_t*>&key, sizeof(Key))

    # -- what the store takes --------------------------------------------------------------------------------

    @property
    def size(self):
        return self._records.size

    @property
    def key_count(self):
        return self._keys.size // <Py_ssize_t>sizeof(Key)

    @property
    def last_key_offset(self):
        """Of the last key's record; there must be one."""
        return (<Key*>(self._keys.at + self._keys.size))[-1].offset

    def keep_in(self, table not None, Py_ssize_t at, Py_ssize_t most):
        """Copy the records to `at`, as `CommitLog.publish` does where that is a copy: the first eight bytes last, in one
        store. False, and nothing is done, for more than `most` bytes."""
        cdef Py_buffer view
        self._kept_until = self.end()
        if self._records.size >= most:
            return False
        PyObject_GetBuffer(table, &view, PyBUF_WRITABLE)
        try:
            if at < 0 or at + self._records.size > view.len or self._records.size < HEAD:
                raise ValueError(f"{self._records.size} bytes at {at} do not fit {view.len}")
            memcpy(<uint8_t*>view.buf + at + HEAD, self._records.at + HEAD, self._records.size - HEAD)
            appear(<uint8_t*>view.buf + at, self._records.at)
        finally:
            PyBuffer_Release(&view)
        return True

    def published(self, publish):
        """Call `publish(start, records)`; the records are a view that is taken back afterwards."""
        view = PyMemoryView_FromMemory(<char*>self._records.at, self._records.size, PYBUF_READ)
        try:
            publish(self.start, view)
        finally:
            view.release()

    def enter_keys(self, bytearray tail not None, slots not None, int64_t first, int64_t number, int64_t seconds):
        """Enter the keys into an index file (`store/index_file.py` has the picture), from entry `number` on; `tail` begins
        with entry `first`. Returns how many slots were empty. ValueError when they do not fit."""
        cdef Py_buffer heads
        cdef uint8_t* entry = <uint8_t*>PyByteArray_AS_STRING(tail) + (number - first) * ENTRY_SIZE
        PyObject_GetBuffer(slots, &heads, PyBUF_WRITABLE)
        try:
            if (
                not SLOT_SIZE <= heads.len <= SLOT_SIZE * <Py_ssize_t>0x7FFFFFFF or not 0 < first <= number or seconds < 0
                or (number - first + <int64_t>self.key_count) * ENTRY_SIZE > len(tail)
            ):
                raise ValueError(f"{self.key_count} keys from entry {number} on do not fit {len(tail)} bytes")
            self._key_room -= self._keys.size // <Py_ssize_t>sizeof(Key)
            self._entries = number + self._keys.size // <Py_ssize_t>sizeof(Key)
            return self._enter(entry, <uint8_t*>heads.buf, heads.len // SLOT_SIZE, number, seconds)
        finally:
            PyBuffer_Release(&heads)

    cdef int64_t _enter(self, uint8_t* entry, uint8_t* heads, int64_t slots, int64_t number, int64_t seconds) noexcept:
        cdef Key* key = <Key*>self._keys.at
        cdef Key* end = <Key*>(self._keys.at + self._keys.size)
        cdef uint8_t* slot
        cdef int64_t fresh = 0
        cdef int32_t older
        while key != end:
            if end - key > SOON:
                soon_at(_slot(heads, slots, key[SOON].hash))
            slot = _slot(heads, slots, key.hash)
            older = <int32_t>get32(slot)
            if not 0 < older < number:
                older = 0
                fresh += 1
            entry = put32(put32(put64(put32(entry, key.hash), key.offset), <uint32_t>seconds), <uint32_t>older)
            put32(slot, <uint32_t>number)
            number += 1
            key += 1
        return fresh

    def enter_units(self, dict dirty not None):
        """The units into the tails of their queues. `dirty` are the store's queues with a tail, in the order they got one."""
        cdef QueueEnd queue
        cdef Place* place = <Place*>self._places.at
        cdef Place* end = <Place*>(self._places.at + self._places.size)
        cdef uint8_t* record
        self._make_room_in_tails(dirty)
        for queue in self.queues:
            queue.unit = <uint8_t*>PyByteArray_AS_STRING(queue.tail) + len(queue.tail) - queue.more()
            queue.max_offset = queue.next_offset
        while place != end:
            queue = <QueueEnd>PyList_GET_ITEM(self.queues, place.queue)
            record = self._records.at + place.at
            queue.unit = put64(put32(put64(queue.unit, self.start + place.at), get32(record)), place.code)
            place += 1

    cdef int _make_room_in_tails(self, dict dirty) except -1:
        """In all of them, or, when there is no memory for one, in none."""
        cdef QueueEnd queue
        cdef Py_ssize_t done = 0
        try:
            for queue in self.queues:
                if queue.more():
                    if not len(queue.tail):
                        dirty[queue] = None
                    _lengthen(queue.tail, len(queue.tail) + queue.more())
                done += 1
        except BaseException:
            for queue in self.queues[:done]:
                PyByteArray_Resize(queue.tail, len(queue.tail) - queue.more())
            raise
        return 0

    def awaited(self, listeners):
        """By queue, of the listeners of whom anybody waits, the `arrived` of those who wait for it."""
        cdef QueueEnd queue
        cdef dict found = None
        for listener in listeners:
            wanted = listener.awaited() if listener.count else None
            if not wanted:
                continue
            for queue in self.queues:
                if queue.key in wanted:
                    if found is None:
                        found = {}
                    found.setdefault(queue, []).append(listener.arrived)
        return found

    def records_of(self, wanted):
        """(queue, tags code, record) of each record whose queue is in `wanted`, in the order of the log."""
        cdef Place* place = <Place*>self._places.at
        cdef Place* end = <Place*>(self._places.at + self._places.size)
        found = []
        while place != end:
            queue = self.queues[place.queue]
            if queue in wanted:
                at = self._records.at + place.at
                found.append((queue, place.code, PyBytes_FromStringAndSize(<char*>at, get32(at))))
            place += 1
        return found


cdef int _lengthen(bytearray tail, Py_ssize_t size) except -1:
    """An array that grows by a unit moves nearly every time while it is short, so it is given room for some to come."""
    if size >= (<PyByteArrayObject*>tail).ob_alloc:
        PyByteArray_Resize(tail, size + max(size >> 3, min(size - 1, MORE_ROOM)))  # from half of it on it is kept
    return PyByteArray_Resize(tail, size)


cdef inline uint8_t* _put_host(uint8_t* p, const uint8_t* host, Py_ssize_t size) noexcept:
    """A known size is copied without a call."""
    return put_bytes(p, host, HOST) if size == HOST else put_bytes(p, host, size)


cdef inline uint8_t* _slot(uint8_t* heads, int64_t slots, uint32_t hash) noexcept:
    return heads + <int64_t>(hash % <uint32_t>slots) * SLOT_SIZE


cdef bint _fits32(int64_t value) noexcept:
    return -0x80000000LL <= value <= 0x7FFFFFFFLL


cdef void _write_check(uint8_t* p, uint32_t check) noexcept:
    """The record check: its ten digits stand backwards."""
    cdef int place
    p = put_bytes(p, b"__CRC32#\x01", 9)
    for place in range(10):
        p[place] = <uint8_t>(c"0" + check % 10)
        check //= 10
    p[10] = 2
