# SPDX-License-Identifier: Apache-2.0
"""Header blocks of HTTP/2 (RFC 7541): read with the table of what was said before, written without one.

A field is one byte when it was said before: its place among 61 usual fields and, after them, the newest first, those
the sender asked to be remembered. Our own headers are few and constant, and are written out.

    1iiiiiii                    field i
    01iiiiii [name] value       name of field i, or a new one; remember the field
    0000iiii [name] value       the same, do not remember it (0001: nor let anybody else)
    001sssss                    the table holds s bytes from now on
"""

from __future__ import annotations

from collections import deque

from aerobee.errors import ProtocolError
from aerobee.protocol.http2 import huffman

TABLE_BYTES = 4_096  # what a sender may have us remember, in the RFC's count
_BESIDE = 32  # bytes that a field counts beside its texts
_MAX_TABLE_CHANGES = 2  # at the beginning of one block

_NAMES_ONLY = (
    "accept-charset accept-encoding accept-language accept-ranges accept access-control-allow-origin age allow "
    "authorization cache-control content-disposition content-encoding content-language content-length "
    "content-location content-range content-type cookie date etag expect expires from host if-match "
    "if-modified-since if-none-match if-range if-unmodified-since last-modified link location max-forwards "
    "proxy-authenticate proxy-authorization range referer refresh retry-after server set-cookie "
    "strict-transport-security transfer-encoding user-agent vary via www-authenticate"
)
_USUAL: tuple[tuple[str, str], ...] = (
    (":authority", ""),
    (":method", "GET"),
    (":method", "POST"),
    (":path", "/"),
    (":path", "/index.html"),
    (":scheme", "http"),
    (":scheme", "https"),
    *((":status", code) for code in ("200", "204", "206", "304", "400", "404", "500")),
    *((name, "gzip, deflate" if name == "accept-encoding" else "") for name in _NAMES_ONLY.split()),
)
_Field = tuple[str, str, int]  # with what it counts


def _counted(name: str, value: str) -> _Field:
    return name, value, len(name) + len(value) + _BESIDE


USUAL_FIELDS: tuple[_Field, ...] = tuple(_counted(*each) for each in _USUAL)
_FIRST_REMEMBERED = len(USUAL_FIELDS) + 1


class HeaderBlocks:
    """Reads the blocks of one peer, one after the other."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._remembered: deque[_Field] = deque()
        self._table_bytes = 0
        self._table_limit = TABLE_BYTES

    def read(self, block: bytes) -> dict[str, str]:
        """The fields, of one said twice the last. ProtocolError: what the peer says next can not be understood."""
        fields: dict[str, str] = {}
        left, at, end = self._max_bytes, 0, len(block)
        try:
            if end and block[0] & 0xE0 == 0x20:
                at = self._resize(block)
            while at < end:
                first = block[at]
                if first >= 0x80:
                    index, at = (first & 0x7F, at + 1) if first < 0xFF else _number(block, at, 0x7F)
                    field = self._field(index)
                else:
                    field, at = self._literal(block, at, first)
                name, value, counts = field
                left -= counts
                if left < 0:
                    raise ProtocolError(f"headers of more than {self._max_bytes} bytes")
                fields[name] = value
        except IndexError:
            raise ProtocolError(
                "a header block that ends in the middle, or names what was never said"
            ) from None
        return fields

    def _field(self, index: int) -> _Field:
        """IndexError when it was never said."""
        if index >= _FIRST_REMEMBERED:
            return self._remembered[index - _FIRST_REMEMBERED]
        if not index:
            raise IndexError
        return USUAL_FIELDS[index - 1]

    def _literal(self, block: bytes, at: int, first: int) -> tuple[_Field, int]:
        if first & 0xE0 == 0x20:
            raise ProtocolError("the header table changes its size in the middle")
        remember = first & 0x40
        index, at = _number(block, at, 0x3F if remember else 0x0F)
        if index:
            name = self._field(index)[0]
        else:
            name, at = _text(block, at)
            if not name or name.lower() != name:
                raise ProtocolError(f"header name {name[:64]!r}: lower case, not empty")
        value, at = _text(block, at)
        field = _counted(name, value)
        if remember:
            self._remembered.appendleft(field)
            self._table_bytes += field[2]
            if self._table_bytes > self._table_limit:
                self._forget()
        return field, at

    def _forget(self) -> None:
        """The oldest, until the rest fits; one that is larger than the table leaves it empty."""
        while self._table_bytes > self._table_limit:
            self._table_bytes -= self._remembered.pop()[2]

    def _resize(self, block: bytes) -> int:
        """A sender that made its table small and large again says both, before the fields."""
        at = 0
        for _ in range(_MAX_TABLE_CHANGES):
            if at == len(block) or block[at] & 0xE0 != 0x20:
                break
            self._table_limit, at = _number(block, at, 0x1F)
            if self._table_limit > TABLE_BYTES:
                raise ProtocolError(f"a header table of {self._table_limit} bytes, limit {TABLE_BYTES}")
            self._forget()
        return at


def _number(block: bytes, at: int, mask: int) -> tuple[int, int]:
    """A number that begins in the low bits of a byte, and goes on when they are all ones. And where it ends."""
    value = block[at] & mask
    at += 1
    if value < mask:
        return value, at
    for shift in (0, 7, 14, 21):
        byte = block[at]
        at += 1
        value += (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    raise ProtocolError("a number in a header block that is too large")


def _text(block: bytes, at: int) -> tuple[str, int]:
    packed = block[at] & 0x80
    size, start = _number(block, at, 0x7F)
    end = start + size
    if end > len(block):
        raise ProtocolError("a header block that ends in the middle")
    raw = block[start:end]
    text = (huffman.unpack(raw) if packed else raw).decode("latin-1")
    if not (text.isascii() and text.isprintable()):
        raise ProtocolError(f"header text {text[:64]!r}: printable ASCII only")
    return text, end


# -- ours --------------------------------------------------------------------------------------------------


def written(*fields: tuple[str, str]) -> bytes:
    """A block of these fields, none remembered."""
    out = bytearray()
    for name, value in fields:
        for usual, field in enumerate(_USUAL, 1):
            if field == (name, value):
                out.append(0x80 | usual)
                break
        else:
            out.append(0)
            for text in (name.encode("ascii"), value.encode("ascii")):
                out += _length(len(text)) + text
    return bytes(out)


def _length(size: int) -> bytes:
    if size < 0x7F:
        return bytes((size,))
    size -= 0x7F
    out = bytearray((0x7F,))
    while size >= 0x80:
        out.append(size & 0x7F | 0x80)
        size >>= 7
    out.append(size)
    return bytes(out)
