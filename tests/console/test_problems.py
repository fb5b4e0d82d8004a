# SPDX-License-Identifier: Apache-2.0
"""What is wrong right now: each sentence for the figures that mean it, and for no others."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from aerobee.console import problems as rules
from aerobee.console.history import BrokerSeen, GoneSeen, GroupSeen, History, Holder, Sample, Total
from aerobee.console.writing import time_of_day

if TYPE_CHECKING:
    import pytest

SECOND = 1_000
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE


def seen(group: str = "billing", **figures: object) -> GroupSeen:
    usual = {"online": True, "ready": 0, "in_flight": 0, "retrying": 0, "dead": 0, "oldest_ms": 0, "done": 0}
    return GroupSeen(group, **{**usual, **figures})  # type: ignore[arg-type]


def watched(*states: GroupSeen, every_ms: int = 30 * SECOND, **more: object) -> History:
    """One sample for each state, the last one with `more`."""
    history = History()
    for number, state in enumerate(states):
        sample = Sample(at=number * every_ms, groups={state.group: state})
        if number == len(states) - 1:
            for name, value in more.items():
                setattr(sample, name, value)
        history.add(sample)
    return history


def said(history: History) -> list[str]:
    return [f"{each.what.said(str.format)} {each.why.said(str.format)}" for each in rules.problems(history)]


def total(at: int, disk: float | None = None, late_ms: int | None = None) -> Total:
    return Total(at, 0, 0, 0, 0, 0, 0, disk, late_ms)


# -- groups ----------------------------------------------------------------------------------------------


def test_a_group_at_work_is_no_problem() -> None:
    assert said(watched(*(seen(ready=100, in_flight=5, done=n) for n in range(6)))) == []


def test_a_group_with_nothing_to_do_does_not_stand_still() -> None:
    assert said(watched(*[seen()] * 6)) == []


def test_a_group_that_finishes_nothing_for_a_minute_stands_still() -> None:
    still = seen(in_flight=40, done=7)
    assert said(watched(still, still)) == []
    (sentence,) = said(watched(still, still, still))
    assert sentence == (
        "billing stands still: nothing finished for 1 m 0 s. Its consumers hold 40 messages and answer for none."
    )


def test_the_hung_consumers_are_named() -> None:
    still = seen(in_flight=40, done=7)
    holders = {"billing": [Holder("client-1", 32), Holder("client-2", 8)]}
    (sentence,) = said(watched(still, still, still, holders=holders))
    assert "client-1 (32), client-2 (8)" in sentence


def test_consumers_that_take_nothing_are_told_from_those_that_hold() -> None:
    still = seen(ready=9, done=7)
    (sentence,) = said(watched(still, still, still))
    assert "take nothing, while 9 messages wait" in sentence


def test_new_work_begins_the_wait_anew() -> None:
    assert said(watched(seen(done=7), seen(done=7), seen(done=7), seen(done=7, ready=5))) == []


def test_a_group_without_consumers_is_told_once_a_message_waits_long() -> None:
    assert said(watched(seen(online=False, ready=3, oldest_ms=59 * SECOND))) == []
    (sentence,) = said(watched(seen(online=False, ready=3, oldest_ms=2 * HOUR)))
    assert sentence.startswith("Nobody consumes for billing: 3 messages wait. The oldest waits for 2 h 0 m.")


def test_a_paused_group_is_called_paused_and_nothing_else() -> None:
    still = seen(ready=3, oldest_ms=HOUR, done=1)
    (sentence,) = said(watched(still, still, still, switched_off=frozenset({"billing"})))
    assert sentence.startswith("billing is paused, and 3 messages wait.")


def test_a_conflict_names_the_topics() -> None:
    (sentence,) = said(watched(seen(conflicts=("orders", "refunds"))))
    assert "subscribe differently" in sentence and "orders, refunds" in sentence


def test_dead_letters_are_told_when_they_became_more() -> None:
    assert said(watched(seen(dead=5), seen(dead=5))) == []
    (sentence,) = said(watched(seen(dead=5), seen(dead=8)))
    assert sentence.startswith("3 messages of billing died lately.") and "8 in all" in sentence
    old = watched(seen(dead=5), seen(dead=8), *[seen(dead=8)] * 3, every_ms=5 * MINUTE)
    assert said(old) == []


# -- brokers and disks -------------------------------------------------------------------------------------


def test_a_broker_that_does_not_answer_comes_first() -> None:
    history = watched(
        seen(dead=1), seen(dead=2), brokers=[BrokerSeen("broker-a", "10.0.0.7:10911", answers=False)]
    )
    assert said(history)[0].startswith("Broker broker-a does not answer.")


def test_a_broker_that_went_without_a_goodbye_is_told_with_since_when(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rules, "time_of_day", {17: "17:46:05"}.__getitem__)
    away = GoneSeen("broker-b", "127.0.0.1:21231", 17, 65 * SECOND, "connection closed")
    assert said(watched(seen(), gone=[away])) == [
        "Broker broker-b at 127.0.0.1:21231 has been gone since 17:46:05 (1 m 5 s). It went without a goodbye: "
        "connection closed. Read the end of its log and start it again: its messages wait there, and clients use the "
        "other brokers."
    ]


def test_the_time_of_a_day_is_that_of_this_machine() -> None:
    assert time_of_day(round(datetime(2026, 11, 18, 17, 46, 5).timestamp() * 1000)) == "17:46:05"


def test_a_broker_that_refuses_messages_is_told_with_its_reason_and_not_twice() -> None:
    reason = "disk 91% full, sends stop at 90% (disk_full_ratio)"
    full = BrokerSeen("broker-a", "10.0.0.7:10911", disk=0.91, refuses=reason)
    assert said(watched(seen(), brokers=[full])) == [
        f"Broker broker-a refuses messages. It says: {reason}. Consumers go on."
    ]


def test_a_disk_that_grows_will_be_full() -> None:
    """One hundredth every ten minutes: from 60 % to 90 % it takes five hours."""
    seen_disk = [total(minute * MINUTE, disk=0.57 + minute * 0.001) for minute in range(31)]
    (problem,) = rules.disk_fills(seen_disk)
    assert problem.what.said(str.format) == "The disk will be full in 5 h 0 m."
    assert problem.tone == rules.BAD


def test_a_disk_that_does_not_grow_is_told_only_when_nearly_full() -> None:
    def of(used: float) -> list[str]:
        steady = [total(minute * MINUTE, disk=used) for minute in range(31)]
        return [problem.what.said(str.format) for problem in rules.disk_fills(steady)]

    assert of(0.84) == []
    assert of(0.86) == ["The disk is nearly full: 86 % are used."]
    assert of(0.91) == ["The disk is full: 91 % are used."]


def test_nothing_is_foretold_from_a_short_look() -> None:
    assert list(rules.disk_fills([total(0, disk=0.1), total(MINUTE, disk=0.5)])) == []


def test_a_busy_broker_is_told_after_three_late_looks() -> None:
    assert list(rules.loop_is_late([total(0, late_ms=900), total(1, late_ms=900)])) == []
    assert list(rules.loop_is_late([total(n, late_ms=late) for n, late in enumerate((900, 2, 900))])) == []
    (problem,) = rules.loop_is_late([total(n, late_ms=300 + n) for n in range(3)])
    assert problem.what.said(str.format) == "The broker is busy: requests wait 300 ms."


# -- topics ------------------------------------------------------------------------------------------------


def test_topics_nobody_reads_are_told_largest_first_and_the_rest_together() -> None:
    unread = {f"t{n}": n for n in range(1, 8)}
    sentences = [problem.what.said(str.format) for problem in rules.nobody_reads(unread)]
    assert sentences == [
        "Nobody reads topic t7.",
        "Nobody reads topic t6.",
        "Nobody reads topic t5.",
        "Nobody reads 4 more topics.",
    ]


def test_one_message_is_said_as_one() -> None:
    ((_, _, why, _),) = rules.nobody_reads({"t": 1})
    assert why.said(str.format) == "It keeps one message, and no group has ever read it."
