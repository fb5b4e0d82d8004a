# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3
"""A client's single sends: their frames, as `protocol/fast_frames.py` writes them, and the answers to those that wait for
nothing else.

Python renders a frame once, with values that stand nowhere else; what lies between them is copied. Whatever is not plain
(a text that JSON escapes, a refusal, an answer in several reads) is left to Python.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int64_t, uint8_t

from aerobee.native.answers cimport Template
from aerobee.native.headers cimport Fields
from aerobee.native.memory cimport Buffer, Span, decimal, let_go, make_room, put_bytes

cdef extern from "Python.h":
    const char* PyUnicode_AsUTF8AndSize(object text, Py_ssize_t* size) except NULL

cdef enum:
    QUEUE_ID, BORN, SYS_FLAG, FLAG, TEXT, VALUES
    DIGITS = 20
    RESPONSE = 1


cdef class SendFrames:
    """`reference` renders any frame; `rendered` is one of it, with these values for queue, birth, system flag, flag and
    properties, and this opaque."""

    cdef object _reference
    cdef Template _template
    cdef Buffer _text, _head

    def __cinit__(self, reference not None, bytes rendered not None, tuple values not None, bytes opaque not None):
        self._reference, self._template = reference, Template(rendered, list(values), opaque)
        self._text.at = self._head.at = NULL
        self._text.size = self._text.room = self._head.size = self._head.room = 0

    def __dealloc__(self):
        let_go(&self._text)
        let_go(&self._head)

    def frame(self, opaque, queue_id, sending):
        frame = None
        if not sending.command_flag and not sending.reconsume_times and sending.max_reconsume is None:
            try:
                frame = self._plain(opaque, queue_id, sending)
            except (OverflowError, UnicodeEncodeError):  # Python says what is wrong, if anything
                pass
        return self._reference(opaque, queue_id, sending) if frame is None else frame

    cdef bytes _plain(self, int64_t opaque, int64_t queue_id, sending):
        """None for a text that is not."""
        cdef uint8_t digits[4 * DIGITS]
        cdef Span values[VALUES]
        cdef Span text
        cdef bytes body, whole
        cdef int64_t numbers[4]
        cdef int place
        properties = sending.properties_text
        text.at = <const uint8_t*>PyUnicode_AsUTF8AndSize(properties, &text.size)
        if not self._quote(text):
            return None
        numbers[QUEUE_ID], numbers[BORN], numbers[SYS_FLAG], numbers[FLAG] = (
            queue_id, sending.born, sending.sys_flag, sending.flag
        )
        for place in range(4):
            values[place].at = digits + DIGITS * place
            values[place].size = decimal(digits + DIGITS * place, numbers[place])
        values[TEXT].at, values[TEXT].size = self._text.at, self._text.size
        body = sending.body
        self._head.size = 0
        self._template.write(&self._head, opaque, values, len(body))
        whole = PyBytes_FromStringAndSize(NULL, self._head.size + len(body))
        put_bytes(put_bytes(<uint8_t*>PyBytes_AS_STRING(whole), self._head.at, self._head.size), body, len(body))
        return whole

    cdef bint _quote(self, Span text) except -1:
        """The text between the quotes of JSON; False for what is escaped in other ways than the two separators are."""
        cdef const uint8_t* p = text.at
        cdef const uint8_t* end = text.at + text.size
        cdef uint8_t* out
        self._text.size = 0
        make_room(&self._text, 6 * text.size)
        out = self._text.at
        while p != end:
            if p[0] == 1 or p[0] == 2:
                out[0], out[1], out[2], out[3], out[4], out[5] = c"\\", c"u", c"0", c"0", c"0", c"0" + p[0]
                out += 6
            elif p[0] < 0x20 or p[0] >= 0x7F or p[0] == c'"' or p[0] == c"\\":
                return False
            else:
                out[0] = p[0]
                out += 1
            p += 1
        self._text.size = out - self._text.at
        return True


@cython.final
cdef class LoneCall:
    """Who waits for the answer to one send: its future, told the result as soon as it is read."""

    cdef object _future, _message_id, _queue
    cdef int64_t _queue_id

    def done(self):
        return self._future.done()

    def set_result(self, answer):
        self._future.set_result(answer)

    def set_exception(self, error):
        self._future.set_exception(error)

    def exception(self):
        return self._future.exception()


cdef class SentAnswers:
    """`header` is that of the answer, `result` makes what a sender gets of it, `ok` is the status of success."""

    cdef Fields _fields
    cdef object _result, _ok
    cdef int _place, _queue_id, _queue_offset, _transaction, _recall

    def __cinit__(self, header, result, ok):
        self._fields, self._result, self._ok = Fields(header), result, ok
        find = self._fields.attributes.index
        self._place, self._queue_id, self._queue_offset = find("msg_id"), find("queue_id"), find("queue_offset")
        self._transaction, self._recall = find("transaction_id"), find("recall_handle")

    def call(self, future, message_id, queue):
        cdef LoneCall call = LoneCall.__new__(LoneCall)
        call._future, call._message_id, call._queue, call._queue_id = future, message_id, queue, queue.queue_id
        return call

    def take(self, bytes data not None, dict waiting not None):
        """Whether `data` was the answer of success to the one call that waits, a lone one, which is told."""
        cdef Fields fields = self._fields
        cdef LoneCall call
        found = None
        if len(waiting) == 1:
            for found in waiting.values():
                break
        if type(found) is not LoneCall:
            return False
        call = <LoneCall>found
        if (
            not fields.read(data, len(data), len(data)) or fields.frame.size != len(data) or fields.frame.code
            or fields.frame.flag != RESPONSE or fields.frame.body.size
        ):
            return False
        opaque = fields.frame.opaque
        if opaque not in waiting or fields.values[self._queue_id].number != call._queue_id or call._future.done():
            return False
        waiting.clear()
        call._future.set_result(
            self._result(
                self._ok, call._message_id, self._text(self._place), call._queue,
                fields.values[self._queue_offset].number, self._text(self._transaction), self._text(self._recall),
            )
        )
        return True

    cdef object _text(self, int field):
        cdef Span text = self._fields.values[field].text
        return text.at[:text.size].decode() if self._fields.values[field].is_there else None
