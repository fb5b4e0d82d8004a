# SPDX-License-Identifier: Apache-2.0
"""JSON as fastjson, RocketMQ's library, reads and writes it.

It writes integer keys bare (`{0:"a"}`) and object keys as objects (`{{"queueId":0}:5}`), leaves null members
out and orders members by name. It reads either form, names of enumeration members in any case, their ordinals
too, and numbers where text is declared. Standard bodies take msgspec's C path both ways; only the others pay.
"""

from __future__ import annotations

import re
from enum import Enum, EnumMeta
from json.decoder import scanstring  # type: ignore[attr-defined]
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from msgspec import inspect

from aerobee.errors import ProtocolError

if TYPE_CHECKING:
    from collections.abc import Callable

MAX_SIZE = 64 * 1024 * 1024
MAX_DEPTH = 64
MAX_VALUES = 4_000_000  # the tolerant parser builds Python objects: a bound on how many
# What a server reads of a request, from whoever: some 50 ms of its loop at most, whatever the body holds.
MAX_REQUEST_SIZE = 4 * 1024 * 1024
MAX_REQUEST_VALUES = 60_000
MAX_REQUEST_TOLERATED = 20_000  # values in a body that only the tolerant parser can read

T = TypeVar("T")
_NONE = inspect.NoneType()


class Dialect(Enum):
    JAVA = "integer and object keys bare"
    STANDARD = "every key quoted"


# -- reading ----------------------------------------------------------------------------------------

_decoders: dict[Any, msgspec.json.Decoder[Any] | None] = {}
_infos: dict[Any, inspect.Type] = {}


def decode_request(data: bytes, kind: type[T]) -> T:
    """As `decode`, for a server: a body that would take long is refused before it is read."""
    check_request(data)
    return decode(data, kind, MAX_REQUEST_TOLERATED)


def parse_request(data: bytes) -> Any:
    """As `parse`, for a server."""
    check_request(data)
    return parse(data, MAX_REQUEST_TOLERATED)


def check_request(data: bytes) -> None:
    if len(data) > MAX_REQUEST_SIZE:
        raise ProtocolError(f"JSON request of {len(data)} bytes, limit {MAX_REQUEST_SIZE}; send several")
    check_values(data, MAX_REQUEST_VALUES)


def check_values(data: bytes, most: int) -> None:
    """All values but the first follow one of three signs: counting these is a bound, and costs next to nothing."""
    values = data.count(b",") + data.count(b"{") + data.count(b"[")
    if values > most:
        raise ProtocolError(f"JSON request of {values} values, limit {most}; send several")


def decode(data: bytes | memoryview, kind: type[T], tolerated: int = MAX_VALUES) -> T:
    """A body as `kind`: unknown members ignored, missing and null ones defaulted. Garbage: ProtocolError."""
    if len(data) > MAX_SIZE:
        raise ProtocolError(f"JSON of {len(data)} bytes, limit {MAX_SIZE}")
    decoder = _decoder(kind)
    if decoder is not None:
        try:
            return decoder.decode(data)  # type: ignore[no-any-return]
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            pass  # not standard JSON, or Java's idea of the types
    try:
        return msgspec.convert(_coerce(parse(data, tolerated), _info(kind)), kind, strict=False)
    except (msgspec.ValidationError, UnicodeDecodeError, RecursionError, OverflowError) as error:
        raise ProtocolError(f"{getattr(kind, '__name__', kind)}: {error}") from None


def _decoder(kind: Any) -> msgspec.json.Decoder[Any] | None:
    if kind not in _decoders:
        try:
            _decoders[kind] = msgspec.json.Decoder(kind, strict=False)
        except TypeError:  # keyed by objects, which standard JSON cannot be
            _decoders[kind] = None
    return _decoders[kind]


def _info(kind: Any) -> inspect.Type:
    if kind not in _infos:
        _infos[kind] = inspect.type_info(kind)
    return _infos[kind]


def _coerce(value: Any, info: inspect.Type) -> Any:
    """Nulls dropped, enumeration names and ordinals resolved, numbers to text where text is declared."""
    if isinstance(info, inspect.UnionType):
        # Only `X | None` is used.
        info = next(inner for inner in info.types if not isinstance(inner, inspect.NoneType))
    if isinstance(value, dict):
        return _coerce_members(value, info)
    if isinstance(value, list):
        if not isinstance(info, (inspect.ListType, inspect.SetType, inspect.FrozenSetType)):
            return value
        return [_coerce(item, info.item_type) for item in value if item is not None]
    if isinstance(info, inspect.EnumType):
        return _member(value, info.cls)
    if isinstance(info, inspect.StrType) and isinstance(value, (int, float)):
        return str(value).lower() if isinstance(value, bool) else str(value)
    return value


