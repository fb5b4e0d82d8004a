# SPDX-License-Identifier: Apache-2.0
"""How fast a consumer is, over the last minute, as an operator is told."""

from __future__ import annotations

from aerobee.client.consume.figures import Figures
from aerobee.protocol.bodies import ConsumeStatus

START = 1_700_000_000_000  # the beginning of a bucket


def test_times_are_averages_per_pull_and_message_and_rates_are_per_second() -> None:
    figures = Figures()
    figures.pulled("T", 10, 30, START)
    figures.pulled("T", 20, 50, START + 12_000)
    figures.consumed("T", 4, 1, 20, START + 12_000)
    figures.consumed("T", 5, 0, 10, START + 13_000)
    figures.pulled("U", 99, 99, START)
    assert figures.status("T", START + 20_000) == ConsumeStatus(
        pull_rt=40.0,
        pull_tps=1.5,
        consume_rt=15.0,
        consume_ok_tps=0.45,
        consume_failed_tps=0.05,
        consume_failed_msgs=1,
    )


def test_in_the_first_second_rates_are_not_blown_up() -> None:
    figures = Figures()
    figures.pulled("T", 10, 30, START)
    assert figures.status("T", START + 10).pull_tps == 10
    assert figures.status("T", START + 10).consume_rt == 0


def test_what_is_older_than_a_minute_is_forgotten() -> None:
    figures = Figures()
    figures.pulled("T", 10, 30, START)
    assert figures.status("T", START + 59_999).pull_rt == 30
    assert figures.status("T", START + 60_000) == ConsumeStatus()
    for n in range(1, 7):
        figures.consumed("T", 1, 0, n, START + n * 10_000)
    status = figures.status("T", START + 60_000)
    assert (status.pull_tps, status.consume_rt) == (0, 3.5)
    assert status.consume_ok_tps == 6 / 50
    assert figures.status("other", START) == ConsumeStatus()


def test_one_pull_and_one_message_are_their_own_averages() -> None:
    figures = Figures()
    figures.pulled("T", 3, 30, START)
    figures.consumed("T", 0, 1, 7, START)
    status = figures.status("T", START + 2_000)
    assert (status.pull_rt, status.consume_rt) == (30, 7)
    assert (status.pull_tps, status.consume_ok_tps, status.consume_failed_tps) == (1.5, 0, 0.5)
