# SPDX-License-Identifier: Apache-2.0
"""PULL or POP, per topic and group, as an operator set it. Kept in messageRequestMode.json, saved at each change."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import msgspec

from aerobee.protocol import java_json, names
from aerobee.protocol.bodies import Mode, RequestMode, RequestModes
from aerobee.store.metadata import JsonFile

if TYPE_CHECKING:
    from pathlib import Path

log = logging.getLogger("aerobee.pop")

SHARE_ALL = -1


class Modes:
    def __init__(self, directory: Path) -> None:
        self._file = JsonFile(directory / "messageRequestMode.json", _decode)
        data = self._file.load()
        self._table = {} if data is None else _decode(data).message_request_mode_map

    def get(self, topic: str, group: str) -> RequestMode:
        """What was set, else PULL; a retry topic is always pulled."""
        found = self._table.get(topic, {}).get(group)
        if found is None or names.is_retry(topic):
            return RequestMode(
                topic=topic, consumer_group=group, mode=Mode.PULL, pop_share_queue_num=SHARE_ALL
            )
        return found

    def put(self, mode: RequestMode) -> None:
        self._table.setdefault(mode.topic, {})[mode.consumer_group] = mode
        log.info(
            "mode set topic=%s group=%s mode=%s share=%d",
            mode.topic,
            mode.consumer_group,
            mode.mode,
            mode.pop_share_queue_num,
        )
        self._file.save(self.text())

    def all(self) -> RequestModes:
        return RequestModes(message_request_mode_map=self._table)

    def forget(self, topic: str | None, group: str | None) -> None:
        """The topic or the group was deleted."""
        changed = topic is not None and self._table.pop(topic, None) is not None
        for groups in self._table.values() if group is not None else ():
            changed |= groups.pop(group or "", None) is not None
        if changed:
            self._file.save(self.text())

    def text(self) -> bytes:
        return msgspec.json.format(msgspec.json.encode(self.all()), indent=1)


def _decode(data: bytes) -> RequestModes:
    return java_json.decode(data, RequestModes)
