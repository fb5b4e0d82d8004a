# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3
"""Reads the header of a request, JSON or binary, by the fields that its type declares.

It understands what every official client writes and nothing else: whatever is unusual (a field twice, a number written
in another way, an escaped surrogate, a value that is no text or number) makes `read` say no, and Python reads the frame.
So nothing here has to agree with Python about an error, only about what is right.
"""

from libc.stdint cimport int64_t, uint8_t, uint32_t
from libc.string cimport memcmp

import types
import typing

import msgspec

from aerobee.native.memory cimport (
    Buffer, Span, append, get16, get32, is_ascii8, let_go, make_room, put_bytes, span_of,
)

cdef enum:
    TEXT, NUMBER, TRUTH  # kinds of fields
    LONGEST_HEADER = 65536
    MOST_DIGITS = 18

_KINDS = {str: TEXT, int: NUMBER, bool: TRUTH}


cdef class Fields:
    """The fields of one header type, and their values in the frame that was read last."""

    def __cinit__(self, header):
        self._scratch.at, self._scratch.size, self._scratch.room = NULL, 0, 0
        self.attributes, self._names, self.count, self._header = [], [], 0, header
        self.gathers, self.gathered = False, 0
        self.by_letter[:] = [-1] * 256
        for field in msgspec.structs.fields(header):
            if self.count == MOST_FIELDS:
                raise ValueError(f"{header.__name__} has more than {MOST_FIELDS} fields")
            self._declare(field)

    def _declare(self, field):
        cdef int at = self.count
        name = field.encode_name.encode()
        self._names.append(name)
        self.names[at] = span_of(name)
        if len(name) == 1:
            self.by_letter[name[0]] = at
        self.attributes.append(field.name)
        self.kinds[at] = _KINDS[_without_none(field.type)]
        self.has_default[at] = not field.required
        self.defaults[at] = field.default if isinstance(field.default, int) else 0
        self.count += 1

    def __dealloc__(self):
        let_go(&self._scratch)

    cdef int find(self, const uint8_t* name, Py_ssize_t size) noexcept:
        cdef int field
        if size == 1:
            return self.by_letter[name[0]]
        for field in range(self.count):
            if (
                self.names[field].size == size
                and (not size or self.names[field].at[0] == name[0])
                and memcmp(self.names[field].at, name, size) == 0
            ):
                return field
        return -1

    cdef bint read(self, const uint8_t* data, Py_ssize_t size, Py_ssize_t most) except -1:
        """Whether `data` begins with a whole frame, of at most `most` bytes, that is understood completely. The values
        point into `data` or here: they hold until the next `read`, and no longer than `data`."""
        cdef Frame* frame = &self.frame
        cdef Py_ssize_t head
        cdef int field
        if size < 8:
            return False
        frame.size = 4 + <Py_ssize_t>get32(data)
        head = get32(data + 4) & 0xFFFFFF
        if frame.size > size or frame.size > most or frame.size < 8 + head or head > LONGEST_HEADER:
            return False
        frame.serialize = data[4]
        frame.body.at, frame.body.size = data + 8 + head, frame.size - 8 - head
        for field in range(self.count):
            self.values[field].is_there = False
            self.values[field].number = self.defaults[field]
            self.values[field].text.at, self.values[field].text.size = data, 0
        self._scratch.size = self.gathered = 0
        make_room(&self._scratch, head)  # enough for all texts without their escapes: the buffer does not move below
        if frame.serialize == 0:
            return self._read_json(data + 8, frame.body.at) and self._complete()
        return frame.serialize == 1 and self._read_binary(data + 8, frame.body.at) and self._complete()

    cdef object header(self):
        """What was read, as Python has it."""
        return self._header(**self.as_values())

    cdef dict as_values(self):
        cdef dict values = {}
        cdef Span text
        cdef int field
        for field in range(self.count):
            if not self.values[field].is_there:
                continue
            if self.kinds[field] == TEXT:
                text = self.values[field].text
                values[self.attributes[field]] = text.at[:text.size].decode()
            else:
                number = self.values[field].number
                values[self.attributes[field]] = bool(number) if self.kinds[field] == TRUTH else number
        return values

    cdef int add_to(self, Buffer* key, int field) except -1:
        """A field's value after what is in `key`, so that different values make different keys."""
        cdef Value* value = &self.values[field]
        cdef int64_t number = value.number
        if self.kinds[field] == TEXT:
            number = value.text.size if value.is_there else -1
        append(key, <const uint8_t*>&number, sizeof(int64_t))
        if self.kinds[field] == TEXT:
            append(key, value.text.at, value.text.size)
        return 0

    cdef bint _complete(self) noexcept:
        cdef int field
        for field in range(self.count):
            if not self.has_default[field] and not self.values[field].is_there:
                return False
        return True

    cdef bint _take(self, int field, Span text) noexcept:
        """The value of a field, from its text."""
        cdef Value* value = &self.values[field]
        if value.is_there:
            return False
        value.is_there = True
        if self.kinds[field] == TEXT:
            value.text = text
            return True
        if self.kinds[field] == NUMBER:
            return number_of(text, &value.number)
        value.number = text.size == 4
        return (text.size == 4 and memcmp(text.at, b"true", 4) == 0) or (
            text.size == 5 and memcmp(text.at, b"false", 5) == 0
        )

    cdef bint _gather(self, Span name, Span value) noexcept:
        if self.gathered == MOST_GATHERED or not name.size:  # one without a name is read in this way or that
            return False
        self.gathered_names[self.gathered], self.gathered_values[self.gathered] = name, value
        self.gathered += 1
        return True

    # -- the binary form -----------------------------------------------------------------------------------

    cdef bint _read_binary(self, const uint8_t* p, const uint8_t* end) noexcept:
        cdef Span name, text
        cdef Py_ssize_t size
        cdef int field
        if end - p < 21 or get32(p + 13):  # a remark says something that is not expected
            return False
        self.frame.code = <short>get16(p)
        self.frame.opaque = <int>get32(p + 5)
        self.frame.flag = <int>get32(p + 9)
        if get32(p + 17) != end - p - 21:
            return False
        p += 21
        while p != end:
            if end - p < 2:
                return False
            size = get16(p)
            p += 2
            if size > end - p or size > 0x7FFF or end - p - size < 4 or not is_utf8(p, size):
                return False
            field = self.find(p, size)
            name.at, name.size = p, size
            p += size
            text.at, text.size = p + 4, get32(p)
            if text.size > end - p - 4 or not is_utf8(text.at, text.size):
                return False
            p += 4 + text.size
            if self.gathers and not self._gather(name, text):
                return False
            if field >= 0 and text.size and not self._take(field, text):  # an empty text counts as none
                return False
        return True

    # -- JSON ----------------------------------------------------------------------------------------------

    cdef bint _read_json(self, const uint8_t* p, const uint8_t* end) noexcept:
        """One object, its members in any order, without white space; nothing after it."""
        cdef Span name, value
        cdef int seen = 0, member
        self.frame.code, self.frame.opaque, self.frame.flag = NO_FRAME, 0, 0
        if p == end or p[0] != c"{":
            return False
        while True:
            p = self._string(p + 1, end, &name)
            if p == NULL or p == end or p[0] != c":":
                return False
            member = _member(name)
            if member and seen & member:
                return False
            seen |= member
            if member == EXT_FIELDS:
                p = self._read_fields(p + 1, end)
            elif member == CODE or member == FLAG or member == OPAQUE or member == VERSION:
                p = _bare(p + 1, end, &value)
                if p == NULL or not self._set(member, value):
                    return False
            else:
                p = self._string_or_null(p + 1, end)
            if p == NULL or p == end:
                return False
            if p[0] == c"}":
                return p + 1 == end and seen & CODE
            if p[0] != c",":
                return False

    cdef bint _set(self, int member, Span text) noexcept:
        cdef int64_t number = 0
        if not number_of(text, &number):
            return False
        if member == CODE:
            self.frame.code = number
        elif member == FLAG:
            self.frame.flag = number
        elif member == OPAQUE:
            self.frame.opaque = number
        return True

    cdef const uint8_t* _read_fields(self, const uint8_t* p, const uint8_t* end) noexcept:
        cdef Span name, value
        cdef int64_t number
        cdef int field
        if end - p < 2 or p[0] != c"{":
            return NULL
        if p[1] == c"}":
            return p + 2
        while True:
            p = self._string(p + 1, end, &name)
            if p == NULL or end - p < 2 or p[0] != c":":
                return NULL
            field = self.find(name.at, name.size)
            if p[1] == c'"':
                p = self._string(p + 1, end, &value)
            else:
                p = _bare(p + 1, end, &value)
                if p == NULL or not number_of(value, &number) or (field >= 0 and self.kinds[field] != NUMBER):
                    return NULL
                if self.gathers:  # all of them as texts: numbers are to be written out first
                    return NULL
            if p == NULL or p == end or (field >= 0 and not self._take(field, value)):
                return NULL
            if self.gathers and not self._gather(name, value):
                return NULL
            if p[0] == c"}":
                return p + 1
            if p[0] != c",":
                return NULL

    cdef const uint8_t* _string_or_null(self, const uint8_t* p, const uint8_t* end) noexcept:
        cdef Span ignored
        if end - p >= 4 and memcmp(p, b"null", 4) == 0:
            return p + 4
        return self._string(p, end, &ignored)

    cdef const uint8_t* _string(self, const uint8_t* p, const uint8_t* end, Span* text) noexcept:
        """A string in quotes, which `text` is without its escapes; the place after it, or NULL."""
        cdef const uint8_t* start
        cdef bint plain = True
        if p == end or p[0] != c'"':
            return NULL
        p += 1
        start = p
        while p != end and p[0] != c'"' and p[0] != c"\\":
            if p[0] < 0x20:
                return NULL
            if p[0] >= 0x80:
                plain = False
            p += 1
        if p == end:
            return NULL
        text.at, text.size = start, p - start
        if p[0] == c"\\":
            p = self._escaped(start, p, end, text, &plain)
        else:
            p += 1
        if p == NULL or not (plain or is_utf8(text.at, text.size)):
            return NULL
        return p

    cdef const uint8_t* _escaped(
        self, const uint8_t* start, const uint8_t* p, const uint8_t* end, Span* text, bint* plain
    ) noexcept:
        """The same for a string whose first escape is at `p`: it is written out into the scratch buffer, which has room
        for it, since an escape is never shorter than what it stands for. `plain`: nothing but ASCII so far."""
        cdef uint8_t* began = self._scratch.at + self._scratch.size
        cdef uint8_t* out = put_bytes(began, start, p - start)
        cdef int code
        while True:
            if p == end or p[0] < 0x20:
                return NULL
            if p[0] == c'"':
                break
            if p[0] != c"\\":
                if p[0] >= 0x80:
                    plain[0] = False
                out[0] = p[0]
                out += 1
                p += 1
                continue
            if end - p < 2:
                return NULL
            if p[1] == c"u":
                code = _hex4(p + 2, end)
                if code < 0 or 0xD800 <= code < 0xE000:
                    return NULL
                out = _put_utf8(out, code)
                p += 6
            else:
                code = _short_escape(p[1])
                if code < 0:
                    return NULL
                out[0] = <uint8_t>code
                out += 1
                p += 2
        text.at, text.size = began, out - began
        self._scratch.size += text.size
        return p + 1


