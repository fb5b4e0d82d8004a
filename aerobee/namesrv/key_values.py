# SPDX-License-Identifier: Apache-2.0
"""Key-value pairs by namespace, kept in `kvConfig.json`; RocketMQ keeps the order of ordered topics here."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from aerobee.protocol.bodies import KVConfig, decode

if TYPE_CHECKING:
    from aerobee.store.metadata import JsonFile


class KeyValues:
    def __init__(self, file: JsonFile | None = None) -> None:
        """Without a file they live as long as the process."""
        self._file = file
        data = file.load() if file else None
        self._table = decode_key_values(data).config_table if data else {}

    def get(self, namespace: str, key: str) -> str | None:
        return self._table.get(namespace, {}).get(key)

    def namespace(self, namespace: str) -> dict[str, str] | None:
        return self._table.get(namespace)

    def put(self, namespace: str, key: str, value: str) -> None:
        self._table.setdefault(namespace, {})[key] = value
        self._save()

    def delete(self, namespace: str, key: str) -> None:
        if self._table.get(namespace, {}).pop(key, None) is not None:
            self._save()

    def _save(self) -> None:
        if self._file:
            self._file.save(msgspec.json.format(msgspec.json.encode({"configTable": self._table}), indent=1))


def decode_key_values(data: bytes) -> KVConfig:
    return decode(data, KVConfig)
