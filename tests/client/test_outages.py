# SPDX-License-Identifier: Apache-2.0
"""An outage of an hour is told in sixty lines, not in one a second and topic."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from aerobee.client.session.outages import LOOK_MS, Outages, Watch, level
from aerobee.clock import ManualClock
from aerobee.errors import NetworkError, SystemFailure

if TYPE_CHECKING:
    import pytest

TEXT = "cannot connect to 127.0.0.1:10911: Connection refused"
AWAY = NetworkError(TEXT)
BROKER = "127.0.0.1:10911"
TRIES = "failed attempts of this process's clients"


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


def test_an_hour_without_a_broker_is_a_line_a_minute_and_one_at_each_end(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = ManualClock(0)
    outages = Outages(clock)
    for _ in range(3_600):
        outages.failed(BROKER, NetworkError(TEXT))
        clock.advance(seconds=1)
    outages.answered(BROKER)
    told = lines(caplog)
    assert len(told) == 1 + 59 + 1
    assert told[0] == f"server={BROKER} does not answer, trying on: {AWAY}"
    assert told[1] == f"server={BROKER} has not answered for s=60; {TRIES}: 61, the last with: {AWAY}"
    assert told[-1] == f"server={BROKER} answers again after s=3600.0; {TRIES}: 3600"


def test_servers_are_told_apart_and_one_that_answers_is_forgotten(caplog: pytest.LogCaptureFixture) -> None:
    outages = Outages(ManualClock(0))
    outages.failed(BROKER, AWAY)
    outages.failed("127.0.0.1:9876", AWAY)
    assert len(lines(caplog)) == 2
    outages.answered(BROKER)
    assert list(outages.open) == ["127.0.0.1:9876"]
    outages.answered(BROKER)
    assert len(lines(caplog)) == 3, "who was not away does not come back"
    outages.failed(BROKER, AWAY)
    assert lines(caplog)[-1].startswith(f"server={BROKER} does not answer"), "a new outage is a new line"


def test_an_attempt_that_many_waited_for_is_counted_once(caplog: pytest.LogCaptureFixture) -> None:
    outages = Outages(ManualClock(0))
    for _ in range(5):
        shared = NetworkError(TEXT)
        for _ in range(100):
            outages.failed(BROKER, shared)
    outages.answered(BROKER)
    assert lines(caplog)[-1].endswith(f"{TRIES}: 5")


def test_sessions_of_one_process_tell_of_a_server_once(caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock(0)
    three = [Outages(clock) for _ in range(3)]
    for _ in range(90):
        for each in three:
            each.failed(BROKER, NetworkError(TEXT))
        clock.advance(seconds=1)
    three[1].answered(BROKER)
    three[0].answered(BROKER)
    assert lines(caplog) == [
        f"server={BROKER} does not answer, trying on: {AWAY}",
        f"server={BROKER} has not answered for s=60; {TRIES}: 181, the last with: {AWAY}",
        f"server={BROKER} answers again after s=90.0; {TRIES}: 270",
    ]
    three[2].failed(BROKER, AWAY)
    assert lines(caplog)[-1].startswith(f"server={BROKER} does not answer"), "a new outage is a new line"


def test_one_that_never_failed_does_not_end_the_outage_of_another(caplog: pytest.LogCaptureFixture) -> None:
    """It may be that only one of them is let in."""
    one, other = Outages(ManualClock(0)), Outages(ManualClock(0))
    one.failed(BROKER, AWAY)
    other.answered(BROKER)
    assert len(lines(caplog)) == 1
    one.forget(BROKER)
    one.answered(BROKER)
    assert len(lines(caplog)) == 1, "nobody asks there any more"


def test_only_what_is_no_outage_is_worth_a_warning_of_its_own() -> None:
    assert level(AWAY) == logging.DEBUG
    assert level(SystemFailure("no")) == logging.WARNING
    assert level(ValueError("no")) == logging.WARNING


async def test_servers_that_are_away_are_asked_every_second_until_all_are_back(
    tasks: Any, settle: Any, caplog: pytest.LogCaptureFixture
) -> None:
    clock = ManualClock(0)
    outages = Outages(clock)
    asked: list[tuple[int, str]] = []
    away = {BROKER, "127.0.0.1:9876"}

    async def ask(address: str) -> None:
        asked.append((clock.now(), address))
        if address in away:
            raise AWAY
        outages.answered(address)

    watch = Watch(outages, tasks, clock, ask)
    for address in (BROKER, "127.0.0.1:9876"):
        outages.failed(address, AWAY)
        watch.begin()
    await settle()
    assert [task.get_name() for task in tasks._tasks] == ["outages"], "one task for all"
    clock.advance(LOOK_MS - 1)
    await settle()
    assert asked == []
    clock.advance(1)
    await settle()
    assert asked == [(1_000, BROKER), (1_000, "127.0.0.1:9876")], "one that is away keeps no other from it"
    away.remove(BROKER)
    clock.advance(LOOK_MS)
    await settle()
    assert list(outages.open) == ["127.0.0.1:9876"]
    away.clear()
    clock.advance(LOOK_MS)
    await settle()
    assert asked[4:] == [(3_000, "127.0.0.1:9876")]
    assert not tasks._tasks, "nobody is away: nobody is asked"
    outages.failed(BROKER, AWAY)
    watch.begin()
    await settle()
    clock.advance(LOOK_MS)
    await settle()
    assert asked[5:] == [(4_000, BROKER)], "and it begins again with the next outage"
