# SPDX-License-Identifier: Apache-2.0
"""A remoting peer with a codec of its own: both header forms, written from the protocol's description."""

from __future__ import annotations

import asyncio
import json
import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

JSON, BINARY = 0, 1
LARGEST_BINARY_CODE = 0x7FFF  # a short: the requests of POP only exist with JSON headers
_JAVA, _PYTHON, _VERSION = 0, 3, 479
_RESPONSE = 1


class Answer(NamedTuple):
    code: int = 0
    remark: str | None = None
    fields: Mapping[str, str] = {}
    body: bytes = b""

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Asked(NamedTuple):
    """A request of the broker to its client."""

    code: int
    fields: Mapping[str, str]
    body: bytes


class Frame(NamedTuple):
    code: int
    opaque: int
    flag: int
    language: str | int
    version: int
    remark: str | None
    fields: dict[str, str]
    body: bytes
    form: int


def written(
    form: int,
    code: int,
    opaque: int,
    flag: int,
    fields: Mapping[str, str],
    body: bytes,
    version: int = _VERSION,
) -> bytes:
    if form == JSON:
        head = json.dumps(
            {
                "code": code,
                "extFields": dict(fields),
                "flag": flag,
                "language": "JAVA",
                "opaque": opaque,
                "serializeTypeCurrentRPC": "JSON",
                "version": version,
            }
        ).encode()
    else:
        block = b"".join(
            struct.pack(">h", len(name)) + name + struct.pack(">i", len(value)) + value
            for name, value in ((n.encode(), v.encode()) for n, v in fields.items())
        )
        head = struct.pack(">hBhiii", code, _JAVA, version, opaque, flag, 0)
        head += struct.pack(">i", len(block)) + block
    return struct.pack(">ii", 4 + len(head) + len(body), form << 24 | len(head)) + head + body


def read(frame: bytes) -> Frame:
    (mark,) = struct.unpack_from(">I", frame)
    form, end = mark >> 24, 4 + (mark & 0xFFFFFF)
    head, body = frame[4:end], frame[end:]
    if form == JSON:
        told = json.loads(head)
        assert all(isinstance(value, str) for value in told.get("extFields", {}).values()), told
        return Frame(
            told["code"], told["opaque"], told["flag"], told["language"], told["version"],
            told.get("remark"), told.get("extFields", {}), body, form,
        )  # fmt: skip
    code, language, version, opaque, flag, size = struct.unpack_from(">hBhiii", head)
    at = 17 + size
    remark = head[17:at].decode() if size else None
    (size,) = struct.unpack_from(">i", head, at)
    fields, at, stop = {}, at + 4, at + 4 + size
    assert stop == len(head), "the header ends with its fields"
    while at < stop:
        (size,) = struct.unpack_from(">h", head, at)
        name, at = head[at + 2 : at + 2 + size].decode(), at + 2 + size
        (size,) = struct.unpack_from(">i", head, at)
        fields[name], at = head[at + 4 : at + 4 + size].decode(), at + 4 + size
    return Frame(code, opaque, flag, language, version, remark, fields, body, form)


@dataclass
class Peer:
    """One connection. What the broker asks of it is kept in `asked` and answered with `bodies[code]`, or nothing."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    form: int
    version: int = _VERSION  # of the client it is
    codes: set[int] = field(default_factory=set)
    asked: list[Asked] = field(default_factory=list)
    bodies: dict[int, bytes] = field(default_factory=dict)
    _waiting: dict[int, asyncio.Future[Answer]] = field(default_factory=dict)
    _reading: asyncio.Task[None] | None = None

    @classmethod
    async def dial(cls, address: str, form: int) -> Peer:
        host, _, port = address.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        peer = cls(reader, writer, form)
        peer._reading = asyncio.create_task(peer._read())
        return peer

    async def hang_up(self) -> None:
        assert self._reading is not None
        self._reading.cancel()
        self.writer.close()
        await asyncio.gather(self._reading, return_exceptions=True)

    def start(
        self, code: int, fields: Mapping[str, object] | None = None, body: bytes = b""
    ) -> asyncio.Future[Answer]:
        opaque = 1000 + len(self._waiting)
        self._waiting[opaque] = answer = asyncio.get_running_loop().create_future()
        texts = {name: _text(value) for name, value in (fields or {}).items()}
        form = self.form if code <= LARGEST_BINARY_CODE else JSON
        self.writer.write(written(form, code, opaque, 0, texts, body, self.version))
        self.codes.add(code)
        return asyncio.ensure_future(asyncio.wait_for(answer, 30))

    async def ask(self, code: int, fields: Mapping[str, object] | None = None, body: bytes = b"") -> Answer:
        return await asyncio.wait_for(self.start(code, fields, body), 30)

    async def until(self, true: Callable[[], object]) -> None:
        """The broker has done what it does on its own account; each question to it gives it a turn."""
        async with asyncio.timeout(30):
            while not true():  # noqa: ASYNC110 - the other side has no event to wait for
                await asyncio.sleep(0)

    async def _read(self) -> None:
        while True:
            (size,) = struct.unpack(">i", await self.reader.readexactly(4))
            frame = read(await self.reader.readexactly(size))
            if not frame.flag & _RESPONSE:
                self.asked.append(Asked(frame.code, frame.fields, frame.body))
                body = self.bodies.get(frame.code, b"")
                self.writer.write(written(frame.form, 0, frame.opaque, _RESPONSE, {}, body))
                continue
            answer = self._waiting[frame.opaque]
            if (frame.flag, frame.version) != (_RESPONSE, _VERSION) or frame.language not in (
                "PYTHON",
                _PYTHON,
            ):
                answer.set_exception(AssertionError(f"not the head of an answer: {frame}"))
            else:
                answer.set_result(Answer(frame.code, frame.remark, frame.fields, frame.body))


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
