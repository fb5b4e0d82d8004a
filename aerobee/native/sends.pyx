# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3
"""Sends and batches, from frames to a draft and its answers.

`take` goes on while it understands: a whole frame, a topic that needs no questions, properties that change nothing about
the message's way, all numbers within bounds. At the first frame that is otherwise it stops, having changed nothing for
it, and Python serves that one. `broker/operations/send.py` is the reference: what is plain here is plain there.
"""

from cpython.bytearray cimport PyByteArray_AS_STRING
from cpython.object cimport PyObject
from libc.stdint cimport int64_t, uint8_t, uint64_t

from aerobee.native.answers cimport Template
from aerobee.native.drafts cimport Draft, Mark, Message
from aerobee.native.headers cimport NO_FRAME, Fields, code_at, is_utf8
from aerobee.native.memory cimport (
    Buffer, Span, append, decimal, get16, get32, hexadecimal, let_go, make_room, put_bytes, soon_at, span_of,
)
from aerobee.native.send_topics cimport Topic, Topics
from aerobee.native.state cimport UNIT_SIZE, QueueEnd
from aerobee.native.texts cimport Texts

cdef enum:
    ONE_WAY = 2
    MEMBER_HEAD = 20  # of a message of a batch, before its body
    MOST_KEYS = 4_000  # of a batch; Python counts those of larger ones
    ID_DIGITS = 16  # of a position in the log
    LARGE = 1024  # bytes, from which on sizes are told apart
    MOST_QUEUES = 1 << 16  # of a topic: they stand in a list
    AHEAD = 16  # frames that are read before the first of them is served

cdef enum:  # values of an answer
    MSG_ID, QUEUE_ID, QUEUE_OFFSET, UNIQUE_KEY, VALUES


cdef struct Ahead:  # a frame that was read and is not served yet
    PyObject* fields
    bint is_batch
    uint64_t hash  # of the topic's name
    PyObject* topic  # probably, or NULL
    int64_t queue_id


