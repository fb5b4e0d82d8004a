# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3, cdivision=True

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy

cdef int grow(Buffer* buffer, Py_ssize_t wanted) except -1:
    wanted += wanted >> 1
    cdef void* moved = realloc(buffer.at, wanted)
    if moved == NULL:
        raise MemoryError
    buffer.at, buffer.room = <uint8_t*>moved, wanted
    return 0


cdef void let_go(Buffer* buffer) noexcept:
    free(buffer.at)
    buffer.at, buffer.size, buffer.room = NULL, 0, 0


# -- CRC-32 (zlib's), eight bytes a step: table k is what a byte does k places further on ------------------------

cdef extern from "crc_fold.h" nogil:
    bint folding_works()
    uint32_t fold(uint32_t crc, const uint8_t* data, size_t size)

cdef enum:
    WORTH_FOLDING = 16

cdef uint32_t _steps[8][256]
cdef bint _folds = folding_works()


cdef void _make_steps() noexcept:
    cdef uint32_t value
    cdef int byte, bit, table
    for byte in range(256):
        value = byte
        for bit in range(8):
            value = value >> 1 ^ (0xEDB88320U if value & 1 else 0U)
        _steps[0][byte] = value
    for table in range(1, 8):
        for byte in range(256):
            value = _steps[table - 1][byte]
            _steps[table][byte] = value >> 8 ^ _steps[0][value & 0xFF]


_make_steps()


cdef uint32_t crc32(uint32_t crc, const uint8_t* data, Py_ssize_t size) noexcept nogil:
    """zlib's: `crc` is that of what came before, 0 at first."""
    if _folds and size >= WORTH_FOLDING:
        return ~fold(~crc, data, size)
    return ~_crc32_by_table(~crc, data, size)


cdef uint32_t _crc32_by_table(uint32_t crc, const uint8_t* data, Py_ssize_t size) noexcept nogil:
    cdef uint32_t low, high
    while size >= 8:
        low = crc ^ (<uint32_t>data[0] | <uint32_t>data[1] << 8 | <uint32_t>data[2] << 16 | <uint32_t>data[3] << 24)
        high = <uint32_t>data[4] | <uint32_t>data[5] << 8 | <uint32_t>data[6] << 16 | <uint32_t>data[7] << 24
        crc = (
            _steps[7][low & 0xFF] ^ _steps[6][low >> 8 & 0xFF] ^ _steps[5][low >> 16 & 0xFF] ^ _steps[4][low >> 24]
            ^ _steps[3][high & 0xFF] ^ _steps[2][high >> 8 & 0xFF] ^ _steps[1][high >> 16 & 0xFF] ^ _steps[0][high >> 24]
        )
        data += 8
        size -= 8
    while size > 0:
        crc = crc >> 8 ^ _steps[0][(crc ^ data[0]) & 0xFF]
        data += 1
        size -= 1
    return crc


# -- text ------------------------------------------------------------------------------------------------------------


cdef uint32_t java_hash(uint32_t start, const uint8_t* text, Py_ssize_t size) noexcept nogil:
    """Java's String.hashCode of well-formed UTF-8, going on from the hash of what stands before it."""
    cdef Py_ssize_t at = 0
    cdef uint32_t code, first
    while size - at >= 8 and is_ascii8(text + at):
        # 31 to the powers: letters need not wait for each other's products.
        start = start * 0x94446F01U + text[at] * 0x67E12CDFU + text[at + 1] * 887503681U + text[at + 2] * 28629151U
        start += text[at + 3] * 923521U + text[at + 4] * 29791U + text[at + 5] * 961U + text[at + 6] * 31U + text[at + 7]
        at += 8
    while at < size:
        first = text[at]
        if first < 0x80:
            start = start * 31 + first
            at += 1
        elif first < 0xE0:
            start = start * 31 + ((first & 0x1F) << 6 | (text[at + 1] & 0x3F))
            at += 2
        elif first < 0xF0:
            start = start * 31 + ((first & 0x0F) << 12 | (text[at + 1] & 0x3F) << 6 | (text[at + 2] & 0x3F))
            at += 3
        else:  # two UTF-16 units
            code = (first & 0x07) << 18 | (text[at + 1] & 0x3F) << 12 | (text[at + 2] & 0x3F) << 6 | (text[at + 3] & 0x3F)
            code -= 0x10000
            start = start * 31 + (0xD800 + (code >> 10))
            start = start * 31 + (0xDC00 + (code & 0x3FF))
            at += 4
    return start


cdef Py_ssize_t decimal(uint8_t* into, int64_t value) noexcept nogil:
    """The number as text; how many bytes it took, at most 20."""
    cdef uint8_t digits[20]
    cdef Py_ssize_t count = 0, size = 0
    cdef uint64_t rest = <uint64_t>value if value >= 0 else 0 - <uint64_t>value
    if value < 0:
        into[0] = c"-"
        size = 1
    while True:
        digits[count] = <uint8_t>(c"0" + rest % 10)
        count += 1
        rest //= 10
        if not rest:
            break
    while count:
        count -= 1
        into[size] = digits[count]
        size += 1
    return size


cdef void hexadecimal(uint8_t* into, uint64_t value) noexcept nogil:
    """Sixteen digits."""
    put64(put64(into, _digits8(value >> 32)), _digits8(value & 0xFFFFFFFFU))


cdef inline uint64_t _digits8(uint64_t half) noexcept nogil:
    """One digit a byte: the halves of the halves move apart, then all become letters at once."""
    half = (half | half << 16) & 0x0000FFFF0000FFFFU
    half = (half | half << 8) & 0x00FF00FF00FF00FFU
    half = (half | half << 4) & 0x0F0F0F0F0F0F0F0FU
    # From 10 on it is A, which stands 7 letters after where the digits end.
    return half + 0x3030303030303030U + (half + 0x0606060606060606U >> 4 & 0x0101010101010101U) * 7


# -- for tests -------------------------------------------------------------------------------------------------------


def crc32_of(bytes data not None, uint32_t before=0):
    return crc32(before, data, len(data))


def java_hash_of(str text not None):
    cdef bytes data = text.encode()
    return <int>java_hash(0, data, len(data))


def decimal_of(int64_t value):
    cdef uint8_t into[20]
    cdef Py_ssize_t size = decimal(into, value)
    return into[:size]
