# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3
"""Records of a queue out of one file of the log, each checked, for as long as they are usual ones.

`store/reader.py` is the reference and goes on where this stops: at the end of the file, at a record of a long topic or
without a record check, at a gap, at damage. Nothing is read outside the map: a unit's word is not believed.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.string cimport memcmp

from aerobee.native.memory cimport crc32, get32, get64

cdef enum:
    UNIT_SIZE = 20
    LEAST_RECORD = 91
    MAGIC_V1 = -626843481
    CHECK_SIZE = 20
    MOST_CODES = 64


cdef struct Limits:
    int64_t messages, size_bytes
    int code_count  # -1: every tag
    int32_t codes[MOST_CODES]


def collect(bytes units not None, log not None, int64_t base, tuple place not None, tuple limits not None, codes, list messages not None, list offsets not None):
    """Append to `messages` and `offsets`; returns how many units were dealt with, the bytes of the records, and where the
    last one ends. `log` is the map of a file that begins at `base`; `place` the queue's id and the offset of the first
    unit; `limits` as many messages and bytes; `codes` the tags wanted, None = all."""
    cdef Limits wanted
    cdef Py_buffer view
    cdef int64_t queue_id = place[0], offset = place[1]
    wanted.messages, wanted.size_bytes = limits
    if not _set_codes(&wanted, codes):
        return 0, 0, 0
    PyObject_GetBuffer(log, &view, PyBUF_SIMPLE)
    try:
        return _collect(units, <const uint8_t*>view.buf, view.len, base, queue_id, offset, &wanted, messages, offsets)
    finally:
        PyBuffer_Release(&view)


cdef bint _set_codes(Limits* wanted, codes) except -1:
    wanted.code_count = -1
    if codes is None:
        return True
    if len(codes) > MOST_CODES:
        return False
    wanted.code_count = 0
    for code in codes:
        wanted.codes[wanted.code_count] = code
        wanted.code_count += 1
    return True


cdef tuple _collect(
    bytes units, const uint8_t* log, int64_t size, int64_t base, int64_t queue_id, int64_t offset, Limits* wanted,
    list messages, list offsets,
):
    cdef const uint8_t* unit = units
    cdef const uint8_t* end = unit + len(units) // UNIT_SIZE * UNIT_SIZE
    cdef int64_t taken = 0, total = 0, last = 0, found = 0, at
    cdef int64_t record
    while unit != end:
        at, record = <int64_t>get64(unit) - base, <int32_t>get32(unit + 8)
        if found and (found >= wanted.messages or total + record > wanted.size_bytes):
            break
        if _is_wanted(<int32_t>get32(unit + 16), wanted):
            if at < 0 or record < LEAST_RECORD or record > size or at > size - record:
                break
            if not _is_usual(log + at, record, base + at, queue_id, offset + taken):
                break
            messages.append(PyBytes_FromStringAndSize(<const char*>log + at, record))
            offsets.append(offset + taken)
            found += 1
            total += record
            last = base + at + record
        taken += 1
        unit += UNIT_SIZE
    return taken, total, last


cdef bint _is_wanted(int32_t code, const Limits* wanted) noexcept:
    cdef int place
    if wanted.code_count < 0:
        return True
    for place in range(wanted.code_count):
        if wanted.codes[place] == code:
            return True
    return False


cdef bint _is_usual(const uint8_t* record, int64_t size, int64_t position, int64_t queue_id, int64_t offset) noexcept:
    """Whether it is the record that the unit means, and its check holds."""
    return (
        <int32_t>get32(record) == size
        and <int32_t>get32(record + 4) == MAGIC_V1
        and <int32_t>get32(record + 12) == queue_id
        and <int64_t>get64(record + 20) == offset
        and <int64_t>get64(record + 28) == position
        and _check_holds(record + (size - CHECK_SIZE), crc32(0, record, size - CHECK_SIZE) & 0x7FFFFFFF)
    )


cdef bint _check_holds(const uint8_t* check, uint32_t value) noexcept:
    """Ten digits, least significant first."""
    cdef int place
    if memcmp(check, b"__CRC32#\x01", 9) != 0 or check[19] != 2:
        return False
    for place in range(10):
        if check[9 + place] != c"0" + value % 10:
            return False
        value //= 10
    return True