# -- members of the JSON header -------------------------------------------------------------------------------------

cdef enum:
    OTHER = 0
    CODE = 1
    FLAG = 2
    OPAQUE = 4
    VERSION = 8
    EXT_FIELDS = 16
    LANGUAGE = 32
    REMARK = 64


cdef int _member(Span name) noexcept:
    if name.size == 4:
        if memcmp(name.at, b"code", 4) == 0:
            return CODE
        if memcmp(name.at, b"flag", 4) == 0:
            return FLAG
    elif name.size == 6:
        if memcmp(name.at, b"opaque", 6) == 0:
            return OPAQUE
        if memcmp(name.at, b"remark", 6) == 0:
            return REMARK
    elif name.size == 7 and memcmp(name.at, b"version", 7) == 0:
        return VERSION
    elif name.size == 8 and memcmp(name.at, b"language", 8) == 0:
        return LANGUAGE
    elif name.size == 9 and memcmp(name.at, b"extFields", 9) == 0:
        return EXT_FIELDS
    return OTHER


cdef int64_t code_at(const uint8_t* data, Py_ssize_t size) noexcept:
    """The code of the frame at the start of `data`, when that is whole and says it first; else NO_FRAME."""
    cdef Span digits
    cdef int64_t code = NO_FRAME
    if size < 20 or 4 + <Py_ssize_t>get32(data) > size:
        return NO_FRAME
    if data[4] == 1:
        return <short>get16(data + 8)
    if data[4] != 0 or memcmp(data + 8, b'{"code":', 8) != 0:
        return NO_FRAME
    if _bare(data + 16, data + size, &digits) == NULL or not number_of(digits, &code):
        return NO_FRAME
    return code