cdef class SendLane:
    """`fields` and `batches`: how each code's header reads, and which codes are batches. `ask` has what only Python knows:
    `plain(name)`, `choose(queue_id, topic, text)`, `new_key()`, `topics.unsaved`, the names of topics that no file has
    yet, and `begin()`, which makes the draft ready, or not. `limits`: of a batch in messages."""

    cdef dict _fields  # by code, so many as are read ahead
    cdef Topics _topics
    cdef frozenset _batches
    cdef object _ask, _unsaved
    cdef Draft _draft
    cdef Texts _texts
    cdef tuple _sent, _batch_sent  # the answer as JSON, and binary
    cdef bytes _end_and_stamps, _host_digits, _new_key, _new_pair
    cdef int64_t _most_members
    cdef int _topic, _queue_id, _sys_flag, _born, _flag, _properties, _reconsume, _batch
    cdef Buffer _answers, _ids
    cdef list _used  # topics that got something in this run
    cdef readonly int64_t calls, answered, code  # the code is the first frame's
    cdef bint _began
    cdef Ahead _ahead[AHEAD]

    def __cinit__(self, dict fields not None, frozenset batches not None, ask, Draft draft not None, int64_t most_members):
        self._fields = {code: [Fields(header) for _ in range(AHEAD)] for code, header in fields.items()}
        self._batches, self._ask, self._draft, self._most_members = batches, ask, draft, most_members
        self._topics, self._used = Topics(), []
        for each in self._fields.values():
            self._find_fields(each[0])
        self._answers.at = self._ids.at = NULL
        self._answers.size = self._answers.room = self._ids.size = self._ids.room = 0

    def __dealloc__(self):
        let_go(&self._answers)
        let_go(&self._ids)

    def _find_fields(self, Fields fields):
        """They have the same places in all send headers."""
        place = fields.attributes.index
        self._topic, self._queue_id, self._properties = place("topic"), place("queue_id"), place("properties")
        self._sys_flag, self._flag, self._born = place("sys_flag"), place("flag"), place("born_timestamp")
        self._reconsume, self._batch = place("reconsume_times"), place("batch")

    def prepare(self, Texts texts not None, tuple sent not None, tuple batch_sent not None, str stamps not None, str host_digits not None):
        """What follows from settings: special words, the answers (JSON, binary), the broker's stamps, its address."""
        self._texts = texts
        self._sent, self._batch_sent = sent, batch_sent
        self._end_and_stamps, self._host_digits = b"\x02" + stamps.encode(), host_digits.encode()

    def forget(self, str name not None):
        """The settings of a topic changed; an empty name means all."""
        cdef int place
        self._topics.forget(name.encode())
        for place in range(AHEAD):
            self._ahead[place].topic = NULL

    # -- a run ---------------------------------------------------------------------------------------------

    def take(self, bytes data not None, Py_ssize_t at, bytes born_host not None, Py_ssize_t most):
        """Draft and answer the sends from `at` on; where the first frame is that is not understood."""
        cdef int count, place
        if not 0 <= at <= len(data):
            raise ValueError(f"no place {at} in {len(data)} bytes")
        self._used, self.calls, self.answered, self._began = [], 0, 0, False
        self._unsaved = self._ask.topics.unsaved
        self.code = code_at(<const uint8_t*>data + at, len(data) - at)
        self._answers.size = 0
        while True:
            count = self._read_ahead(<const uint8_t*>data + at, len(data) - at, most)
            for place in range(count):
                self._fetch(count + place, count)
                if not self._serve(&self._ahead[place], span_of(born_host)):
                    return at
                self.calls += 1
                at += (<Fields>self._ahead[place].fields).frame.size
            if count < AHEAD:
                return at

    cdef int _read_ahead(self, const uint8_t* start, Py_ssize_t size, Py_ssize_t most) except -1:
        """How many of the next frames can be understood, one after the other."""
        cdef Ahead* ahead
        cdef Fields fields
        cdef list several = None
        cdef int64_t code, before = NO_FRAME
        cdef bint is_batch = False
        cdef int count
        for count in range(AHEAD):
            code = code_at(start, size)
            if code != before:
                several, is_batch, before = self._fields.get(code), code in self._batches, code
            if several is None:
                return count
            fields = several[count]
            if not fields.read(start, size, most) or fields.frame.code != code or fields.frame.flag & ~ONE_WAY:
                return count
            ahead = &self._ahead[count]
            ahead.fields, ahead.is_batch = <PyObject*>fields, is_batch
            ahead.hash = self._topics.hash(fields.values[self._topic].text)
            ahead.topic, ahead.queue_id = NULL, fields.values[self._queue_id].number
            self._fetch(count, count + 1)
            start += fields.frame.size
            size -= fields.frame.size
        return AHEAD

    cdef void _fetch(self, int step, int count) noexcept:
        """What serving these frames is going to ask for comes out of memory while others are read and served: with very
        many queues a send would wait for that longer than for all else. Each step takes each frame one address further.
        Nothing is decided here, and nothing but a topic is remembered: what it points to may change in between."""
        cdef Ahead* ahead
        cdef PyObject* found
        cdef bytearray tail
        if step < count:
            soon_at(self._topics.first(self._ahead[step].hash))
        if 0 <= step - 1 < count:
            ahead = &self._ahead[step - 1]
            ahead.topic = found = self._topics.hinted(ahead.hash)
            if found != NULL:
                soon_at(found)
                soon_at(<uint8_t*>found + 64)
                soon_at(<uint8_t*>found + 128)
                soon_at(<uint8_t*>found + 192)
        if 0 <= step - 2 < count and self._ahead[step - 2].topic != NULL:
            soon_at(<PyObject*>(<Topic>self._ahead[step - 2].topic).meter)
            found = self._queue_of(&self._ahead[step - 2])
            if found != NULL:
                soon_at(found)
                soon_at(<uint8_t*>found + 64)
        if 0 <= step - 3 < count:
            found = self._queue_of(&self._ahead[step - 3])
            if found != NULL:
                soon_at(<PyObject*>(<QueueEnd>found).tail)
        if 0 <= step - 4 < count:
            found = self._queue_of(&self._ahead[step - 4])
            if found != NULL:
                tail = (<QueueEnd>found).tail
                soon_at(PyByteArray_AS_STRING(tail) + len(tail))
                soon_at(PyByteArray_AS_STRING(tail) + len(tail) + UNIT_SIZE)

    cdef PyObject* _queue_of(self, Ahead* ahead) noexcept:
        cdef PyObject* found = NULL
        if ahead.topic != NULL and 0 <= ahead.queue_id < (<Topic>ahead.topic).known:
            found = (<Topic>ahead.topic).ends[ahead.queue_id]
        return NULL if found == <PyObject*>None else found

    @property
    def answers(self):
        return self._answers.at[:self._answers.size]

    def count(self, meter_of, large_run):
        """Add what each topic got to its meter; how many requests, messages and bytes it was altogether. A meter is kept
        as long as the topic is."""
        cdef Topic topic
        cdef int64_t count = 0, size_bytes = 0
        for topic in self._used:
            if topic.meter is None:
                topic.meter = meter_of(topic.name)
            topic.meter.calls += topic.calls
            topic.meter.count += topic.count
            topic.meter.size_bytes += topic.size_bytes
            count += topic.count
            size_bytes += topic.size_bytes
            if topic.has_large:
                large_run(topic.name, topic.large())
        return self.calls, count, size_bytes

    cdef bint _serve(self, Ahead* ahead, Span born_host) except -1:
        cdef Fields fields = <Fields>ahead.fields
        cdef Message message
        cdef Topic topic = self._find_topic(ahead.hash, fields.values[self._topic].text)
        if topic is None or not fields.frame.body.size:
            return False
        if not self._began:
            if not self._ask.begin():
                return False
            self._began = True
        message.sys_flag = fields.values[self._sys_flag].number
        message.born_timestamp = fields.values[self._born].number
        message.reconsume_times = fields.values[self._reconsume].number
        message.born_host = born_host
        if ahead.is_batch or fields.values[self._batch].number:
            return self._take_batch(fields, topic, &message)
        return self._take_one(fields, topic, &message)

    cdef Topic _find_topic(self, uint64_t hash, Span name):
        cdef Topic topic = self._topics.find(hash, name)
        cdef bytes key
        if topic is None:
            key = name.at[:name.size]
            config = self._ask.plain(key.decode())
            if config is None or config.order:
                return None
            topic = Topic(key, config)
            self._topics.add(topic)
        if self._unsaved and topic.name in self._unsaved:
            return None
        return topic

    cdef QueueEnd _choose(self, Fields fields, Topic topic, Span text, Message* message):
        """None when the topic has no such queue, or too high a one, or its first message is still to come."""
        cdef int64_t queue_id = fields.values[self._queue_id].number
        if queue_id < 0:
            queue_id = self._ask.choose(queue_id, topic.config, text.at[:text.size].decode())
        elif queue_id >= topic.write_queues and queue_id >= topic.read_queues:
            return None
        message.queue_id = queue_id
        return self._draft.open(topic, queue_id) if queue_id < MOST_QUEUES else None

    cdef void _count(self, Topic topic, int64_t messages, int64_t size_bytes):
        if topic.run != self._draft.run:
            topic.start(self._draft.run)
            self._used.append(topic)
        topic.calls += 1
        topic.count += messages
        topic.size_bytes += size_bytes
        if size_bytes > messages * LARGE:
            topic.add_large(messages, size_bytes)

    # -- one message -----------------------------------------------------------------------------------------

    cdef bint _take_one(self, Fields fields, Topic topic, Message* message) except -1:
        cdef int64_t place
        cdef QueueEnd queue
        message.flag, message.body = fields.values[self._flag].number, fields.frame.body
        message.text = fields.values[self._properties].text
        if not self._texts.read(message.text, &message.named):
            return False
        queue = self._choose(fields, topic, message.text, message)
        if queue is None:
            return False
        self._stamp(message)
        place = self._draft.end()
        if not _is_alphanumeric(message.named.unique) or not self._draft.put(topic, queue, message):
            return False
        self._count(topic, 1, self._draft.end() - place)
        if not fields.frame.flag & ONE_WAY:
            self._ids.size = 0
            self._add_id(place)
            self._answer(self._sent[fields.frame.serialize], fields, message.queue_id, queue.next_offset - 1, message.named.unique)
        return True

    cdef int _stamp(self, Message* message) except -1:
        """The broker's properties after the producer's, and before them a unique key where there is none."""
        cdef bint is_closed = message.named.ends_well or not message.text.size
        message.before.at, message.before.size = message.text.at, 0
        if message.named.unique.at == NULL:
            self._new_key = self._ask.new_key().encode()
            self._new_pair = b"%b\x01%b\x02" % (self._texts.unique_name, self._new_key)
            message.named.unique, message.before = span_of(self._new_key), span_of(self._new_pair)
        message.after = span_of(self._end_and_stamps)
        if is_closed:
            message.after.at += 1
            message.after.size -= 1
        return 0

    # -- a batch -----------------------------------------------------------------------------------------------

    cdef bint _take_batch(self, Fields fields, Topic topic, Message* message) except -1:
        cdef Span nothing
        cdef QueueEnd queue
        cdef Mark mark
        cdef int64_t place, count
        nothing.at, nothing.size = fields.frame.body.at, 0
        if fields.frame.body.size > self._draft.longest_body:
            return False
        queue = self._choose(fields, topic, nothing, message)
        if queue is None:
            return False
        self._draft.mark(queue, &mark)
        place = self._draft.end()
        count = self._draft_members(fields.frame.body, topic, queue, message)
        if not count:
            self._draft.back_to(&mark, queue)
            return False
        self._count(topic, count, self._draft.end() - place)
        if not fields.frame.flag & ONE_WAY:
            self._answer(self._batch_sent[fields.frame.serialize], fields, message.queue_id, mark.next_offset, nothing)
        return True

    cdef int64_t _draft_members(self, Span body, Topic topic, QueueEnd queue, Message* message) except -1:
        """How many there are; 0 when one of them is not plain, or does not add up."""
        cdef const uint8_t* p = body.at
        cdef const uint8_t* end = body.at + body.size
        cdef int64_t count = 0, keys = 0, size, body_size
        message.before.at, message.before.size = p, 0
        self._ids.size = 0
        while p != end:
            if end - p < MEMBER_HEAD + 2 or count == self._most_members:
                return 0
            size, body_size = <int>get32(p), <int>get32(p + 16)
            if body_size <= 0 or size > end - p or size < MEMBER_HEAD + 2 + body_size:
                return 0
            message.flag = <int>get32(p + 12)
            message.body.at, message.body.size = p + MEMBER_HEAD, body_size
            message.text.at = p + MEMBER_HEAD + body_size + 2
            message.text.size = size - MEMBER_HEAD - body_size - 2
            if get16(message.text.at - 2) != message.text.size or not self._texts.read(message.text, &message.named):
                return 0
            if not message.named.is_ascii and not is_utf8(message.text.at, message.text.size):
                return 0
            message.after = span_of(self._end_and_stamps)
            message.after.size = self._draft.check_size and message.text.size and not message.named.ends_well
            keys += message.named.key_count
            self._add_id(self._draft.end())
            if keys > MOST_KEYS or not self._draft.put(topic, queue, message):
                return 0
            count += 1
            p += size
        return count

    # -- answers -------------------------------------------------------------------------------------------------

    cdef int _add_id(self, int64_t place) except -1:
        """One more id of a message: where it is stored, at which broker."""
        cdef Py_ssize_t host = len(self._host_digits)
        cdef uint8_t* p
        make_room(&self._ids, 1 + host + ID_DIGITS)
        p = self._ids.at + self._ids.size
        if self._ids.size:
            p[0] = c","
            p += 1
        p = put_bytes(p, self._host_digits, host)
        hexadecimal(p, place)
        self._ids.size = p + ID_DIGITS - self._ids.at
        return 0

    cdef int _answer(self, Template template, Fields fields, int64_t queue_id, int64_t queue_offset, Span unique) except -1:
        cdef uint8_t digits[40]
        cdef Span values[VALUES]
        values[MSG_ID].at, values[MSG_ID].size = self._ids.at, self._ids.size
        values[QUEUE_ID].at, values[QUEUE_ID].size = digits, decimal(digits, queue_id)
        values[QUEUE_OFFSET].at, values[QUEUE_OFFSET].size = digits + 20, decimal(digits + 20, queue_offset)
        values[UNIQUE_KEY] = unique
        self.answered += 1
        return template.write(&self._answers, fields.frame.opaque, values, 0)


cdef bint _is_alphanumeric(Span text) noexcept:
    """So that JSON writes it as it is."""
    cdef Py_ssize_t at
    cdef uint8_t letter
    for at in range(text.size):
        letter = text.at[at]
        if not (c"0" <= letter <= c"9" or c"A" <= letter <= c"Z" or c"a" <= letter <= c"z"):
            return False
    return text.size > 0
