# SPDX-License-Identifier: Apache-2.0
"""Key-value pairs by namespace, kept in `kvConfig.json`; RocketMQ keeps the order of ordered topics here."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import msgspec

from aerobee.protocol.bodies import KVConfig, decode
from aerobee.store.saved_table import SavedTable

if TYPE_CHECKING:
    from aerobee.store.metadata import JsonFile


class KeyValues(SavedTable):
    def __init__(self, file: JsonFile | None = None) -> None:
        """Without a file they live as long as the process."""
        super().__init__(file)
        data = file.load() if file else None
        self._table = decode_key_values(data).config_table if data else {}

    def get(self, namespace: str, key: str) -> str | None:
        return self._table.get(namespace, {}).get(key)

    def namespace(self, namespace: str) -> dict[str, str] | None:
        return self._table.get(namespace)

    def put(self, namespace: str, key: str, value: str) -> None:
        known = self.get(namespace, key)
        self._set(namespace, key, value)
        self.changed((namespace, key), partial(self._set, namespace, key, known))

    def delete(self, namespace: str, key: str) -> None:
        known = self.get(namespace, key)
        if known is not None:
            self._set(namespace, key, None)
            self.changed((namespace, key), partial(self._set, namespace, key, known))

    def _set(self, namespace: str, key: str, value: str | None) -> None:
        table = self._table.setdefault(namespace, {})
        if value is None:
            table.pop(key, None)
        else:
            table[key] = value

    def text(self) -> bytes:
        """What kvConfig.json holds."""
        return msgspec.json.format(msgspec.json.encode({"configTable": self._table}), indent=1)


def decode_key_values(data: bytes) -> KVConfig:
    return decode(data, KVConfig)
