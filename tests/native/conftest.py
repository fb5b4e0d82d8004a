# SPDX-License-Identifier: Apache-2.0
"""Tests of the compiled lane; where it is not built, or switched off, there is nothing to test."""

from __future__ import annotations

import pytest

from aerobee import native
from aerobee.broker.operations import send
from aerobee.store.saved_table import SavedTable

if not native.is_on:
    collect_ignore_glob = ["test_*.py"]


@pytest.fixture
def same_choices(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is drawn by lot: the queue of a message that names none, and its key; and when a thread is done."""
    monkeypatch.setattr(send, "random", lambda: 0.6)
    monkeypatch.setattr(send, "new_key", lambda broker: "0A" * 16)

    async def saved(table: SavedTable) -> None:
        table.save()

    monkeypatch.setattr(SavedTable, "saved", saved)
