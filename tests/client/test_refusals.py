# SPDX-License-Identifier: Apache-2.0
"""What a consumer does when it may not: it says so, and does not ask twice a second."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from aerobee.client.consume.assignment import divided_here
from aerobee.client.consume.fetch_loop import FetchLoop
from aerobee.client.consume.ownership import Ownership
from aerobee.client.consume.rebalancer import Rebalancer
from aerobee.client.consume.refusals import ASKED_AGAIN_MS, TOLD_EVERY_MS, Refusals
from aerobee.client.session.refusal import refusal
from aerobee.errors import MessageIllegal, NoPermission
from aerobee.protocol.command import Command
from aerobee.protocol.headers.consume import ConsumerList, PullMessage, PullResult

REFUSED = NoPermission("User:shop has no permission to access Topic:T from 127.0.0.1, no matched policies.")
NOTHING_NEW = (
    19,
    PullResult(suggest_which_broker_id=0, next_begin_offset=0, min_offset=0, max_offset=0),
    b"",
)


def errors(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.levelno == logging.ERROR]


def test_a_refusal_is_told_once_then_once_a_minute_and_its_end_too(caplog: pytest.LogCaptureFixture) -> None:
    refusals = Refusals("g")
    for now in range(0, TOLD_EVERY_MS + 1, ASKED_AGAIN_MS):
        assert refusals.met("T", REFUSED, now) == ASKED_AGAIN_MS
    assert len(errors(caplog)) == 2
    assert "group=g may not consume topic=T: User:shop has no permission" in errors(caplog)[0]
    assert "an operator has to allow it" in errors(caplog)[0]
    refusals.over("U")
    assert refusals.any is REFUSED
    refusals.over("T")
    assert refusals.any is None
    assert caplog.messages[-1] == "group=g may consume topic=T again"


def test_each_refusal_is_taken_once() -> None:
    refusals = Refusals("g")
    refusals.met("T", REFUSED, 0)
    assert [refusals.take(), refusals.take()] == [REFUSED, None]
    refusals.met("T", REFUSED, ASKED_AGAIN_MS)
    assert [refusals.take(), refusals.take()] == [REFUSED, None]


def test_a_refused_retry_topic_is_the_groups_and_told_with_the_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    refusals = Refusals("g")
    assert refusals.met("%RETRY%g", REFUSED, 0) == ASKED_AGAIN_MS
    assert (refusals.any, errors(caplog)) == (None, [])


async def test_a_refused_pull_leaves_the_queue_alone_for_long(
    make_member: Any, own: Any, session: Any
) -> None:
    member = make_member()
    session.answers[PullMessage] = [REFUSED, NOTHING_NEW]
    loop = FetchLoop(member, lambda *_: None, lambda *_: None)
    owned = own(member)
    assert await loop.pull_once(owned) == ASKED_AGAIN_MS
    assert member.refusals.any is REFUSED
    assert await loop.pull_once(owned) == 0
    assert member.refusals.any is None


async def test_a_refused_rebalance_is_not_tried_again_soon(
    make_member: Any, session: Any, caplog: pytest.LogCaptureFixture
) -> None:
    member = make_member()
    ownership = Ownership(member, None, lambda _: None, lambda _: None)
    rebalancer = Rebalancer(member, ownership, lambda *_: None, divided_here, 0)
    session.answers[ConsumerList] = lambda *_: REFUSED
    assert await rebalancer.rebalance(), "the next round comes in its time"
    assert len(errors(caplog)) == 1


@pytest.mark.parametrize(
    ("remark", "step"),
    [
        (
            "username cannot be null.",
            "this program named no account: options=Options(access_key=..., secret_key=...)",
        ),
        ("check signature failed.", "the secret_key of its options is not that of the account"),
        ("recall failed, operation is forbidden", "Apache RocketMQ takes no message back unless"),
        ("no", "an operator has to allow it"),
    ],
)
def test_the_next_step_is_that_of_whoever_can_take_it(
    remark: str, step: str, caplog: pytest.LogCaptureFixture
) -> None:
    Refusals("g").met("T", NoPermission(remark), 0)
    (told,) = errors(caplog)
    assert f"{remark} (code 16 NoPermission); {step}" in told
    error = refusal(Command(16, 1, remark=remark))
    assert type(error) is NoPermission
    assert str(error) == f"{remark} (code 16 NoPermission)"
    assert len(error.__notes__) == 1
    assert error.__notes__[0].startswith(step)


def test_other_refusals_have_their_own_words_and_no_note() -> None:
    error = refusal(Command(13, 1, remark="too long"))
    assert type(error) is MessageIllegal
    assert not hasattr(error, "__notes__")
