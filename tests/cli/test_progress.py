# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import TYPE_CHECKING

from aerobee.cli.output import NowAndThen, progress
from aerobee.clock import ManualClock

if TYPE_CHECKING:
    import pytest


def test_without_a_terminal_long_work_says_a_line_every_ten_seconds(
    capsys: pytest.CaptureFixture[str],
) -> None:
    clock = ManualClock()
    lines = NowAndThen("bytes of the log", 4_000, clock)
    for second in range(25):
        lines.tell(second * 100)
        clock.advance(seconds=1)
    assert capsys.readouterr().err.splitlines() == [
        "1000 of 4000 bytes of the log", "2000 of 4000 bytes of the log",
    ]  # fmt: skip


def test_short_work_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with progress("messages", 5_000) as tell:
        for done in range(5_000):
            tell(done)
    assert capsys.readouterr().err == ""
