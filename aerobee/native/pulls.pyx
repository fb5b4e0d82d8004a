# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3
"""Pulls that find messages at once, from the frame to the answer.

What of a request is the same from one pull of a reader to the next (who reads which queue, how much, through which
filter) Python judges once: `ask.plain` returns a `Reader`, or None for requests that need more than a look. Readers are
forgotten as soon as anything they rely on may have changed. Whatever then does not go on evenly (an offset that the
queue has not, nothing found, a record that is not a usual one) is left to `broker/operations/pull.py`, the reference,
and has changed nothing.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport int64_t, uint8_t

from aerobee.native.answers cimport Template
from aerobee.native.headers cimport Fields, code_at
from aerobee.native.memory cimport Buffer, Span, decimal, let_go, make_room, put_bytes
from aerobee.native.reads cimport Chosen, Found, Limits, Log, choose, count_of, set_codes, store_time
from aerobee.native.repeats cimport Repeats

cdef enum:  # values of an answer
    MIN_OFFSET, MAX_OFFSET, NEXT_OFFSET, VALUES

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

    def __cinit__(self, request, int64_t queue_id, tuple limits not None, codes):
        self.request, self._queue_id = request, queue_id
        self._limits.messages, self._limits.size_bytes, self._units = limits
        self.is_plain = set_codes(&self._limits, codes)


cdef class Pulled:
    """One pull that was answered."""

    cdef readonly object request
    cdef readonly int64_t commit_offset, next_offset, count, size_bytes
    cdef readonly int64_t end  # where in the log the last message ends
    cdef readonly int64_t stored_at  # when that was stored


cdef class PullLane:
    """`headers`: of the requests it takes. `ask` has what only Python knows: `plain(header)`, and `stretch(request, offset, count)`:
    units of its queue, the map and the base of the log file they begin in, the first and the last offset; or None.
    `answers`: messages found, as JSON and binary."""

    cdef dict _kinds
    cdef object _ask
    cdef Template _json, _binary
    cdef int _offset, _commit
    cdef Buffer _answers
    cdef Found _found
    cdef readonly list pulls  # of this run

    def __cinit__(self, headers not None, ask, answers):
        self._kinds = {header.code: Repeats(header, _MOVING, _IGNORED, ask.plain) for header in headers}
        self._ask, self.pulls = ask, []
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

    def take(self, bytes data not None, Py_ssize_t at, Py_ssize_t most, Py_ssize_t most_answered):
        """Answer the pulls from `at` on, with `most_answered` bytes or little more; where the first frame is that is left
        alone."""
        cdef const uint8_t* start = data
        cdef Py_ssize_t size = len(data)
        cdef Repeats kind
        if not 0 <= at <= size:
            raise ValueError(f"no place {at} in {size} bytes")
        self.pulls, self._answers.size = [], 0
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
        cdef Fields fields = kind.fields
        cdef int64_t offset = fields.values[self._offset].number
        cdef Py_buffer view
        cdef Log log
        if reader is None or not reader.is_plain:
            return False
        stretch = self._ask.stretch(reader.request, offset, reader._units)
        if stretch is None:
            return False
        units, mapped, log.base, low, high = stretch
        PyObject_GetBuffer(mapped, &view, PyBUF_SIMPLE)
        try:
            log.at, log.size = <const uint8_t*>view.buf, view.len
            choose(units, &log, reader._queue_id, offset, &reader._limits, &self._found)
            if not self._found.is_all or not self._found.chosen.size:
                return False
            self._answer(fields, low, high, offset + self._found.taken)
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
        pulled.end = self._found.end
        pulled.stored_at = store_time((<Chosen*>self._found.chosen.at)[count - 1].at)
        self.pulls.append(pulled)
        return 0
