# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3
"""Records of a queue out of one file of the log, each checked, for as long as they are usual ones.

`store/reader.py` is the reference and goes on where this stops: at the end of the file, at a record of a long topic or
without a record check, at a gap, at damage. Nothing is read outside the map: a unit's word is not believed. What is
chosen points into the map, which whoever calls holds as long as it looks there, and no longer than a run.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.string cimport memcmp

from aerobee.native.memory cimport Span, append, crc32, get32, get64, let_go, span_of

cdef enum:
    LEAST_RECORD = 91
    MAGIC_V1 = -626843481
    CHECK_SIZE = 20
    FILLER_SIZE = 0x7FFFFFFF
    BORN_V6 = 0x10


def collect(bytes units not None, log not None, int64_t base, tuple place not None, tuple limits not None, codes, list messages not None, list offsets not None):
    """Append to `messages` and `offsets`; returns how many units were dealt with, the bytes of the records, and where the
    last one ends. `log` is the map of a file that begins at `base`; `place` the queue's id and the offset of the first
    unit; `limits` as many messages and bytes; `codes` the tags wanted, None = all."""
    cdef Limits wanted
    cdef Py_buffer view
    cdef Log where
    cdef Found found
    cdef Chosen* one
    cdef Py_ssize_t number
    cdef int64_t queue_id = place[0], offset = place[1]
    wanted.messages, wanted.size_bytes = limits
    if not set_codes(&wanted, codes):
        return 0, 0, 0
    found.chosen.at, found.chosen.size, found.chosen.room = NULL, 0, 0
    PyObject_GetBuffer(log, &view, PyBUF_SIMPLE)
    try:
        where.at, where.size, where.base = <const uint8_t*>view.buf, view.len, base
        choose(span_of(units), &where, queue_id, offset, &wanted, &found)
        one = <Chosen*>found.chosen.at
        for number in range(count_of(&found)):
            messages.append(PyBytes_FromStringAndSize(<const char*>one[number].at, one[number].size))
            offsets.append(one[number].offset)
        return found.taken, found.size_bytes, found.end
    finally:
        let_go(&found.chosen)
        PyBuffer_Release(&view)


cdef bint set_codes(Limits* wanted, codes) except -1:
    """The tags wanted; False when they are too many."""
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


cdef int choose(Span units, const Log* log, int64_t queue_id, int64_t offset, const Limits* wanted, Found* found) except -1:
    """The records that are wanted of these units, the first of which is of `offset`."""
    cdef const uint8_t* unit = units.at
    cdef const uint8_t* end = unit + units.size // UNIT_SIZE * UNIT_SIZE
    cdef int64_t at, size
    cdef Chosen one
    found.chosen.size = 0
    found.taken = found.size_bytes = found.end = 0
    found.is_all = False
    while unit != end:
        at, size = <int64_t>get64(unit) - log.base, <int32_t>get32(unit + 8)
        if found.chosen.size and count_of(found) >= wanted.messages:
            break
        if found.chosen.size and found.size_bytes + size > wanted.size_bytes:
            if size == FILLER_SIZE:
                return 0
            break
        if _is_wanted(<int32_t>get32(unit + 16), wanted):
            if at < 0 or size < LEAST_RECORD or size > log.size or at > log.size - size:
                return 0
            if not _is_usual(log.at + at, size, log.base + at, queue_id, offset + found.taken):
                return 0
            one.at, one.size, one.offset = log.at + at, size, offset + found.taken
            append(&found.chosen, <const uint8_t*>&one, sizeof(Chosen))
            found.size_bytes += size
            found.end = log.base + at + size
        found.taken += 1
        unit += UNIT_SIZE
    found.is_all = True
    return 0


cdef int64_t store_time(const uint8_t* record) noexcept:
    """Of a usual one, which is long enough for either address."""
    return <int64_t>get64(record + (68 if record[39] & BORN_V6 else 56))


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