def _coerce_members(value: dict[Any, Any], info: inspect.Type) -> Any:
    if isinstance(info, inspect.DictType):
        keys, values = info.key_type, info.value_type
        return {_coerce_key(k, keys): _coerce(v, values) for k, v in value.items() if v is not None}
    if not isinstance(info, inspect.StructType):
        return value
    kept = {}
    for field in info.fields:
        member = value.get(field.encode_name)
        if member is not None:
            member = _coerce(member, field.type)
            if member is not None:
                kept[field.encode_name] = member
    return kept


def _coerce_key(key: Any, info: inspect.Type) -> Any:
    if not isinstance(info, inspect.StructType):
        return key
    if isinstance(key, str):  # fastjson also reads the object as quoted text
        key = parse(key.encode(errors="surrogatepass")) if key.startswith("{") else key
    elif isinstance(key, tuple):
        key = dict(key)
    return msgspec.convert(_coerce(key, info), info.cls, strict=False)


def _member(value: Any, kind: EnumMeta) -> Any:
    """Java reads an unknown name as null, so the member's default stands."""
    members = list(kind)  # type: ignore[var-annotated]
    if isinstance(value, int) and not isinstance(value, bool):
        return members[value].value if 0 <= value < len(members) else None
    if isinstance(value, str):
        return next((m.value for m in members if m.value.upper() == value.upper()), None)
    return None


_token = re.compile(r"[ \t\r\n]*(?:(-?\d+(\.\d+)?([eE][-+]?\d+)?)|(true|false|null)|(.?))", re.DOTALL).match
_WORDS = {"true": True, "false": False, "null": None}
_MAX_DIGITS = 400
_parse_standard = msgspec.json.Decoder().decode


def parse(data: bytes | memoryview | str, tolerated: int = MAX_VALUES) -> Any:
    """Any JSON, with Java's bare keys. An object key becomes a tuple of its (name, value) pairs."""
    if len(data) > MAX_SIZE:
        raise ProtocolError(f"JSON of {len(data)} bytes, limit {MAX_SIZE}")
    if len(data) <= 2 * MAX_VALUES:  # a value takes two bytes at least
        try:
            return _parse_standard(data)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            pass  # Java's idea of it, or none at all
    try:
        text = data if isinstance(data, str) else str(data, "utf-8")
        return _Parser(text, tolerated).whole()
    except (ValueError, RecursionError) as error:  # JSONDecodeError and UnicodeDecodeError are ValueErrors
        raise ProtocolError(f"JSON: {error}") from None


class _Parser:
    """Recursive descent, bounded in depth and in the number of values."""

    __slots__ = ("_at", "_left", "_limit", "_text")

    def __init__(self, text: str, max_values: int) -> None:
        self._text = text
        self._at = 0
        self._left = self._limit = max_values

    def whole(self) -> Any:
        """What follows the first value (a newline, zero bytes) is not looked at, as in fastjson."""
        return self._value(0)

    def _value(self, depth: int) -> Any:
        found = _token(self._text, self._at)
        assert found is not None  # every part of the pattern may be empty
        self._left -= 1
        if self._left < 0:
            raise ValueError(f"more than {self._limit} values")
        number, fraction, exponent, word, mark = found.groups()
        self._at = found.end()
        if number is not None:
            if len(number) > _MAX_DIGITS:
                raise ValueError(f"number of {len(number)} digits")
            return float(number) if fraction or exponent else int(number)
        if word is not None:
            return _WORDS[word]
        if mark == '"':
            return self._string()
        if depth >= MAX_DEPTH:
            raise ValueError(f"nested deeper than {MAX_DEPTH}")
        if mark == "{":
            return self._object(depth + 1)
        if mark == "[":
            return self._array(depth + 1)
        raise ValueError(f"{mark!r} at {self._at - 1} begins no value")

    def _string(self) -> str:
        value: str
        value, self._at = scanstring(self._text, self._at, False)
        if not value.isascii():
            value.encode()  # half a surrogate pair is no text: refused here, not when it is written
        return value

    def _object(self, depth: int) -> dict[Any, Any]:
        members: dict[Any, Any] = {}
        if self._mark() == "}":
            return members
        self._at -= 1
        while True:
            key = self._value(depth)
            if isinstance(key, dict):
                key = _hashable(key)
            elif isinstance(key, (list, float)):
                raise ValueError(f"a key before {self._at} is neither text nor a whole number nor an object")
            if self._mark() != ":":
                raise ValueError(f"no ':' after the key before {self._at}")
            members[key] = self._value(depth)
            mark = self._mark()
            if mark == "}":
                return members
            if mark != ",":
                raise ValueError(f"neither ',' nor '}}' at {self._at - 1}")

    def _array(self, depth: int) -> list[Any]:
        items: list[Any] = []
        if self._mark() == "]":
            return items
        self._at -= 1
        while True:
            items.append(self._value(depth))
            mark = self._mark()
            if mark == "]":
                return items
            if mark != ",":
                raise ValueError(f"neither ',' nor ']' at {self._at - 1}")

    def _mark(self) -> str:
        """The next sign that is not white space; empty at the end."""
        text, at = self._text, self._at
        while text[at : at + 1] in (" ", "\t", "\r", "\n"):
            at += 1
        self._at = at + 1
        return text[at : at + 1]


