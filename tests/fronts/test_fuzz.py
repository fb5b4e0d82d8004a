# SPDX-License-Identifier: Apache-2.0
"""Mutated frames against a running broker. 100,000 of them: benchmarks/fuzz_broker.py."""

from __future__ import annotations

import importlib.util
import logging
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from aerobee.server import OFF, Server
from aerobee.settings import StoreConfig

if TYPE_CHECKING:
    from types import ModuleType

FILE = Path(__file__).parents[2] / "benchmarks" / "fuzz_broker.py"


def load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("fuzz_broker", FILE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["fuzz_broker"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
async def test_broker_survives_mutated_frames_and_healthy_clients_notice_nothing(
    seed: int, caplog: pytest.LogCaptureFixture
) -> None:
    small = StoreConfig(commit_log_segment_bytes=1 << 24, index_slots=1000, index_entries=4000)
    async with Server(ephemeral=True, namesrv_port=OFF, store=small) as server:
        with caplog.at_level(logging.ERROR):
            report = await load().attack(server.broker_address, 2_000, seed)
    assert report.failures == []
    assert report.frames >= 2_000
    bugs = [record.getMessage() for record in caplog.records if record.exc_info]
    assert bugs == []
