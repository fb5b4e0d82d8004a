# SPDX-License-Identifier: Apache-2.0
"""A TCP proxy that keeps the remoting frames passing through it, and the choice of a few as golden bytes.

Route answers name the broker's own address; the recorder in front of a name server swaps it for that of the
recorder in front of the broker. Both have the same length, so nothing else of the frame changes.
"""

from __future__ import annotations

import json
import socket
import struct
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

HOST = "127.0.0.1"
RESPONSE, ONE_WAY = 1, 2
JSON_HEADER = 0


@dataclass(frozen=True)
class Frame:
    """One frame as it was on the wire, with its four length bytes."""

    port: int
    connection: int
    from_client: bool
    data: bytes
    code: int
    opaque: int
    flag: int

    @property
    def is_response(self) -> bool:
        return bool(self.flag & RESPONSE)


def parse(port: int, connection: int, data: bytes, *, from_client: bool) -> Frame:
    (info,) = struct.unpack_from(">I", data, 4)
    header = data[8 : 8 + (info & 0xFFFFFF)]
    if info >> 24 == JSON_HEADER:
        fields = json.loads(header, strict=False)
        return Frame(port, connection, from_client, data, fields["code"], fields["opaque"], fields["flag"])
    code, _language, _version, opaque, flag = struct.unpack_from(">hbhii", header)
    return Frame(port, connection, from_client, data, code, opaque, flag)


class Recorder:
    """Listens on one port, passes everything to `target`, keeps every frame of both directions."""

    def __init__(self, target: str, swap: tuple[str, str] | None = None) -> None:
        host, _, target_port = target.rpartition(":")
        self.target = (host, int(target_port))
        self.swap = swap
        self.frames: list[Frame] = []
        self._lock = threading.Lock()
        self._sockets: list[socket.socket] = []
        self._connections = 0
        self.listener = socket.create_server((HOST, 0))
        self.address = f"{HOST}:{self.listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(self.target, 5)
            except OSError:
                client.close()
                continue
            server.settimeout(None)
            self._connections += 1
            self._sockets += [client, server]
            for source, sink, from_client in ((client, server, True), (server, client, False)):
                threading.Thread(
                    target=self._pump, args=(source, sink, self._connections, from_client), daemon=True
                ).start()

    def _pump(self, source: socket.socket, sink: socket.socket, connection: int, from_client: bool) -> None:
        buffer = bytearray()
        try:
            while data := source.recv(1 << 16):
                buffer += data
                for frame in self._cut(buffer, from_client):
                    sink.sendall(frame)
                    with self._lock:
                        self.frames.append(parse(self.target[1], connection, frame, from_client=from_client))
        except OSError:
            pass
        finally:
            for each in (source, sink):
                each.close()

    def _cut(self, buffer: bytearray, from_client: bool) -> Iterator[bytes]:
        while len(buffer) >= 4:
            size = 4 + struct.unpack_from(">I", buffer)[0]
            if len(buffer) < size:
                return
            frame = bytes(buffer[:size])
            del buffer[:size]
            if self.swap and not from_client:
                old, new = self.swap
                if len(old) != len(new):
                    raise ValueError(f"{old} and {new} differ in length")
                frame = frame.replace(old.encode(), new.encode())
            yield frame

    def close(self) -> None:
        self.listener.close()
        for each in self._sockets:
            each.close()


def exchanges(frames: list[Frame]) -> list[tuple[Frame, Frame | None]]:
    """Each request with its answer; a one-way request has none."""
    answers = {
        (frame.port, frame.connection, frame.from_client, frame.opaque): frame
        for frame in frames
        if frame.is_response
    }
    return [
        (frame, answers.get((frame.port, frame.connection, not frame.from_client, frame.opaque)))
        for frame in frames
        if not frame.is_response
    ]


def choose(frames: list[Frame], limit: int = 4096) -> list[tuple[Frame, Frame | None]]:
    """The first small exchange for each request code and answer code."""
    chosen: dict[tuple[int, bool, int | None], tuple[Frame, Frame | None]] = {}
    for request, answer in exchanges(frames):
        if len(request.data) > limit or (answer and len(answer.data) > limit):
            continue
        if answer is None and not request.flag & ONE_WAY:
            continue
        key = (request.code, request.from_client, answer.code if answer else None)
        chosen.setdefault(key, (request, answer))
    return [chosen[key] for key in sorted(chosen, key=lambda each: (each[0], each[1], each[2] or 0))]


def save(client: str, frames: list[Frame], folder: Path) -> list[dict[str, object]]:
    """Write the chosen frames below `folder/client`; the rows of the index."""
    target = folder / client
    target.mkdir(parents=True, exist_ok=True)
    for old in target.glob("*.bin"):
        old.unlink()
    rows: list[dict[str, object]] = []
    for number, (request, answer) in enumerate(choose(frames), 1):
        for frame, word in ((request, "req"), (answer, "resp")):
            if frame is None:
                continue
            name = f"{number:02}-{request.code}-{word}.bin"
            (target / name).write_bytes(frame.data)
            rows.append(
                {
                    "file": f"{client}/{name}",
                    "client": client,
                    "direction": "client-to-server" if frame.from_client else "server-to-client",
                    "kind": "request" if word == "req" else "response",
                    "requestCode": request.code,
                    "code": frame.code,
                    "opaque": frame.opaque,
                    "flag": frame.flag,
                }
            )
    return rows
