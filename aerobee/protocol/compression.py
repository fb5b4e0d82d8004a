# SPDX-License-Identifier: Apache-2.0
"""Compressed bodies: zlib, lz4 frames and zstd, told apart by bits 8 to 10 of the sysFlag; bounded output."""

from __future__ import annotations

import zlib
from enum import IntEnum

import lz4.frame
import zstandard

from aerobee.errors import ProtocolError
from aerobee.protocol.message import MAX_BODY

_ZLIB_OR_GZIP = zlib.MAX_WBITS | 32  # whichever its first bytes say
COMPRESSED = 0x1
TYPE_MASK = 0x700
_MAX_WINDOW = 2**27


class Compression(IntEnum):
    """The value is the sysFlag bits; no type bits with the compressed bit also mean zlib (old clients)."""

    LZ4 = 0x100
    ZSTD = 0x200
    ZLIB = 0x300


def compress(body: bytes, kind: Compression = Compression.ZLIB, level: int = 5) -> bytes:
    if kind is Compression.ZLIB:
        return zlib.compress(body, level)
    if kind is Compression.LZ4:
        return bytes(lz4.frame.compress(body, compression_level=level, store_size=True))
    return zstandard.ZstdCompressor(level=level).compress(body)


def compressed_flag(sys_flag: int, kind: Compression) -> int:
    return sys_flag & ~TYPE_MASK | COMPRESSED | kind


def decompress(body: bytes, sys_flag: int, limit: int = 4 * MAX_BODY) -> bytes:
    """The body as the producer gave it; ProtocolError when it is damaged or grows past `limit` bytes."""
    if not sys_flag & COMPRESSED:
        return body
    kind = sys_flag & TYPE_MASK
    if kind in (0, Compression.ZLIB):
        return inflate(body, limit)
    if kind == Compression.LZ4:
        return _unlz4(body, limit)
    if kind == Compression.ZSTD:
        return _unzstd(body, limit)
    raise ProtocolError(f"compression type {kind >> 8} is none of 1 lz4, 2 zstd, 3 zlib")


def inflate(data: bytes, limit: int) -> bytes:
    """A whole zlib or gzip stream."""
    stream = zlib.decompressobj(_ZLIB_OR_GZIP)
    try:
        found = stream.decompress(data, limit + 1)
    except zlib.error as error:
        raise ProtocolError(f"zlib: {error}") from None
    _check(len(found), limit, "zlib", complete=stream.eof)
    return found


def _unlz4(data: bytes, limit: int) -> bytes:
    stream = lz4.frame.LZ4FrameDecompressor()
    try:
        found = bytes(stream.decompress(data, max_length=limit + 1))
    except (RuntimeError, EOFError, ValueError, MemoryError) as error:
        raise ProtocolError(f"lz4: {error}") from None
    _check(len(found), limit, "lz4", complete=stream.eof)
    return found


def _unzstd(data: bytes, limit: int) -> bytes:
    try:
        declared = zstandard.frame_content_size(data)  # -1: Java's streams do not say
        if declared > limit:
            raise ProtocolError(f"zstd body grows past {limit} bytes")
        # A new one each time: they are not for several threads.
        return zstandard.ZstdDecompressor(max_window_size=_MAX_WINDOW).decompress(data, max_output_size=limit)
    except (zstandard.ZstdError, MemoryError) as error:
        if "too small" in str(error):
            raise ProtocolError(f"zstd body grows past {limit} bytes") from None
        raise ProtocolError(f"zstd: {error}") from None


def _check(size: int, limit: int, what: str, *, complete: bool) -> None:
    if size > limit:
        raise ProtocolError(f"{what} body grows past {limit} bytes")
    if not complete:
        raise ProtocolError(f"{what} body is cut short after {size} bytes")
