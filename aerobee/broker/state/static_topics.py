# SPDX-License-Identifier: Apache-2.0
"""Which topics are static, and their mappings, kept in RocketMQ's topicQueueMapping.json."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from aerobee.protocol.bodies import QueueMapping, QueueMappings, decode, encode
from aerobee.store.metadata import JsonFile

if TYPE_CHECKING:
    from pathlib import Path


class StaticTopics:
    """Changed by operators only, and rarely: each change is on disk when it returns."""

    def __init__(self, directory: Path) -> None:
        self._file = JsonFile(directory / "topicQueueMapping.json", _decode)
        data = self._file.load()
        self._stored = QueueMappings() if data is None else _decode(data)

    def get(self, topic: str) -> QueueMapping | None:
        return self.all().get(topic)

    def all(self) -> dict[str, QueueMapping]:
        return self._stored.topic_queue_mapping_info_map

    def put(self, mapping: QueueMapping) -> None:
        self.all()[mapping.topic] = mapping
        self._save()

    def delete(self, topic: str) -> None:
        if self.all().pop(topic, None) is not None:
            self._save()

    def _save(self) -> None:
        version = self._stored.data_version
        self._stored.data_version = msgspec.structs.replace(version, counter=version.counter + 1)
        self._file.save(encode(self._stored))


def _decode(data: bytes) -> QueueMappings:
    return decode(data, QueueMappings)