# -- numbers and text -----------------------------------------------------------------------------------------------


cdef const uint8_t* _bare(const uint8_t* p, const uint8_t* end, Span* digits) noexcept:
    """A run of digits, maybe with a sign; the place after it, or NULL."""
    digits.at = p
    if p != end and p[0] == c"-":
        p += 1
    while p != end and c"0" <= p[0] <= c"9":
        p += 1
    digits.size = p - digits.at
    return p if digits.size else NULL


cdef bint number_of(Span text, int64_t* number) noexcept:
    """A whole number as everybody writes it: no plus sign, no leading zero, no fraction."""
    cdef const uint8_t* p = text.at
    cdef const uint8_t* end = text.at + text.size
    cdef bint negative = text.size > 0 and p[0] == c"-"
    cdef int64_t value = 0
    if negative:
        p += 1
    if p == end or end - p > MOST_DIGITS or (p[0] == c"0" and (negative or end - p > 1)):
        return False
    while p != end:
        if not c"0" <= p[0] <= c"9":
            return False
        value = value * 10 + (p[0] - c"0")
        p += 1
    number[0] = -value if negative else value
    return True


cdef int _hex4(const uint8_t* p, const uint8_t* end) noexcept:
    cdef int value = 0, place, digit
    if end - p < 4:
        return -1
    for place in range(4):
        digit = p[place]
        if c"0" <= digit <= c"9":
            digit -= c"0"
        elif c"a" <= digit <= c"f":
            digit -= c"a" - 10
        elif c"A" <= digit <= c"F":
            digit -= c"A" - 10
        else:
            return -1
        value = value << 4 | digit
    return value


