# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3
"""The two busiest requests of the gRPC port, read and answered: a send of one plain message, an ack of one.

What is read here protobuf would read too, and every check of `fronts/grpc/limits.py` would let it through; of anything else
nothing is said, and Python looks at it. Plain: each field once, texts of printable ASCII without spaces, no user
properties, nothing that changes the message's way.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.unicode cimport PyUnicode_DecodeASCII
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from aerobee.native.memory cimport Span

cdef extern from "Python.h":
    const char* PyUnicode_AsUTF8AndSize(object text, Py_ssize_t* size) except NULL

cdef enum:
    NUMBER = 0  # the wire's kinds of field
    BYTES = 2
    NORMAL = 1  # values of the API
    IDENTITY = 1
    MOST_KEYS = 32
    LONGEST_NAME = 255  # of a topic, a group, an id, a tag, all keys
    LONGEST_TEXT = 1024
    NANOS = 1_000_000_000
    PIPE = 0x7C

cdef int64_t LAST_SECOND = 253_402_300_799  # of the year 9999: protobuf knows no later one


cdef struct Field:
    uint32_t number
    uint32_t kind
    uint64_t value  # of a number
    Span span  # of bytes


cdef bint _varint(Span* rest, uint64_t* value) noexcept:
    cdef int shift
    value[0] = 0
    for shift in range(0, 63, 7):  # what takes a tenth byte is negative, or none of ours
        if rest.size == 0:
            return False
        value[0] |= <uint64_t>(rest.at[0] & 0x7F) << shift
        rest.at += 1
        rest.size -= 1
        if rest.at[-1] < 0x80:
            return True
    return False


cdef bint _next(Span* rest, Field* field) noexcept:
    """The next field, if it is a number or bytes and whole."""
    cdef uint64_t tag
    if not _varint(rest, &tag) or tag >> 3 > 1000:
        return False
    field.number, field.kind = <uint32_t>(tag >> 3), <uint32_t>(tag & 7)
    if not _varint(rest, &field.value):
        return False
    if field.kind == NUMBER:
        return True
    if field.kind != BYTES or field.value > <uint64_t>rest.size:
        return False
    field.span.at, field.span.size = rest.at, <Py_ssize_t>field.value
    rest.at += field.span.size
    rest.size -= field.span.size
    return True


cdef bint _is_once(uint64_t* seen, uint32_t number) noexcept:
    if number >= 64 or seen[0] >> number & 1:
        return False
    seen[0] |= <uint64_t>1 << number
    return True


cdef bint _is_word(Span text, Py_ssize_t longest) noexcept:
    """Printable ASCII without spaces, some of it and not too much."""
    cdef Py_ssize_t at
    if not 0 < text.size <= longest:
        return False
    for at in range(text.size):
        if not 0x21 <= text.at[at] <= 0x7E:
            return False
    return True


cdef bint _name(Span resource, Span* name) noexcept:
    """Of a resource without namespace."""
    cdef Field field
    return (
        _next(&resource, &field) and field.number == 2 and field.kind == BYTES and resource.size == 0
        and _is_word(field.span, LONGEST_NAME) and _taken(field.span, name)
    )


cdef bint _taken(Span value, Span* into) noexcept:
    into[0] = value
    return True


cdef bint _moment(Span text, int64_t* ms) noexcept:
    cdef Field field
    cdef uint64_t seen = 0, seconds = 0, nanos = 0
    while text.size:
        if not _next(&text, &field) or field.kind != NUMBER or not _is_once(&seen, field.number):
            return False
        if field.number == 1:
            seconds = field.value
        elif field.number == 2:
            nanos = field.value
        else:
            return False
    if seconds > <uint64_t>LAST_SECOND or nanos >= NANOS:
        return False
    ms[0] = <int64_t>(seconds * 1000 + nanos // 1_000_000)
    return True


cdef bint _digest(Span text) noexcept:
    cdef Field field
    cdef uint64_t seen = 0
    while text.size:
        if not _next(&text, &field) or not _is_once(&seen, field.number):
            return False
        if field.number == 1 and field.kind == NUMBER and field.value < 16:
            continue
        if field.number != 2 or field.kind != BYTES or not _is_word(field.span, LONGEST_TEXT):
            return False
    return True


# -- sends ---------------------------------------------------------------------------------------------------


cdef struct System:
    Span message_id
    Span tag
    Span[MOST_KEYS] keys
    Py_ssize_t key_count
    int64_t born_ms  # -1 when it is not said


cdef bint _system(Span text, System* system) noexcept:
    cdef Field field
    cdef uint64_t seen = 0
    system.message_id.size = system.tag.size = system.key_count = 0
    system.born_ms = -1
    while text.size:
        if not _next(&text, &field):
            return False
        if field.number == 2:
            if field.kind != BYTES or system.key_count == MOST_KEYS or not _is_word(field.span, LONGEST_NAME):
                return False
            system.keys[system.key_count] = field.span
            system.key_count += 1
        elif not _is_once(&seen, field.number) or not _system_field(&field, system):
            return False
    return system.message_id.size > 0


cdef bint _system_field(Field* field, System* system) noexcept:
    """False for what is not known to change nothing."""
    if field.kind == NUMBER:
        if field.number == 5:
            return field.value <= IDENTITY
        if field.number == 6:
            return field.value <= NORMAL
        return field.number == 13 and field.value < 0x80000000U  # the queue, which the broker chooses
    if field.number == 1:
        return _is_word(field.span, LONGEST_NAME) and not _has_pipe(field.span) and _taken(field.span, &system.tag)
    if field.number == 3:
        return _is_word(field.span, LONGEST_NAME) and _taken(field.span, &system.message_id)
    if field.number == 4:
        return _digest(field.span)
    if field.number == 7:
        return _moment(field.span, &system.born_ms)
    return field.number == 8 and _is_word(field.span, LONGEST_TEXT)  # the host, for which its address is taken


cdef bint _has_pipe(Span text) noexcept:
    cdef Py_ssize_t at
    for at in range(text.size):
        if text.at[at] == PIPE:
            return True
    return False


def sending(bytes data not None):
    """Topic, body, id, tag, keys and time of birth (-1: not said) of a SendMessageRequest of one plain message."""
    cdef Span message, topic, body
    cdef Field field
    cdef System system
    cdef uint64_t seen = 0
    cdef Span rest
    cdef Py_ssize_t key
    rest.at, rest.size = <const uint8_t*>data, len(data)
    if not _next(&rest, &field) or field.number != 1 or field.kind != BYTES or rest.size:
        return None
    message = field.span
    topic.size = body.size = system.message_id.size = 0
    while message.size:
        if not _next(&message, &field) or field.kind != BYTES or not _is_once(&seen, field.number):
            return None
        if field.number == 1:
            if not _name(field.span, &topic):
                return None
        elif field.number == 3:
            if not _system(field.span, &system):
                return None
        elif field.number == 4:
            body = field.span
        else:
            return None
    if not topic.size or not body.size or not system.message_id.size:
        return None
    keys = "" if not system.key_count else " ".join([_text(system.keys[key]) for key in range(system.key_count)])
    return (
        _text(topic), PyBytes_FromStringAndSize(<const char*>body.at, body.size), _text(system.message_id),
        _text(system.tag), keys, system.born_ms,
    )


cdef str _text(Span text):
    return PyUnicode_DecodeASCII(<const char*>text.at, text.size, NULL) if text.size else ""


def sent(bytes ok not None, str message_id not None, int64_t offset):
    """The SendMessageResponse of one message that is stored; `ok` is the status as bytes, the id as `sending` gave it."""
    cdef Py_ssize_t id_size
    cdef const char* words = PyUnicode_AsUTF8AndSize(message_id, &id_size)
    cdef uint8_t[10] number
    cdef Py_ssize_t digits = 0
    cdef uint64_t rest = <uint64_t>offset
    if id_size > LONGEST_NAME or len(ok) > 127:
        raise ValueError(f"an id of {id_size} bytes, a status of {len(ok)}")
    while offset:
        number[digits] = <uint8_t>(rest & 0x7F | (0x80 if rest > 0x7F else 0))
        digits += 1
        rest >>= 7
        if not rest:
            break
    cdef Py_ssize_t entry = 2 + len(ok) + _length_size(id_size) + 1 + id_size + (1 + digits if digits else 0)
    cdef Py_ssize_t whole = 2 + len(ok) + 1 + _length_size(entry) + entry
    cdef bytes answer = PyBytes_FromStringAndSize(NULL, whole)
    cdef uint8_t* p = <uint8_t*>PyBytes_AS_STRING(answer)
    p = _put(p, 0x0A, <const uint8_t*>ok, len(ok))
    p[0] = 0x12
    p = _put_length(p + 1, entry)
    p = _put(p, 0x0A, <const uint8_t*>ok, len(ok))
    p = _put(p, 0x12, <const uint8_t*>words, id_size)
    if digits:
        p[0] = 0x20
        memcpy(p + 1, number, digits)
    return answer


cdef Py_ssize_t _length_size(Py_ssize_t size) noexcept:
    return 1 if size < 0x80 else 2


cdef uint8_t* _put_length(uint8_t* p, Py_ssize_t size) noexcept:
    """Of what is shorter than 16 KiB."""
    if size < 0x80:
        p[0] = <uint8_t>size
        return p + 1
    p[0], p[1] = <uint8_t>(size & 0x7F | 0x80), <uint8_t>(size >> 7)
    return p + 2


cdef uint8_t* _put(uint8_t* p, uint8_t tag, const uint8_t* data, Py_ssize_t size) noexcept:
    p[0] = tag
    p = _put_length(p + 1, size)
    memcpy(p, data, size)
    return p + size


# -- acks ----------------------------------------------------------------------------------------------------


def acking(bytes data not None):
    """Group, topic, id and receipt of an AckMessageRequest of one plain entry."""
    cdef Span rest, group, topic, entry, message_id, receipt
    cdef Field field
    cdef uint64_t seen = 0
    rest.at, rest.size = <const uint8_t*>data, len(data)
    group.size = topic.size = entry.size = message_id.size = receipt.size = 0
    while rest.size:
        if not _next(&rest, &field) or field.kind != BYTES or not _is_once(&seen, field.number):
            return None
        if field.number == 1:
            if not _name(field.span, &group):
                return None
        elif field.number == 2:
            if not _name(field.span, &topic):
                return None
        elif field.number == 3:
            entry = field.span
        else:
            return None
    seen = 0
    while entry.size:
        if not _next(&entry, &field) or field.kind != BYTES or not _is_once(&seen, field.number):
            return None
        if field.number == 1 and _is_word(field.span, LONGEST_NAME):
            message_id = field.span
        elif field.number == 2 and _is_receipt(field.span):
            receipt = field.span
        else:
            return None
    if not group.size or not topic.size or not message_id.size or not receipt.size:
        return None
    return _text(group), _text(topic), _text(message_id), _text(receipt)


cdef bint _is_receipt(Span text) noexcept:
    """Printable ASCII, with spaces."""
    cdef Py_ssize_t at
    if not 0 < text.size <= LONGEST_TEXT:
        return False
    for at in range(text.size):
        if not 0x20 <= text.at[at] <= 0x7E:
            return False
    return True


def acked(bytes ok not None, str message_id not None, str receipt not None):
    """The AckMessageResponse of one entry that is acknowledged; `ok` is the status as bytes, the texts as `acking` gave
    them."""
    cdef Py_ssize_t id_size, receipt_size
    cdef const char* words = PyUnicode_AsUTF8AndSize(message_id, &id_size)
    cdef const char* handle = PyUnicode_AsUTF8AndSize(receipt, &receipt_size)
    if id_size > LONGEST_NAME or receipt_size > LONGEST_TEXT or len(ok) > 127:
        raise ValueError(f"an id of {id_size} bytes, a receipt of {receipt_size}, a status of {len(ok)}")
    cdef Py_ssize_t entry = (
        1 + _length_size(id_size) + id_size + 1 + _length_size(receipt_size) + receipt_size + 2 + len(ok)
    )
    cdef Py_ssize_t whole = 2 + len(ok) + 1 + _length_size(entry) + entry
    cdef bytes answer = PyBytes_FromStringAndSize(NULL, whole)
    cdef uint8_t* p = <uint8_t*>PyBytes_AS_STRING(answer)
    p = _put(p, 0x0A, <const uint8_t*>ok, len(ok))
    p[0] = 0x12
    p = _put_length(p + 1, entry)
    p = _put(p, 0x0A, <const uint8_t*>words, id_size)
    p = _put(p, 0x12, <const uint8_t*>handle, receipt_size)
    _put(p, 0x1A, <const uint8_t*>ok, len(ok))
    return answer
