# SPDX-License-Identifier: Apache-2.0
"""A pull of the wire as the operation sees it: what each flag brings, and what is left out without it."""

from __future__ import annotations

from typing import Any

import pytest

from aerobee.broker.operations.pull import Pull
from aerobee.fronts.remoting import consume
from aerobee.net.routes import Request
from aerobee.protocol.command import request as command_of
from aerobee.protocol.headers.consume import PullMessage

COMMIT, SUSPEND, SUBSCRIPTION = 1, 2, 4


class Caught(Exception):
    pass


def asked(monkeypatch: pytest.MonkeyPatch, **fields: Any) -> Pull:
    """What the adapter asks of the operation."""
    caught: list[Pull] = []

    def pull(wanted: Pull, broker: Any) -> None:
        caught.append(wanted)
        raise Caught

    monkeypatch.setattr(consume, "pull", pull)
    header = PullMessage(
        consumer_group="g", topic="t", queue_id=3, queue_offset=7, max_msg_nums=20, commit_offset=5,
        suspend_timeout_millis=15_000, **fields,
    )  # fmt: skip
    with pytest.raises(Caught):
        consume.pull_message(Request(None, command_of(header)), header, None)  # type: ignore[arg-type]
    return caught[0]


@pytest.mark.parametrize(
    ("flags", "hold_ms", "commit", "expression"),
    [
        (0, 0, None, None),
        (COMMIT, 0, 5, None),
        (SUSPEND, 15_000, None, None),
        (SUBSCRIPTION, 0, None, "A"),
        (COMMIT | SUSPEND | SUBSCRIPTION, 15_000, 5, "A"),
    ],
)
def test_what_each_flag_of_a_pull_brings(
    flags: int, hold_ms: int, commit: int | None, expression: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = asked(monkeypatch, sys_flag=flags, subscription="A", expression_type="TAG", sub_version=9)
    assert wanted == Pull(
        "g", "t", 3, 7, 20, None, hold_ms, commit, expression, "TAG", 9, as_stored=False, bulk=False
    )


@pytest.mark.parametrize("subscription", [None, ""])
def test_a_subscription_without_a_word_is_of_everything(
    subscription: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert asked(monkeypatch, sys_flag=SUBSCRIPTION, subscription=subscription).expression == "*"


def test_bulk_readers_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = asked(monkeypatch, sys_flag=0, max_msg_bytes=99, as_stored=True, bulk=True)
    assert (wanted.max_bytes, wanted.as_stored, wanted.bulk) == (99, True, True)
