# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from aerobee.errors import DiskFull
from aerobee.store.metadata import JsonFile


class BrokenDisk:
    """Saves of tables fail while `refuse` is set."""

    refuse = False


@pytest.fixture
def broken_disk(monkeypatch: pytest.MonkeyPatch) -> BrokenDisk:
    disk, real = BrokenDisk(), JsonFile.save

    def save(file: JsonFile, data: bytes) -> None:
        if disk.refuse:
            raise DiskFull(f"cannot save {file.path}: no space")
        real(file, data)

    monkeypatch.setattr(JsonFile, "save", save)
    return disk
