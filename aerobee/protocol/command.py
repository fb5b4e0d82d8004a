# SPDX-License-Identifier: Apache-2.0
"""One remoting command: a frame's header and body, in JSON or in RocketMQ's binary header.

    length 4 | serialize type 1, header length 3 | header | body        (length counts what follows it)

A header's own fields (`extFields`) stay undecoded until a handler asks for them by type
(`command.fields(Pull)`): one C pass over the JSON, straight into the typed struct.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, dataclass_transform

import msgspec

from aerobee.errors import ProtocolError
from aerobee.protocol import java_json
from aerobee.protocol.codes import LANGUAGES, VERSION

if TYPE_CHECKING:
    from collections.abc import Mapping

MAX_HEADER = 0xFFFFFF  # what its three bytes of length can say
RESPONSE = 1
ONE_WAY = 2

_LENGTHS = struct.Struct(">II")
_BINARY_FIXED = struct.Struct(">hBhiii")  # code, language, version, opaque, flag, remark length
_INT = struct.Struct(">i")
_SHORT = struct.Struct(">h")
_EMPTY = msgspec.Raw(b"{}")
_OTHER = 7
_LANGUAGE_CODE = {name: code for code, name in enumerate(LANGUAGES)}


# Tells type checkers what msgspec does at run time: subclasses are frozen and built by keyword.
@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(msgspec.field,))
class Header(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """The fields of one request or response, declared once; every value travels as text."""

    code: ClassVar[int]


H = TypeVar("H", bound=Header)
_decoders: dict[type[Header], msgspec.json.Decoder[Any]] = {}


class _JsonHeader(msgspec.Struct):
    code: int
    flag: int = 0
    opaque: int = 0
    version: int = 0
    language: str | int | None = None
    remark: str | None = None
    extFields: msgspec.Raw = _EMPTY


class _LooseHeader(msgspec.Struct):
    code: int
    flag: int = 0
    opaque: int = 0
    version: int = 0
    language: str = "OTHER"
    remark: str | None = None
    extFields: dict[str, Any] = {}


_decode_json_header = msgspec.json.Decoder(_JsonHeader, strict=False).decode
_to_json = msgspec.json.Encoder().encode
_as_tuple = msgspec.structs.astuple
_decode_texts = msgspec.json.Decoder(dict[str, str]).decode
_decode_any = msgspec.json.Decoder(dict[str, Any] | None).decode


class Command(msgspec.Struct, gc=False):
    """A decoded frame. `ext` is undecoded JSON, or a dict when the header was binary or built here."""

    code: int
    opaque: int = 0
    flag: int = 0
    version: int = VERSION
    language: str = "PYTHON"
    remark: str | None = None
    ext: msgspec.Raw | dict[str, str] = _EMPTY
    body: bytes = b""
    serialize: int = 0

    @property
    def is_response(self) -> bool:
        return self.flag & RESPONSE != 0

    @property
    def is_one_way(self) -> bool:
        return self.flag & ONE_WAY != 0

    def fields(self, header: type[H]) -> H:
        """The header's fields as `header`; unknown ones are ignored, text becomes numbers and booleans."""
        ext = self.ext
        if type(ext) is not dict:
            decoder = _decoders.get(header)
            if decoder is None:
                decoder = _decoders[header] = msgspec.json.Decoder(header, strict=False)
            try:
                return decoder.decode(ext)  # type: ignore[no-any-return, arg-type]
            except (msgspec.DecodeError, UnicodeDecodeError):
                # Rare: numbers where text is declared (ali-ons), empty text for a number, "TRUE".
                ext = self.ext_dict()
        return convert_fields(ext, header)

    def ext_dict(self) -> dict[str, str]:
        """All header fields as text, as Java would read them."""
        if type(self.ext) is dict:
            return self.ext
        try:
            return _decode_texts(self.ext)  # type: ignore[arg-type]
        except (msgspec.DecodeError, UnicodeDecodeError):
            pass  # nulls and numbers among them, or none at all
        try:
            raw = _decode_any(self.ext) or {}  # type: ignore[arg-type]
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise ProtocolError(f"extFields are not a JSON object: {error}") from None
        return {name: _as_text(value) for name, value in raw.items() if value is not None}


def _as_text(value: Any) -> str:
    if type(value) is str:
        return value
    if value is True or value is False:
        return "true" if value else "false"
    if isinstance(value, (dict, list)):
        return msgspec.json.encode(value).decode()
    return str(value)


def convert_fields(ext: Mapping[str, str], header: type[H]) -> H:
    """Text fields to a typed header; blank text for an optional field counts as absent."""
    try:
        return msgspec.convert(ext, header, strict=False)
    except (msgspec.ValidationError, UnicodeDecodeError) as first:
        kept = {k: (v.lower() if v.lower() in ("true", "false") else v) for k, v in ext.items() if v != ""}
        try:
            return msgspec.convert(kept, header, strict=False)
        except (msgspec.ValidationError, UnicodeDecodeError):
            raise ProtocolError(f"{header.__name__}: {first}") from None