def _hashable(key: dict[Any, Any]) -> tuple[tuple[Any, Any], ...]:
    if any(isinstance(value, (dict, list)) for value in key.values()):
        raise ValueError("an object key holds another object or an array")
    return tuple(key.items())


# -- writing ----------------------------------------------------------------------------------------

_writers: dict[tuple[Any, Dialect], Callable[[Any], bytes]] = {}


def encode(value: Any, dialect: Dialect = Dialect.JAVA) -> bytes:
    """A struct as compact JSON, members in the order declared, None left out."""
    kind = type(value), dialect
    writer = _writers.get(kind)
    if writer is None:
        writer = _writers[kind] = _writer(inspect.type_info(type(value)), dialect)
    return writer(value)


def _writer(info: inspect.Type, dialect: Dialect) -> Callable[[Any], bytes]:
    if _is_plain(info, dialect):
        return msgspec.json.encode
    if isinstance(info, inspect.UnionType):
        return _writer(next(t for t in info.types if not isinstance(t, inspect.NoneType)), dialect)
    if isinstance(info, inspect.StructType):
        return _struct_writer(info, dialect)
    if isinstance(info, inspect.DictType):
        return _dict_writer(info, dialect)
    assert isinstance(info, inspect.ListType), f"{info} in a body"
    item = _writer(info.item_type, dialect)
    return lambda value: b"[%b]" % b",".join([item(one) for one in value])


def _is_plain(info: inspect.Type, dialect: Dialect) -> bool:
    """Whether msgspec alone writes it as Java does: no member may be None, every key is text."""
    if isinstance(info, inspect.StructType):
        return all(_is_plain(field.type, dialect) for field in info.fields)
    if isinstance(info, inspect.DictType):
        text_key = isinstance(info.key_type, inspect.StrType)
        whole_key = isinstance(info.key_type, inspect.IntType) and dialect is Dialect.STANDARD
        return (text_key or whole_key) and _is_plain(info.value_type, dialect)
    if isinstance(info, inspect.ListType):
        return _is_plain(info.item_type, dialect)
    return not isinstance(info, inspect.UnionType)


def _struct_writer(info: inspect.StructType, dialect: Dialect) -> Callable[[Any], bytes]:
    members = [
        (f.name, msgspec.json.encode(f.encode_name) + b":", _writer(f.type, dialect)) for f in info.fields
    ]

    def write(value: Any) -> bytes:
        found = [(name, each, getattr(value, attribute)) for attribute, name, each in members]
        return b"{%b}" % b",".join(
            [name + each(member) for name, each, member in found if member is not None]
        )

    return write


def _dict_writer(info: inspect.DictType, dialect: Dialect) -> Callable[[Any], bytes]:
    one = _writer(info.value_type, dialect)
    if isinstance(info.key_type, inspect.StructType):
        quote = _quote_object if dialect is Dialect.STANDARD else msgspec.json.encode
        return lambda value: b"{%b}" % b",".join([b"%b:%b" % (quote(k), one(v)) for k, v in value.items()])
    if isinstance(info.key_type, inspect.IntType) and dialect is Dialect.JAVA:
        if isinstance(info.value_type, inspect.IntType):
            # Only the keys have quotes, so taking all quotes away leaves them bare.
            return lambda value: msgspec.json.encode(value).replace(b'"', b"")
        return lambda value: b"{%b}" % b",".join([b"%d:%b" % (k, one(v)) for k, v in value.items()])
    return lambda value: (
        b"{%b}" % b",".join([b"%b:%b" % (msgspec.json.encode(str(k)), one(v)) for k, v in value.items()])
    )


def _quote_object(key: Any) -> bytes:
    return msgspec.json.encode(msgspec.json.encode(key).decode())
