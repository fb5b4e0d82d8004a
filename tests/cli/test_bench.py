# SPDX-License-Identifier: Apache-2.0
"""`aerobee bench`: RocketMQ's options and printed lines."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from aerobee.cli.bench_figures import BatchFigures, ConsumeFigures, SendFigures

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from conftest import Done

TIME = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}"
SEND = r"Send TPS: \d+ \| Max RT\(ms\): \d+ \| Average RT\(ms\): +\d+\.\d{3} \| Send Failed: 0 \| Response Failed: 0"
BATCH = (
    r"Send TPS: \d+ \| Send MPS: \d+ \| Max RT\(ms\): \d+ \| Average RT\(ms\): +\d+\.\d{3} \| "
    r"Average Message RT\(ms\): +\d+\.\d{3} \| Send Failed: 0 \| Send Message Failed: 0"
)
CONSUME = (
    r"Consume TPS: \d+ \| AVG\(B2C\) RT\(ms\): +\d+\.\d{3} \| AVG\(S2C\) RT\(ms\): +\d+\.\d{3} \| "
    r"MAX\(B2C\) RT\(ms\): \d+ \| MAX\(S2C\) RT\(ms\): \d+ \| Consume Fail: \d+"
)


def test_a_line_is_about_the_last_ten_snapshots() -> None:
    figures = SendFigures()
    for second in range(12):
        figures.snap(second * 1000)
        for _ in range(100 * (second + 1)):
            figures.sent(took_ms=2)
    # Of the ten kept, the first one was made in second 2, the last one in second 11.
    sent_between = sum(100 * (second + 1) for second in range(2, 11))
    line = figures.line(now=11_000)
    assert f"Send TPS: {sent_between // 9} |" in line
    assert "Max RT(ms): 2 | Average RT(ms):   2.000" in line
    assert re.fullmatch(rf"Current Time: {TIME} \| {SEND}", line)


def test_figures_without_any_traffic_do_not_divide_by_zero() -> None:
    for figures in (SendFigures(), BatchFigures(), ConsumeFigures()):
        figures.snap(0)
        assert "TPS: 0" in figures.line(0)
        assert figures.row()["tps"] == 0


@pytest.mark.slow
def test_producers_print_rocketmqs_lines(good: Callable[..., Done]) -> None:
    lines = good("bench", "send", "-t", "bench", "-w", "8", "-q", "300", "-s", "64", "-k", "true", "-l", "3",
                 "-p", "40", "-ri", "100").out.splitlines()  # fmt: skip
    assert lines[0].startswith(
        "topic: bench, threadCount: 8, messageSize: 64, keyEnable: true, propertySize: 40"
    )
    assert all(re.fullmatch(rf"Current Time: {TIME} \| {SEND}", line) for line in lines[1:-1])
    assert re.fullmatch(rf"\[Complete\] Send Total: 300 \| {SEND}", lines[-1])
    last = good("bench", "batch", "-t", "bench", "-b", "16", "-q", "100").out.splitlines()[-1]
    assert re.fullmatch(rf"\[Complete\] Send Total: 100 \| {BATCH}", last)
    assert good("bench", "send", "-t", "bench", "-y", "true", "-q", "50", "--json").json["sent"] == 50
    [message] = good("messages", "browse", "bench", "-l", "1", "--json").lines
    assert message["properties"]["prop0"] == "hello0"
    assert re.fullmatch(r"tag[012]", message["tags"])


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["pull", "pop"])
def test_consumers_print_rocketmqs_lines(mode: str, good: Callable[..., Done], tmp_path: Path) -> None:
    topic = f"bench-{mode}"
    good("bench", "send", "-t", topic, "-q", "200", "-l", "2")
    lines = good(
        "bench", mode, "-t", topic, "-g", topic, "-q", "200", "-w", "4", "-ri", "100"
    ).out.splitlines()
    assert lines[0].startswith(
        f"topic: {topic}, threadCount: 4, group: {topic}, suffix: false, filterType: null"
    )
    assert all(re.fullmatch(rf"Current Time: {TIME} \| {CONSUME}", line) for line in lines[1:-1])
    assert re.fullmatch(rf"\[Complete\] Consume Total: 200 \| {CONSUME}", lines[-1])
    expression = tmp_path / "expression"
    expression.write_text("tag0||tag1\n")
    done = good("bench", mode, "-t", topic, "-g", f"{topic}-tags", "-f", "TAG", "-e", str(expression), "-q", "10",
                "-p", "true", "--json")  # fmt: skip
    assert done.json["consumed"] >= 10
