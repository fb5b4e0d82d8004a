# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3
"""An answer's records as the messages a consumer sees, for as long as they are plain ones.

`client/consume/decoding.py` is the reference and goes on where this stops: at a compressed body, an IPv6 host, a long
topic, a batch in one record, at damage. Nothing is read outside the bytes given: a record's word is not believed.
"""

from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memcmp

from aerobee.native.memory cimport get16, get32, get64

cdef enum:
    MAGIC_V1 = -626843481
    FIXED = 88  # up to the body, hosts of four bytes
    HOST = 8


def take(bytes data not None, Py_ssize_t at, make, origin, int32_t special, list found not None):
    """Append messages to `found`, made by `make`, from the record at `at` on; returns where the first record begins that
    is not plain. `special` are the system flags that make it so."""
    cdef const uint8_t* start = data
    cdef const uint8_t* p = start + at
    cdef const uint8_t* end = start + len(data)
    cdef const uint8_t* body_end
    cdef const uint8_t* text
    cdef const uint8_t* last_topic = NULL
    cdef int32_t size, body_size, sys_flag
    cdef Py_ssize_t topic_size = -1, text_size
    cdef object topic = None, properties
    cdef bytes born_host = b"", store_host = b""
    while end - p > FIXED:
        size, sys_flag, body_size = <int32_t>get32(p), <int32_t>get32(p + 36), <int32_t>get32(p + 84)
        if <int32_t>get32(p + 4) != MAGIC_V1 or sys_flag & special or size < FIXED + 3 or size > end - p:
            break
        if body_size < 0 or body_size > size - FIXED - 3:
            break
        body_end = p + FIXED + body_size
        text = body_end + 1 + body_end[0]
        if text + 2 > p + size:
            break
        text_size = get16(text)
        if text_size > p + size - text - 2:
            break
        if topic_size != body_end[0] or memcmp(last_topic, body_end + 1, topic_size) != 0:
            try:
                topic = PyUnicode_DecodeUTF8(<const char*>body_end + 1, body_end[0], NULL)
            except UnicodeDecodeError:
                break
            last_topic, topic_size = body_end + 1, body_end[0]
        try:
            properties = PyUnicode_DecodeUTF8(<const char*>text + 2, text_size, NULL)
        except UnicodeDecodeError:
            break
        born_host = _host(born_host, p + 48)
        store_host = _host(store_host, p + 64)
        found.append(
            make(
                topic,
                PyBytes_FromStringAndSize(<const char*>p + FIXED, body_size),
                properties,
                <int32_t>get32(p + 12),  # queue
                <int64_t>get64(p + 20),  # its offset
                <int64_t>get64(p + 28),  # physical offset
                <int32_t>get32(p + 16),  # flag
                sys_flag,
                <int64_t>get64(p + 40),  # born
                born_host,
                <int64_t>get64(p + 56),  # stored
                store_host,
                <int32_t>get32(p + 72),  # times consumed again
                <int64_t>get64(p + 76),  # prepared at
                <int32_t>get32(p + 8),  # body's CRC
                size,
                origin,
            )
        )
        p += size
    return p - start


cdef inline bytes _host(bytes before, const uint8_t* at):
    """Nearly always that of the record before: the object is shared then."""
    if len(before) == HOST and memcmp(<const uint8_t*>before, at, HOST) == 0:
        return before
    return PyBytes_FromStringAndSize(<const char*>at, HOST)
