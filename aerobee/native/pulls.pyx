# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3
"""Pulls that find messages at once, from the frame to the answer.

What of a request is the same from one pull of a reader to the next (who reads which queue, how much, through which
filter) Python judges once: `ask.plain` returns a `Reader`, or None for requests that need more than a look. Readers are
forgotten as soon as anything they rely on may have changed. Whatever then does not go on evenly (an offset that the
queue has not, nothing found, a record that is not a usual one) is left to `broker/operations/pull.py`, the reference,
and has changed nothing.

Who works off a backlog is known by asking for what comes next: units are read ahead for him, so that most of his pulls
need no word of Python's. What lies ahead holds as long as the reader is known, his queue serves from where it did, and
the log's file is mapped. A unit's word is never believed: each record is compared with it, as ever.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport int64_t, uint8_t

from aerobee.native.answers cimport Template
from aerobee.native.headers cimport Fields, code_at
from aerobee.native.memory cimport Buffer, Span, decimal, get64, let_go, make_room, put_bytes, span_of
from aerobee.native.reads cimport UNIT_SIZE, Chosen, Found, Limits, Log, choose, count_of, set_codes, store_time
from aerobee.native.repeats cimport Repeats
from aerobee.native.state cimport QueueEnd

cdef enum:  # values of an answer
    MIN_OFFSET, MAX_OFFSET, NEXT_OFFSET, VALUES

cdef enum:
    AHEAD = 512  # units
    MOST_AHEAD = 64  # readers

# Fields that say where a reader is, not who it is.
_MOVING = ("queue_offset", "commit_offset", "suspend_timeout_millis")
_IGNORED = ("request_source", "proxy_froward_client_id", "broker_name")


cdef class Reader:
    """Somebody who reads a queue. `request` is Python's; `limits` are messages and bytes of an answer, and the queue units
    looked at for one; `codes` the tags wanted, None = all."""

    cdef readonly object request
    cdef readonly bint is_plain
    cdef int64_t _queue_id, _units
    cdef Limits _limits
    # Where his last answer ended; what lies ahead of it: units, the first of which is of `_first`, the queue, and the
    # map and base of the log file they begin in.
    cdef int64_t _next, _first, _base, _low, _served_from
    cdef bytes _ahead
    cdef QueueEnd _queue
    cdef object _mapped
    cdef bint _is_ahead  # he is among those for whom something is kept

    def __cinit__(self, request, int64_t queue_id, tuple limits not None, codes):
        self.request, self._queue_id = request, queue_id
        self._limits.messages, self._limits.size_bytes, self._units = limits
        self.is_plain = set_codes(&self._limits, codes)
        self._next = -1

    cdef int64_t _wanted(self, int64_t offset) noexcept:
        """How many units to ask for: more for one who takes everything and goes on where he was."""
        return AHEAD if offset == self._next and self._limits.code_count < 0 and self._units < AHEAD else self._units

    cdef Span _held(self, int64_t offset, int64_t warm_from) except *:
        """All units that a look at `offset` needs, of what lies ahead and is in memory; none where that is not enough."""
        cdef Span units
        cdef int64_t skipped = (offset - self._first) * UNIT_SIZE
        units.at, units.size = NULL, 0
        if self._ahead is None or skipped < 0 or skipped + self._units * UNIT_SIZE > len(self._ahead):
            return units
        if self._queue.served_from != self._served_from:
            return units
        units.at, units.size = <const uint8_t*>self._ahead + skipped, len(self._ahead) - skipped
        if <int64_t>get64(units.at) < warm_from:
            units.size = 0
        return units

    cdef int _drop(self) except -1:
        self._ahead = self._mapped = self._queue = None
        return 0


cdef class Pulled:
    """One pull that was answered."""

    cdef readonly object request
    cdef readonly int64_t commit_offset, next_offset, count, size_bytes
    cdef readonly int64_t end  # where in the log the last message ends
    cdef readonly int64_t stored_at  # when that was stored


cdef class PullLane:
    """`headers`: of the requests it takes. `ask` has what only Python knows: `plain(header)`, and `stretch(request, offset, count)`:
    units of its queue, the map and the base of the log file they begin in, the first offset, and the queue; or None.
    `answers`: messages found, as JSON and binary."""

    cdef dict _kinds
    cdef object _ask
    cdef Template _json, _binary
    cdef int _offset, _commit
    cdef Buffer _answers
    cdef Found _found
    cdef list _with_ahead  # readers
    cdef int64_t _warm_from
    cdef readonly list pulls  # of this run

    def __cinit__(self, headers not None, ask, answers):
        self._kinds = {header.code: Repeats(header, _MOVING, _IGNORED, ask.plain) for header in headers}
        self._ask, self.pulls, self._with_ahead, self._warm_from = ask, [], [], 0
        self._json, self._binary = answers
        self._answers.at = self._found.chosen.at = NULL
        self._answers.size = self._found.chosen.size = 0
        self._answers.room = self._found.chosen.room = 0
        for kind in self._kinds.values():  # the fields have the same places in all of them
            self._offset, self._commit = kind.place("queue_offset"), kind.place("commit_offset")

    def __dealloc__(self):
        let_go(&self._answers)
        let_go(&self._found.chosen)

    def forget(self):
        """Something that readers rely on may be another now."""
        for kind in self._kinds.values():
            kind.forget()
        self._with_ahead.clear()

    def take(self, bytes data not None, Py_ssize_t at, Py_ssize_t most, Py_ssize_t most_answered, int64_t warm_from):
        """Answer the pulls from `at` on, with `most_answered` bytes or little more; where the first frame is that is left
        alone. `warm_from`: what lies before it in the log has probably left memory."""
        cdef const uint8_t* start = data
        cdef Py_ssize_t size = len(data)
        cdef Repeats kind
        if not 0 <= at <= size:
            raise ValueError(f"no place {at} in {size} bytes")
        self.pulls, self._answers.size, self._warm_from = [], 0, warm_from
        while self._answers.size < most_answered:
            kind = self._kinds.get(code_at(start + at, size - at))
            if kind is None or not kind.read(start + at, size - at, most) or not self._serve(kind):
                break
            at += kind.fields.frame.size
        return at

    @property
    def answers(self):
        return self._answers.at[:self._answers.size]

    cdef bint _serve(self, Repeats kind) except -1:
        cdef Reader reader = kind.judged()
        cdef int64_t offset = kind.fields.values[self._offset].number
        cdef Span units
        if reader is None or not reader.is_plain:
            return False
        units = reader._held(offset, self._warm_from)
        if units.size and self._serve_from(reader, units, kind.fields, offset):
            return True
        return self._look(reader, kind.fields, offset)

    cdef bint _look(self, Reader reader, Fields fields, int64_t offset) except -1:
        """Python is asked for units; those beyond this answer lie ahead from now on."""
        cdef int64_t wanted = reader._wanted(offset)
        cdef bint is_served
        reader._drop()
        stretch = self._ask.stretch(reader.request, offset, wanted)
        if stretch is None:
            return False
        reader._ahead, reader._mapped, reader._base, reader._low, reader._queue = stretch
        reader._first, reader._served_from = offset, reader._queue.served_from
        is_served = self._serve_from(reader, span_of(reader._ahead), fields, offset)
        if not is_served or wanted == reader._units:
            reader._drop()
        elif not reader._is_ahead:
            reader._is_ahead = True
            self._with_ahead.append(reader)
            if len(self._with_ahead) > MOST_AHEAD:
                reader = self._with_ahead.pop(0)
                reader._is_ahead = False
                reader._drop()
        return is_served

    cdef bint _serve_from(self, Reader reader, Span units, Fields fields, int64_t offset) except -1:
        """Whether these units lead to messages and to nothing that Python must look at."""
        cdef Log log
        cdef Py_buffer view
        try:
            PyObject_GetBuffer(reader._mapped, &view, PyBUF_SIMPLE)
        except ValueError:  # the file was closed meanwhile
            return False
        try:
            log.at, log.size, log.base = <const uint8_t*>view.buf, view.len, reader._base
            choose(units, &log, reader._queue_id, offset, &reader._limits, &self._found)
            if not self._found.is_all or not self._found.chosen.size:
                return False
            self._answer(fields, reader._low, reader._queue.max_offset, offset + self._found.taken)
            self._note(reader, fields, offset + self._found.taken)
        finally:
            PyBuffer_Release(&view)
        return True

    cdef int _answer(self, Fields fields, int64_t low, int64_t high, int64_t next_offset) except -1:
        cdef uint8_t digits[60]
        cdef Span values[VALUES]
        cdef Chosen* one = <Chosen*>self._found.chosen.at
        cdef Py_ssize_t number
        cdef uint8_t* p
        cdef Template template = self._binary if fields.frame.serialize else self._json
        values[MIN_OFFSET].at, values[MIN_OFFSET].size = digits, decimal(digits, low)
        values[MAX_OFFSET].at, values[MAX_OFFSET].size = digits + 20, decimal(digits + 20, high)
        values[NEXT_OFFSET].at, values[NEXT_OFFSET].size = digits + 40, decimal(digits + 40, next_offset)
        template.write(&self._answers, fields.frame.opaque, values, self._found.size_bytes)
        make_room(&self._answers, self._found.size_bytes)
        p = self._answers.at + self._answers.size
        for number in range(count_of(&self._found)):
            p = put_bytes(p, one[number].at, one[number].size)
        self._answers.size += self._found.size_bytes
        return 0

    cdef int _note(self, Reader reader, Fields fields, int64_t next_offset) except -1:
        cdef Pulled pulled = Pulled.__new__(Pulled)
        cdef Py_ssize_t count = count_of(&self._found)
        pulled.request, pulled.commit_offset = reader.request, fields.values[self._commit].number
        pulled.next_offset, pulled.count, pulled.size_bytes = next_offset, count, self._found.size_bytes
        reader._next = next_offset
        pulled.end = self._found.end
        pulled.stored_at = store_time((<Chosen*>self._found.chosen.at)[count - 1].at)
        self.pulls.append(pulled)
        return 0
