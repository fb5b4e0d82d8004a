# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3, boundscheck=False, wraparound=False
"""Header blocks of HTTP/2, read as `protocol/http2/hpack.py` reads them, whose tables it is given: that has the picture."""

from cpython.unicode cimport PyUnicode_DecodeLatin1
from libc.stdint cimport int16_t, uint8_t

cdef enum:
    BESIDE = 32  # bytes that a field counts beside its texts
    MOST_NODES = 512
    LONGEST_TEXT = 1 << 16  # unpacked; longer than any block that is let through
    END = 256


cdef class Tables:
    """What all connections share: the usual fields, the nodes of the Huffman tree, and those where a text may end."""

    cdef tuple usual
    cdef int16_t[MOST_NODES][2] nodes
    cdef bint[MOST_NODES] ends
    cdef uint8_t[LONGEST_TEXT] text  # what was unpacked last

    def __cinit__(self, tuple usual not None, list nodes not None, ends):
        if len(nodes) > MOST_NODES:
            raise ValueError(f"a tree of {len(nodes)} nodes")
        self.usual = usual
        for number, (zero, one) in enumerate(nodes):
            self.nodes[number][0], self.nodes[number][1] = zero, one
            self.ends[number] = number in ends

    cdef Py_ssize_t unpack(self, const uint8_t* p, Py_ssize_t size) noexcept:
        """How long the text is; -1 for one that holds the code of its end, -2 for one that ends within a character."""
        cdef const uint8_t* end = p + size
        cdef int16_t node = 0
        cdef Py_ssize_t count = 0
        cdef int place
        while p < end:
            for place in range(7, -1, -1):
                node = self.nodes[node][p[0] >> place & 1]
                if node < 0:
                    if -1 - node == END or count == LONGEST_TEXT:
                        return -1
                    self.text[count] = <uint8_t>(-1 - node)
                    count += 1
                    node = 0
            p += 1
        return count if self.ends[node] else -2


cdef class HeaderBlocks:
    """`refused` is raised with a text; what the peer says next can not be understood then."""

    cdef Tables _tables
    cdef object _refused
    cdef Py_ssize_t _max_bytes, _table_bytes, _table_limit, _most_table
    cdef list _remembered  # the newest last
    cdef const uint8_t* _p
    cdef const uint8_t* _end

    def __cinit__(self, Tables tables not None, refused, Py_ssize_t max_bytes, Py_ssize_t table_bytes):
        self._tables, self._refused, self._max_bytes = tables, refused, max_bytes
        self._table_limit = self._most_table = table_bytes
        self._table_bytes, self._remembered = 0, []

    def read(self, bytes block not None):
        """The fields, of one said twice the last."""
        cdef dict fields = {}
        cdef tuple field
        cdef Py_ssize_t left = self._max_bytes
        self._p = block
        self._end = self._p + len(block)
        if self._p < self._end and self._p[0] & 0xE0 == 0x20:
            self._resize()
        while self._p < self._end:
            if self._p[0] >= 0x80:
                field = self._field(self._number(0x7F))
            else:
                field = self._literal()
            left -= <Py_ssize_t>field[2]
            if left < 0:
                raise self._refused(f"headers of more than {self._max_bytes} bytes")
            fields[field[0]] = field[1]
        return fields

    cdef tuple _field(self, Py_ssize_t index):
        cdef Py_ssize_t usual = len(self._tables.usual), known = len(self._remembered)
        if 0 < index <= usual:
            return self._tables.usual[index - 1]
        index -= usual + 1
        if not 0 <= index < known:
            raise self._in_the_middle()
        return self._remembered[known - 1 - index]

    cdef object _in_the_middle(self):
        return self._refused("a header block that ends in the middle, or names what was never said")

    cdef tuple _literal(self):
        cdef uint8_t first = self._p[0]
        cdef Py_ssize_t index
        cdef str name, value
        cdef tuple field
        if first & 0xE0 == 0x20:
            raise self._refused("the header table changes its size in the middle")
        index = self._number(0x3F if first & 0x40 else 0x0F)
        if index:
            name = self._field(index)[0]
        else:
            name = self._read_text()
            if not name or name.lower() != name:
                raise self._refused(f"header name {name[:64]!r}: lower case, not empty")
        value = self._read_text()
        field = (name, value, len(name) + len(value) + BESIDE)
        if first & 0x40:
            self._remembered.append(field)
            self._table_bytes += len(name) + len(value) + BESIDE
            self._forget()
        return field

    cdef int _forget(self) except -1:
        """The oldest, until the rest fits; one that is larger than the table leaves it empty."""
        cdef Py_ssize_t count = 0
        while self._table_bytes > self._table_limit:
            self._table_bytes -= <Py_ssize_t>(<tuple>self._remembered[count])[2]
            count += 1
        if count:
            del self._remembered[:count]
        return 0

    cdef int _resize(self) except -1:
        """A sender that made its table small and large again says both, before the fields."""
        cdef int _
        for _ in range(2):
            if self._p == self._end or self._p[0] & 0xE0 != 0x20:
                break
            self._table_limit = self._number(0x1F)
            if self._table_limit > self._most_table:
                raise self._refused(f"a header table of {self._table_limit} bytes, limit {self._most_table}")
            self._forget()
        return 0

    cdef Py_ssize_t _number(self, uint8_t mask) except -1:
        cdef Py_ssize_t value
        cdef uint8_t byte
        cdef int shift
        if self._p >= self._end:
            raise self._in_the_middle()
        value = self._p[0] & mask
        self._p += 1
        if value < mask:
            return value
        for shift in range(0, 28, 7):
            if self._p >= self._end:
                raise self._in_the_middle()
            byte = self._p[0]
            self._p += 1
            value += <Py_ssize_t>(byte & 0x7F) << shift
            if byte < 0x80:
                return value
        raise self._refused("a number in a header block that is too large")

    cdef str _read_text(self):
        cdef bint packed = self._p < self._end and self._p[0] & 0x80 != 0
        cdef Py_ssize_t size = self._number(0x7F), at
        cdef const uint8_t* raw = self._p
        cdef bint is_plain = True
        if size > self._end - raw:
            raise self._refused("a header block that ends in the middle")
        self._p += size
        if packed:
            size = self._tables.unpack(raw, size)
            if size == -1:
                raise self._refused("a header text that holds the code of its end")
            if size == -2:
                raise self._refused("a header text that ends within a character")
            raw = self._tables.text
        for at in range(size):
            is_plain &= 0x20 <= raw[at] <= 0x7E
        text = PyUnicode_DecodeLatin1(<const char*>raw, size, NULL)
        if not is_plain:
            raise self._refused(f"header text {text[:64]!r}: printable ASCII only")
        return text