cdef int _short_escape(int letter) noexcept:
    if letter == c'"' or letter == c"\\" or letter == c"/":
        return letter
    if letter == c"n":
        return 10
    if letter == c"t":
        return 9
    if letter == c"r":
        return 13
    if letter == c"b":
        return 8
    if letter == c"f":
        return 12
    return -1


cdef uint8_t* _put_utf8(uint8_t* out, int code) noexcept:
    """A character of at most 16 bits."""
    if code < 0x80:
        out[0] = <uint8_t>code
        return out + 1
    if code < 0x800:
        out[0], out[1] = <uint8_t>(0xC0 | code >> 6), <uint8_t>(0x80 | (code & 0x3F))
        return out + 2
    out[0], out[1] = <uint8_t>(0xE0 | code >> 12), <uint8_t>(0x80 | (code >> 6 & 0x3F))
    out[2] = <uint8_t>(0x80 | (code & 0x3F))
    return out + 3


cdef bint is_utf8(const uint8_t* p, Py_ssize_t size) noexcept:
    """Well-formed as Python has it: no overlong form, no surrogate, nothing past U+10FFFF."""
    cdef const uint8_t* end = p + size
    cdef int more, place
    cdef uint32_t code, least
    while p != end:
        if p[0] < 0x80:
            p += 8 if end - p >= 8 and is_ascii8(p) else 1
            continue
        if p[0] < 0xC2:
            return False
        if p[0] < 0xE0:
            more, code, least = 1, p[0] & 0x1F, 0x80
        elif p[0] < 0xF0:
            more, code, least = 2, p[0] & 0x0F, 0x800
        elif p[0] < 0xF5:
            more, code, least = 3, p[0] & 0x07, 0x10000
        else:
            return False
        if end - p <= more:
            return False
        for place in range(1, more + 1):
            if p[place] & 0xC0 != 0x80:
                return False
            code = code << 6 | (p[place] & 0x3F)
        if code < least or code > 0x10FFFF or 0xD800 <= code < 0xE000:
            return False
        p += 1 + more
    return True


def _without_none(kind):
    if isinstance(kind, types.UnionType):
        (kind,) = [part for part in typing.get_args(kind) if part is not types.NoneType]
    return kind


# -- for tests and fuzzing ------------------------------------------------------------------------------------------


def code_of(bytes data not None, Py_ssize_t at):
    """The code of the frame at `at`, or -1: not whole, or in an unusual form."""
    if not 0 <= at <= len(data):
        raise ValueError(f"no place {at} in {len(data)} bytes")
    return code_at(<const uint8_t*>data + at, len(data) - at)


def read(Fields fields not None, bytes data not None, Py_ssize_t most=1 << 24):
    """The frame at the start of `data` as Python values, or None when it is not understood."""
    if not fields.read(data, len(data), most):
        return None
    cdef Frame frame = fields.frame
    return frame.code, frame.opaque, frame.flag, fields.as_values(), frame.body.at[:frame.body.size]
