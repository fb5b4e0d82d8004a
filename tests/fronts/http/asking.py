# SPDX-License-Identifier: Apache-2.0
"""A few lines of HTTP, so that a test says exactly what goes over the wire."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import ssl


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def text(self) -> str:
        return self.body.decode()


async def ask(
    address: str,
    path: str,
    *,
    method: str = "GET",
    headers: dict[str, str] | None = None,
    body: bytes = b"",
    tls: ssl.SSLContext | None = None,
) -> Answer:
    """One request on a connection of its own."""
    reader, writer = await connect(address, tls)
    try:
        said = {"host": address, "connection": "close", **(headers or {})}
        if body:
            said["content-length"] = str(len(body))
        lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in said.items())]
        writer.write("\r\n".join([*lines, "", ""]).encode() + body)
        async with asyncio.timeout(30):
            return await read_answer(reader)
    finally:
        writer.close()


async def act(address: str, path: str, given: Any, **more: str) -> Answer:
    headers = {"content-type": "application/json", **more}
    return await ask(address, path, method="POST", headers=headers, body=json.dumps(given).encode())


async def connect(
    address: str, tls: ssl.SSLContext | None = None
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    host, _, port = address.rpartition(":")
    return await asyncio.open_connection(host, int(port), ssl=tls)


async def read_answer(reader: asyncio.StreamReader) -> Answer:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    status = int(head[0].split(" ")[1])
    headers = {
        name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:] if line)
    }
    if "content-length" in headers:
        body = await reader.readexactly(int(headers["content-length"]))
    elif headers.get("transfer-encoding") == "chunked":
        body = b""
        while size := int(await reader.readline(), 16):
            body += (await reader.readexactly(size + 2))[:-2]
    else:
        body = await reader.read()
    return Answer(status, headers, body)
