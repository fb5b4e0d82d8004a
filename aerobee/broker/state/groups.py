# SPDX-License-Identifier: Apache-2.0
"""The consumer groups' settings, kept in subscriptionGroup.json."""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from aerobee.errors import GroupNotFound
from aerobee.protocol import names
from aerobee.protocol.bodies import DataVersion, GroupConfig, GroupConfigs, decode, encode
from aerobee.protocol.codes import Perm
from aerobee.settings import BrokerConfig, InForce
from aerobee.store.metadata import JsonFile
from aerobee.store.saved_table import SavedTable

if TYPE_CHECKING:
    from pathlib import Path

    from aerobee.clock import Clock

log = logging.getLogger("aerobee.groups")


class Groups(SavedTable):
    def __init__(self, directory: Path, clock: Clock, settings: InForce[BrokerConfig] | None = None) -> None:
        file = JsonFile(directory / "subscriptionGroup.json", _decode)
        super().__init__(file)
        self._clock = clock
        self._settings = settings or InForce(BrokerConfig())
        self._table: dict[str, GroupConfig] = {}
        self.forbidden_table: dict[str, dict[str, int]] = {}  # group -> topic -> permission bits taken away
        self.data_version = DataVersion(timestamp=clock.now())
        data = file.load()
        if data is not None:
            stored = _decode(data)
            self._table.update(stored.subscription_group_table)
            self.forbidden_table.update(stored.forbidden_table)
            self.data_version = stored.data_version
        for name in sorted(names.SYSTEM_GROUPS):
            self._table.setdefault(name, GroupConfig(group_name=name))

    def get(self, name: str) -> GroupConfig | None:
        return self._table.get(name)

    def all(self) -> dict[str, GroupConfig]:
        return self._table

    def require(self, name: str) -> GroupConfig:
        """The group, created with default settings on first use where that is allowed."""
        config = self._table.get(name)
        if config is not None:
            return config
        if not self._settings.value.auto_create_groups and not names.is_system_group(name):
            raise GroupNotFound(
                f"group '{name}' does not exist and groups are not created on use; create it first"
            )
        try:
            names.check_group(name)
        except ValueError as error:
            raise GroupNotFound(str(error)) from None
        config = GroupConfig(group_name=name)
        self._store(config)
        self.changed(name)
        return config

    def put(self, config: GroupConfig) -> None:
        known = self._table.get(config.group_name)
        if known != config:
            self._store(config)
            self.changed(config.group_name, partial(self._put_back, config.group_name, known))

    def _store(self, config: GroupConfig) -> None:
        log.info(
            "%s group=%s", "changed" if config.group_name in self._table else "created", config.group_name
        )
        self._table[config.group_name] = config
        self._renew()

    def _put_back(self, name: str, known: GroupConfig | None) -> None:
        if known is None:
            self._table.pop(name, None)
        else:
            self._table[name] = known
        log.warning("taken back group=%s: it could not be saved", name)
        self._renew()

    def delete(self, name: str) -> None:
        forbidden = self.forbidden_table.pop(name, None)
        if self._table.pop(name, None) is None and forbidden is None:
            return
        log.info("deleted group=%s", name)
        self._renew()
        self.changed(name)

    def forbidden(self, group: str, topic: str) -> bool:
        """Whether an operator forbade this group to read this topic (request 353)."""
        topics = self.forbidden_table.get(group)
        return topics is not None and topics.get(topic, 0) & Perm.READ != 0

    def forbid(self, group: str, topic: str, bits: int) -> None:
        """Take the permission bits away; 0 gives all back."""
        before = self.forbidden_table.get(group, {}).get(topic, 0)
        self._set_forbidden(group, topic, bits)
        self.changed(group, partial(self._set_forbidden, group, topic, before))

    def _set_forbidden(self, group: str, topic: str, bits: int) -> None:
        topics = self.forbidden_table.setdefault(group, {})
        if bits:
            topics[topic] = bits
        else:
            topics.pop(topic, None)
        if not topics:
            del self.forbidden_table[group]
        self._renew()

    def text(self) -> bytes:
        """What subscriptionGroup.json holds."""
        file = GroupConfigs(
            data_version=self.data_version,
            forbidden_table=self.forbidden_table,
            subscription_group_table=self._table,
        )
        return msgspec.json.format(encode(file), indent=1)

    def _renew(self) -> None:
        self.data_version = self.data_version.next(self._clock.now())


def _decode(data: bytes) -> GroupConfigs:
    return decode(data, GroupConfigs)
