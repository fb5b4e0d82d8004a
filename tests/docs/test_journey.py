# SPDX-License-Identifier: Apache-2.0
"""docs/journey-of-a-message.md names the files that a message really goes through, and no others."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from types import ModuleType

ROOT = Path(__file__).resolve().parents[2]
NAMED = set(
    re.findall(r"`([\w/]+\.py)`", (ROOT / "docs" / "journey-of-a-message.md").read_text(encoding="utf-8"))
)
NOT_OURS = {"tools/files_on_the_way.py", "tests/docs/test_journey.py"}  # of the page, not of the journey


def tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("files_on_the_way", ROOT / "tools" / "files_on_the_way.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_file_the_journey_names_exists() -> None:
    assert {name for name in NAMED - NOT_OURS if not (ROOT / "aerobee" / name).is_file()} == set()


@pytest.mark.slow
async def test_the_journey_names_every_file_on_the_way() -> None:
    """On a busy machine a timer's tick is often seen beside a journey: what is on the way is there every time."""
    watch = tool().journeys
    found = await watch()
    assert set(found) == {"send", "pull", "pop", "ack"}
    assert "store/appender.py" in found["send"], "nothing was watched"
    not_named = {(step, name) for step, files in found.items() for name in files - NAMED}
    for _ in range(9):
        if not_named:
            found = await watch()
            not_named &= {(step, name) for step, files in found.items() for name in files - NAMED}
    assert not not_named, "name them in docs/journey-of-a-message.md, where they come in"
