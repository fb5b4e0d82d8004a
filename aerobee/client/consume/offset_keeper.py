# SPDX-License-Identifier: Apache-2.0
"""How far a group has consumed each queue: in memory first, then with the broker (clustering) or in a local file
(broadcasting). Nothing stored is None; a store that cannot be read raises."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from aerobee.client.session.outages import level
from aerobee.errors import AerobeeError, ProtocolError, QueryNotFound
from aerobee.protocol import bodies
from aerobee.protocol.headers.offsets import OffsetResult, QueryConsumerOffset, UpdateConsumerOffset

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from aerobee.client.session.session import Session
    from aerobee.protocol.bodies import MessageQueue

log = logging.getLogger("aerobee.client.offsets")

MEMORY_ONLY = -1


class OffsetMemory:
    """The offsets this client has reached. A frozen entry refuses all updates until it is removed: it was repaired
    and a handler still running must not undo that."""

    def __init__(self) -> None:
        self._offsets: dict[MessageQueue, int] = {}
        self._frozen: set[MessageQueue] = set()

    def get(self, queue: MessageQueue) -> int | None:
        return self._offsets.get(queue)

    def set(self, queue: MessageQueue, offset: int) -> None:
        """May go back."""
        if queue not in self._frozen:
            self._offsets[queue] = offset

    def raise_to(self, queue: MessageQueue, offset: int) -> None:
        """Never goes back."""
        if offset > self._offsets.get(queue, -1) and queue not in self._frozen:
            self._offsets[queue] = offset

    def freeze(self, queue: MessageQueue, offset: int) -> None:
        self.set(queue, offset)
        self._frozen.add(queue)

    def remove(self, queue: MessageQueue) -> None:
        self._offsets.pop(queue, None)
        self._frozen.discard(queue)

    def keep_only(self, queues: Collection[MessageQueue]) -> None:
        for queue in self._offsets.keys() - set(queues):
            self.remove(queue)

    def snapshot(self) -> dict[MessageQueue, int]:
        return dict(self._offsets)


class OffsetStore(Protocol):
    """Where offsets outlive the client."""

    memory: OffsetMemory

    def load(self) -> None: ...
    async def read(self, queue: MessageQueue) -> int | None: ...
    async def persist(self, queues: Collection[MessageQueue]) -> None: ...
    async def persist_one(self, queue: MessageQueue) -> None: ...


async def read_memory_first(store: OffsetStore, queue: MessageQueue) -> int | None:
    known = store.memory.get(queue)
    return known if known is not None else await store.read(queue)


class RemoteOffsets:
    """With the broker of each queue. Updates are one-way, as a lost one only repeats messages."""

    def __init__(self, session: Session, group: str) -> None:
        self._session = session
        self._group = group
        self.memory = OffsetMemory()

    def load(self) -> None:
        """Nothing to load: the broker is asked when a queue is taken."""

    async def read(self, queue: MessageQueue) -> int | None:
        header = QueryConsumerOffset(consumer_group=self._group, topic=queue.topic, queue_id=queue.queue_id)
        address = await self._session.master(queue.broker_name, queue.topic)
        try:
            answer = await self._session.call(
                address, header, timeout_ms=self._session.options.offset_timeout_ms
            )
        except QueryNotFound:
            return None
        offset = answer.fields(OffsetResult).offset
        self.memory.set(queue, offset)
        return offset

    async def persist(self, queues: Collection[MessageQueue]) -> None:
        """Report every owned queue; what is not owned any more is forgotten."""
        self.memory.keep_only(queues)
        for queue in queues:
            await self.persist_one(queue)

    async def persist_one(self, queue: MessageQueue) -> None:
        offset = self.memory.get(queue)
        if offset is None:
            return
        try:
            await self.update(queue, offset)
        except AerobeeError as error:
            log.log(
                level(error),
                "offset not reported group=%s queue=%s offset=%d: %s",
                self._group,
                queue,
                offset,
                error,
            )

    async def update(self, queue: MessageQueue, offset: int) -> None:
        address = self._session.routes.address(queue.broker_name)
        address = address or await self._session.master(queue.broker_name, queue.topic)
        header = UpdateConsumerOffset(
            consumer_group=self._group, topic=queue.topic, queue_id=queue.queue_id, commit_offset=offset
        )
        await self._session.send(address, header)


class LocalOffsets:
    """In `offsets.json` under the user's home, in Java's format; the version before stays as `.bak`."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._backup = path.with_name(path.name + ".bak")
        self._stored: dict[MessageQueue, int] = {}
        self._is_behind = False  # the file, of `_stored`
        self._writing = threading.Lock()  # a write goes on when the one who waited for it is cancelled
        self._begun = self._written = 0
        self.memory = OffsetMemory()

    @classmethod
    def at(cls, directory: str, client_id: str, group: str) -> LocalOffsets:
        root = Path(directory) if directory else Path.home() / ".rocketmq_offsets"
        return cls(root / client_id / group / "offsets.json")

    def load(self) -> None:
        """A missing or broken file falls back to `.bak`; a broken `.bak` stops the consumer's start."""
        try:
            found = _parse(self._path.read_bytes())
        except (FileNotFoundError, ProtocolError) as error:
            if isinstance(error, ProtocolError):
                log.warning("offsets in file=%s are unreadable, using .bak: %s", self._path, error)
            found = _parse(self._backup.read_bytes()) if self._backup.exists() else {}
        self._stored = dict(found)
        for queue, offset in found.items():
            self.memory.set(queue, offset)

    async def read(self, queue: MessageQueue) -> int | None:
        offset = self._stored.get(queue)
        if offset is not None:
            self.memory.set(queue, offset)
        return offset

    async def persist(self, queues: Collection[MessageQueue]) -> None:
        """Merge the owned queues into what the file holds. A disk that refuses is tried again the next time."""
        changed = {q: o for q in queues if (o := self.memory.get(q)) is not None and self._stored.get(q) != o}
        if not changed and not self._is_behind:
            return
        self._stored |= changed
        self._is_behind = True  # also for who comes after one that was cancelled here
        self._begun += 1
        data = bodies.encode(bodies.ResetOffsetBody(offset_table=self._stored))
        try:
            await asyncio.to_thread(self._write_in_turn, data, self._begun)
        except OSError as error:
            log.warning("offsets not written file=%s, trying on: %s", self._path, error)
        else:
            self._is_behind = False

    async def persist_one(self, queue: MessageQueue) -> None:
        await self.persist([queue])

    def _write_in_turn(self, data: bytes, number: int) -> None:
        with self._writing:
            if number > self._written:  # else a later one, which holds all of it, came first
                self._write(data)
                self._written = number

    def _write(self, data: bytes) -> None:
        # Temporary file, old one to .bak, rename: a power cut leaves one readable file.
        for directory in reversed(self._path.parents):
            if not directory.exists():
                directory.mkdir(mode=0o700, exist_ok=True)
        temporary = self._path.with_name(self._path.name + ".tmp")
        with open(temporary, "wb", opener=_private) as out:
            out.write(data)
            out.flush()
            os.fsync(out.fileno())
        if self._path.exists():
            self._path.replace(self._backup)
        temporary.replace(self._path)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _parse(data: bytes) -> Mapping[MessageQueue, int]:
    if not data.strip():
        raise ProtocolError("the offset file is empty")
    return bodies.decode(data, bodies.ResetOffsetBody).offset_table
