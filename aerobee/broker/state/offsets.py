# SPDX-License-Identifier: Apache-2.0
"""How far each group has come in each queue, kept in consumerOffset.json.

Three values per group, topic and queue: the committed offset (what a restart goes on from), the pulled offset (the
next one a pull will ask for; memory only), and at times a reset that waits for the group's next pull or query.

Commits reach the file every few seconds; what an operator moved or removed, before he is answered.
"""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING

import msgspec

from aerobee.protocol.bodies import ConsumerOffsets, DataVersion, decode
from aerobee.store.metadata import JsonFile
from aerobee.store.saved_table import SavedTable

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping
    from pathlib import Path

    from aerobee.clock import Clock

log = logging.getLogger("aerobee.offsets")

_BARE_KEY = re.compile(rb"([{,]\s*)(-?\d+)\s*:")

Queues = dict[int, int]
_NONE: Queues = {}
Names = set[str]  # `set` itself is a method here


class Offsets(SavedTable):
    def __init__(
        self, directory: Path, clock: Clock, log_on_disk: Callable[[], Awaitable[None]] | None = None
    ) -> None:
        file = JsonFile(directory / "consumerOffset.json", _decode)
        super().__init__(file, log_on_disk)
        self._clock = clock
        self._table: dict[tuple[str, str], Queues] = {}  # (group, topic) -> queue -> committed offset
        self._pulled: dict[tuple[str, str], Queues] = {}
        self._resets: dict[tuple[str, str], Queues] = {}
        self.resets = 0  # how many there have been
        self._topics_of: dict[str, set[str]] = {}
        self._groups_of: dict[str, set[str]] = {}
        self.data_version = DataVersion(timestamp=clock.now())
        data = file.load()
        if data is not None:
            self._restore(_decode(data))

    def _restore(self, stored: ConsumerOffsets) -> None:
        self.data_version = stored.data_version
        for key, queues in stored.offset_table.items():
            topic, _, group = key.partition("@")
            if topic and group:
                self._queues(group, topic).update(queues)

    # -- committed ---------------------------------------------------------------------------------------

    def get(self, group: str, topic: str, queue_id: int) -> int:
        """The committed offset, or -1."""
        queues = self._table.get((group, topic))
        return -1 if queues is None else queues.get(queue_id, -1)

    def of(self, group: str, topic: str) -> Mapping[int, int]:
        """The committed offsets of a topic's queues, as they stand: to look at, not to keep."""
        return self._table.get((group, topic), _NONE)

    def set(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        queues = self._table.get((group, topic))
        if queues is None:
            queues = self._queues(group, topic)
        before = queues.get(queue_id, -1)
        queues[queue_id] = offset
        # `changed` written out: every ack and every pull that commits comes here.
        self._changes += 1
        self.unsaved[None] = self._changes
        if offset < before:
            # Allowed, as in RocketMQ: a consumer that starts again, or an operator, may go back.
            log.warning(
                "offset moved back group=%s topic=%s queue=%d from=%d to=%d",
                group,
                topic,
                queue_id,
                before,
                offset,
            )

    def table(self, group: str, topic: str) -> Queues:
        return dict(self._table.get((group, topic), {}))

    def topics_of(self, group: str) -> Names:
        return set(self._topics_of.get(group, ()))

    def groups_of(self, topic: str) -> Names:
        return set(self._groups_of.get(topic, ()))

    def groups(self) -> Names:
        return set(self._topics_of)

    def remove_topic(self, topic: str) -> None:
        for group in self.groups_of(topic):
            self._remove(group, topic)

    def remove_group(self, group: str) -> None:
        for topic in self.topics_of(group):
            self._remove(group, topic)

    def clone(self, source: str, target: str, topic: str) -> None:
        """Give `target` the offsets that `source` has on the topic."""
        queues = self._table.get((source, topic))
        if queues:
            self._queues(target, topic).update(queues)
            self.changed()

    # -- pulled ------------------------------------------------------------------------------------------

    def pulled(self, group: str, topic: str, queue_id: int, next_offset: int) -> None:
        key = (group, topic)
        queues = self._pulled.get(key)
        if queues is None:
            queues = self._pulled[key] = {}
        queues[queue_id] = next_offset

    def pull_offset(self, group: str, topic: str, queue_id: int) -> int:
        """The next offset the group's last pull was told to ask for, or -1."""
        queues = self._pulled.get((group, topic))
        return -1 if queues is None else queues.get(queue_id, -1)

    # -- resets ------------------------------------------------------------------------------------------

    def set_reset(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Move the group: committed now, and told to its consumer at the next pull."""
        self.resets += 1
        self._resets.setdefault((group, topic), {})[queue_id] = offset
        self._queues(group, topic)[queue_id] = offset
        self._pulled.get((group, topic), {}).pop(queue_id, None)
        self.changed()
        log.info("reset group=%s topic=%s queue=%d offset=%d", group, topic, queue_id, offset)

    def has_reset(self, group: str, topic: str, queue_id: int) -> bool:
        queues = self._resets.get((group, topic)) if self._resets else None
        return queues is not None and queue_id in queues

    def take_reset(self, group: str, topic: str, queue_id: int) -> int | None:
        """The pending reset, which is thereby no longer pending."""
        queues = self._resets.get((group, topic)) if self._resets else None
        if queues is None:
            return None
        offset = queues.pop(queue_id, None)
        if not queues:
            del self._resets[group, topic]
        return offset

    # -- the file ----------------------------------------------------------------------------------------

    def text(self) -> bytes:
        """What consumerOffset.json is to hold, as a new version of it, with Java's bare integer keys."""
        self.data_version = self.data_version.next(self._clock.now())
        return self.document()

    def document(self) -> bytes:
        """The same as it stands."""
        version = msgspec.json.encode(self.data_version).decode()
        rows = []
        for (group, topic), queues in self._table.items():
            inner = ",".join([f"{queue_id}:{offset}" for queue_id, offset in sorted(queues.items())])
            rows.append(f'\n  "{topic}@{group}":{{{inner}}}')
        return f'{{"dataVersion":{version},\n "offsetTable":{{{",".join(rows)}\n }}\n}}\n'.encode()

    def _queues(self, group: str, topic: str) -> Queues:
        queues = self._table.get((group, topic))
        if queues is None:
            queues = self._table[group, topic] = {}
            self._topics_of.setdefault(group, set()).add(topic)
            self._groups_of.setdefault(topic, set()).add(group)
        return queues

    def _remove(self, group: str, topic: str) -> None:
        key = (group, topic)
        self._pulled.pop(key, None)
        self._resets.pop(key, None)
        if self._table.pop(key, None) is None:
            return
        self.changed()
        for index, of, what in ((self._topics_of, group, topic), (self._groups_of, topic, group)):
            members = index[of]
            members.discard(what)
            if not members:
                del index[of]


def _decode(data: bytes) -> ConsumerOffsets:
    # The bare keys are quoted first, or the tolerant parser would take seconds for 80,000 queues.
    return decode(_BARE_KEY.sub(rb'\1"\2":', data), ConsumerOffsets)