def decode(frame: bytes | memoryview, max_header: int = MAX_HEADER) -> Command:
    """A frame without its 4-byte length."""
    if len(frame) < 4:
        raise ProtocolError(f"frame of {len(frame)} bytes has no header length")
    (info,) = _INT.unpack_from(frame)
    serialize = (info >> 24) & 0xFF
    size = info & 0xFFFFFF
    end = 4 + size
    if end > len(frame):
        raise ProtocolError(f"header of {size} bytes in a frame of {len(frame)}")
    if size > max_header:
        raise ProtocolError(f"header of {size} bytes, limit {max_header}")
    body = frame[end:]
    if type(body) is not bytes:
        body = bytes(body)
    if serialize == 0:
        try:
            head = _decode_json_header(frame[4:end])
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return _decode_loosely(frame[4:end], body)
        language = head.language
        if type(language) is not str:
            language = "OTHER"
        return Command(
            head.code, head.opaque, head.flag, head.version, language, head.remark, head.extFields, body
        )
    if serialize == 1:
        return _decode_binary(bytes(frame[4:end]), body)
    raise ProtocolError(f"serialize type {serialize} is neither JSON (0) nor ROCKETMQ (1)")


def _decode_loosely(data: bytes | memoryview, body: bytes) -> Command:
    """What Java reads and the standard forbids: control characters in text, numbers as a remark."""
    head = java_json.decode(data, _LooseHeader)
    ext = {name: _as_text(value) for name, value in head.extFields.items() if value is not None}
    return Command(head.code, head.opaque, head.flag, head.version, head.language, head.remark, ext, body)


def _decode_binary(head: bytes, body: bytes) -> Command:
    try:
        code, language, version, opaque, flag, remark_size = _BINARY_FIXED.unpack_from(head)
        at = _BINARY_FIXED.size
        remark = _text(head, at, remark_size) if remark_size else None
        at += remark_size
        (ext_size,) = _INT.unpack_from(head, at)
        ext = _decode_binary_fields(head, at + 4, at + 4 + ext_size) if ext_size else {}
    except (struct.error, UnicodeDecodeError) as error:
        raise ProtocolError(f"binary header: {error}") from None
    name = LANGUAGES[language] if language < len(LANGUAGES) else "OTHER"
    return Command(code, opaque, flag, version, name, remark, ext, body, serialize=1)


def _decode_binary_fields(head: bytes, at: int, end: int) -> dict[str, str]:
    if end > len(head):
        raise ProtocolError(f"binary header fields end at {end}, header has {len(head)} bytes")
    fields: dict[str, str] = {}
    while at < end:
        (size,) = _SHORT.unpack_from(head, at)
        name = _text(head, at + 2, size)
        at += 2 + size
        (size,) = _INT.unpack_from(head, at)
        value = _text(head, at + 4, size)
        at += 4 + size
        if name and value:  # Java reads an empty name or value as null
            fields[name] = value
    return fields


def _text(data: bytes, at: int, size: int) -> str:
    if size < 0 or at + size > len(data):
        raise ProtocolError(f"binary header: text of {size} bytes at {at} passes the end {len(data)}")
    return data[at : at + size].decode()


def header_fields(header: Header | None) -> dict[str, str]:
    """A header as wire text: None is left out, defaults are not (Java expects mandatory fields)."""
    if header is None:
        return {}
    values = zip(header.__struct_encode_fields__, _as_tuple(header), strict=True)
    return {
        name: value if type(value) is str else str(value) if type(value) is int else _as_text(value)
        for name, value in values
        if value is not None
    }


def encode(command: Command) -> bytes:
    """The whole frame, in the serialize type of the command."""
    body = command.body
    head = _encode_binary(command) if command.serialize == 1 else _encode_json(command)
    return b"".join(
        (_LENGTHS.pack(4 + len(head) + len(body), command.serialize << 24 | len(head)), head, body)
    )


def _encode_json(command: Command) -> bytes:
    # Members in Java's order; compact, for the clients that scan the text. An answer has its fields even when there
    # are none: the C++ client aborts without them.
    ext = command.ext
    has_fields = (ext and ext is not _EMPTY) or command.flag & RESPONSE
    return (
        b'{"code":%d%b,"flag":%d,"language":%b,"opaque":%d%b,"serializeTypeCurrentRPC":"JSON","version":%d}'
        % (
            command.code,
            b',"extFields":' + _to_json(ext) if has_fields else b"",
            command.flag,
            _to_json(command.language),
            command.opaque,
            b',"remark":' + _to_json(command.remark) if command.remark is not None else b"",
            command.version,
        )
    )


def _encode_binary(command: Command) -> bytes:
    remark = (command.remark or "").encode()
    block = b"".join(
        _SHORT.pack(len(k)) + k + _INT.pack(len(v)) + v
        for k, v in ((k.encode(), v.encode()) for k, v in command.ext_dict().items())
    )
    code = (command.code + 0x8000 & 0xFFFF) - 0x8000  # 16 bits: larger codes do not survive, as in Java
    language = _LANGUAGE_CODE.get(command.language, _OTHER)
    fixed = _BINARY_FIXED.pack(code, language, command.version, command.opaque, command.flag, len(remark))
    return b"".join((fixed, remark, _INT.pack(len(block)), block))


def request(header: Header, body: bytes = b"", *, one_way: bool = False) -> Command:
    """A request to be sent; the connection fills in `opaque`."""
    return Command(type(header).code, flag=ONE_WAY if one_way else 0, ext=header_fields(header), body=body)
