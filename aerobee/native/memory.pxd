# SPDX-License-Identifier: Apache-2.0
"""Bytes: big-endian numbers, text with a length, and a buffer that grows."""

from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy

cdef extern from "big_endian.h" nogil:
    uint16_t get16(const uint8_t* p)
    uint32_t get32(const uint8_t* p)
    uint64_t get64(const uint8_t* p)
    uint8_t* put16(uint8_t* p, uint32_t value)
    uint8_t* put32(uint8_t* p, uint32_t value)
    uint8_t* put64(uint8_t* p, uint64_t value)

cdef extern from *:
    """
    #if defined(__GNUC__) || defined(__clang__)
    #define soon_at(place) __builtin_prefetch(place, 1)
    #else
    #define soon_at(place) ((void)(place))
    #endif
    """
    void soon_at(const void* place) nogil  # it is going to be changed: let it be fetched meanwhile


cdef struct Span:
    const uint8_t* at
    Py_ssize_t size


cdef struct Buffer:
    uint8_t* at
    Py_ssize_t size
    Py_ssize_t room


cdef int grow(Buffer* buffer, Py_ssize_t wanted) except -1
cdef void let_go(Buffer* buffer) noexcept
cdef uint32_t crc32(uint32_t crc, const uint8_t* data, Py_ssize_t size) noexcept nogil
cdef uint32_t java_hash(uint32_t start, const uint8_t* text, Py_ssize_t size) noexcept nogil
cdef Py_ssize_t decimal(uint8_t* into, int64_t value) noexcept nogil
cdef void hexadecimal(uint8_t* into, uint64_t value) noexcept nogil


cdef inline int make_room(Buffer* buffer, Py_ssize_t more) except -1:
    """Room for `more` bytes after what is there; pointers into the buffer are void then."""
    return 0 if buffer.size + more <= buffer.room else grow(buffer, buffer.size + more)


cdef inline bint is_ascii8(const uint8_t* p) noexcept nogil:
    cdef uint64_t eight
    memcpy(&eight, p, 8)
    return not eight & 0x8080808080808080U


cdef inline uint8_t* put_bytes(uint8_t* p, const uint8_t* data, Py_ssize_t size) noexcept nogil:
    memcpy(p, data, size)
    return p + size


cdef inline Span span_of(bytes data) noexcept:
    """Valid as long as the object is."""
    cdef Span span
    span.at, span.size = data, len(data)
    return span


cdef inline int append(Buffer* buffer, const uint8_t* data, Py_ssize_t size) except -1:
    make_room(buffer, size)
    memcpy(buffer.at + buffer.size, data, size)
    buffer.size += size
    return 0
