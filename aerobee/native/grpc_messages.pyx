# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3
"""A ReceiveMessageResponse with one message, as protobuf writes it: `fronts/grpc/convert.py` says what stands in it."""

from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int64_t, uint8_t, uint64_t

from aerobee.native.memory cimport Buffer, append, let_go, make_room

cdef extern from "Python.h":
    const char* PyUnicode_AsUTF8AndSize(object text, Py_ssize_t* size) except NULL

cdef enum:
    BYTES = 2  # the wire's kind of fields with a length
    LONGEST_NUMBER = 10


cdef class Messages:
    """What is written goes from the inside out: a part has its length before it, so it is made first."""

    cdef Buffer _system, _message, _answer, _part

    def __cinit__(self):
        _empty(&self._system)
        _empty(&self._message)
        _empty(&self._answer)
        _empty(&self._part)

    def __dealloc__(self):
        let_go(&self._system)
        let_go(&self._message)
        let_go(&self._answer)
        let_go(&self._part)

    def delivered(self, str topic not None, bytes body not None, tuple texts not None, list keys not None, tuple numbers not None):
        """`texts`: tag, id, sum of the body, hosts of birth and storage, receipt. `numbers`: kind of sum, encoding, type,
        times of birth and storage in milliseconds, queue, its offset, attempt."""
        cdef Buffer* system = &self._system
        cdef int64_t digest, encoding, kind, born, stored, queue_id, offset, attempt
        tag, message_id, checksum, born_host, store_host, receipt = texts
        digest, encoding, kind, born, stored, queue_id, offset, attempt = numbers
        if born < 0 or stored < 0 or queue_id < 0 or offset < 0 or attempt < 0:
            raise ValueError(f"numbers {numbers}: none is negative")
        system.size = 0
        if tag:
            _put_text(system, 1, tag)
        for key in keys:
            _put_text(system, 2, key)
        _put_text(system, 3, message_id)
        self._part.size = 0
        _put_number(&self._part, 1, digest)
        _put_text(&self._part, 2, checksum)
        _put_part(system, 4, &self._part)
        _put_number(system, 5, encoding)
        _put_number(system, 6, kind)
        self._put_time(system, 7, born)
        _put_text(system, 8, born_host)
        self._put_time(system, 9, stored)
        _put_text(system, 10, store_host)
        _put_text(system, 12, receipt)
        if queue_id:
            _put_number(system, 13, queue_id)
        _put_number(system, 14, offset)
        _put_number(system, 16, attempt)
        return self._whole(topic, body)

    cdef bytes _whole(self, str topic, bytes body):
        self._part.size = self._message.size = self._answer.size = 0
        _put_text(&self._part, 2, topic)
        _put_part(&self._message, 1, &self._part)
        _put_part(&self._message, 3, &self._system)
        if body:
            _put_bytes(&self._message, 4, <const uint8_t*>body, len(body))
        _put_part(&self._answer, 2, &self._message)
        return PyBytes_FromStringAndSize(<const char*>self._answer.at, self._answer.size)

    cdef int _put_time(self, Buffer* into, int field, int64_t ms) except -1:
        self._part.size = 0
        if ms >= 1000:
            _put_number(&self._part, 1, ms // 1000)
        if ms % 1000:
            _put_number(&self._part, 2, ms % 1000 * 1_000_000)
        return _put_part(into, field, &self._part)


cdef void _empty(Buffer* buffer) noexcept:
    buffer.at, buffer.size, buffer.room = NULL, 0, 0


cdef int _put_varint(Buffer* into, uint64_t value) except -1:
    make_room(into, LONGEST_NUMBER)
    while value > 0x7F:
        into.at[into.size] = <uint8_t>(value & 0x7F | 0x80)
        into.size += 1
        value >>= 7
    into.at[into.size] = <uint8_t>value
    into.size += 1
    return 0


cdef int _put_number(Buffer* into, int field, int64_t value) except -1:
    _put_varint(into, field << 3)
    return _put_varint(into, <uint64_t>value)


cdef int _put_bytes(Buffer* into, int field, const uint8_t* data, Py_ssize_t size) except -1:
    _put_varint(into, field << 3 | BYTES)
    _put_varint(into, <uint64_t>size)
    return append(into, data, size)


cdef int _put_part(Buffer* into, int field, Buffer* part) except -1:
    return _put_bytes(into, field, part.at, part.size)


cdef int _put_text(Buffer* into, int field, str text) except -1:
    cdef Py_ssize_t size
    cdef const char* words = PyUnicode_AsUTF8AndSize(text, &size)
    return _put_bytes(into, field, <const uint8_t*>words, size)
