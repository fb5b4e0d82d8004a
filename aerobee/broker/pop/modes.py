# SPDX-License-Identifier: Apache-2.0
"""PULL or POP, per topic and group, as an operator set it. Kept in messageRequestMode.json."""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from aerobee.protocol import java_json, names
from aerobee.protocol.bodies import Mode, RequestMode, RequestModes
from aerobee.store.metadata import JsonFile
from aerobee.store.saved_table import SavedTable

if TYPE_CHECKING:
    from pathlib import Path

log = logging.getLogger("aerobee.pop")

SHARE_ALL = -1


class Modes(SavedTable):
    def __init__(self, directory: Path) -> None:
        file = JsonFile(directory / "messageRequestMode.json", _decode)
        super().__init__(file)
        data = file.load()
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
        groups = self._table.setdefault(mode.topic, {})
        known = groups.get(mode.consumer_group)
        groups[mode.consumer_group] = mode
        log.info(
            "mode set topic=%s group=%s mode=%s share=%d",
            mode.topic,
            mode.consumer_group,
            mode.mode,
            mode.pop_share_queue_num,
        )
        self.changed(mode.topic, partial(self._put_back, mode, known))

    def _put_back(self, mode: RequestMode, known: RequestMode | None) -> None:
        groups = self._table.setdefault(mode.topic, {})
        if known is None:
            groups.pop(mode.consumer_group, None)
        else:
            groups[mode.consumer_group] = known

    def all(self) -> RequestModes:
        return RequestModes(message_request_mode_map=self._table)

    def forget(self, topic: str | None, group: str | None) -> None:
        """The topic or the group was deleted."""
        changed = topic is not None and self._table.pop(topic, None) is not None
        for groups in self._table.values() if group is not None else ():
            changed |= groups.pop(group or "", None) is not None
        if changed:
            self.changed(topic)

    def text(self) -> bytes:
        return msgspec.json.format(msgspec.json.encode(self.all()), indent=1)


def _decode(data: bytes) -> RequestModes:
    return java_json.decode(data, RequestModes)
