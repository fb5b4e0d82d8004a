# SPDX-License-Identifier: Apache-2.0
"""Pulls that wait, by the wire: what the flags of a pull say, how long it is held, and what lets it go."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from aerobee.protocol import message
from tests.wire.clients import heartbeat
from tests.wire.messages import PULL
from tests.wire.peer import JSON, Answer
from tests.wire.scene import scene

if TYPE_CHECKING:
    from asyncio import Future
    from collections.abc import AsyncIterator

    from tests.wire.scene import Scene

COMMIT, SUSPEND, SUBSCRIPTION, CLASS_FILTER = 1, 2, 4, 8
HELD = {**PULL, "sysFlag": SUSPEND | SUBSCRIPTION, "suspendTimeoutMillis": 15_000}
COMMITTED = {"consumerGroup": "billing", "topic": "orders", "queueId": 0, "setZeroIfNotFound": False}


@pytest.fixture
async def here() -> AsyncIterator[Scene]:
    async with scene(JSON) as made:
        yield made


async def hold(at: Scene, **change: object) -> Future[Answer]:
    """A pull of the next message, held by the broker."""
    end = (await at.ask(30, {"topic": "orders", "queueId": 0})).fields["offset"]
    before = at.broker.parked.count
    held = at.peer.start(11, {**HELD, "queueOffset": end, **change})
    await at.peer.until(lambda: at.broker.parked.count == before + 1)
    return held


async def passes(at: Scene, ms: int) -> None:
    """Time, and all that the broker does then: what it answers, it has answered before this."""
    at.clock.advance(ms)
    for _ in range(3):
        await at.ask(30, {"topic": "orders", "queueId": 0})


@pytest.mark.seed("S001-21")
async def test_each_flag_of_a_pull_means_one_thing(here: Scene) -> None:
    await here.send(properties="TAGS\x01red\x02")
    base = {**PULL, "queueOffset": 0, "commitOffset": 1, "suspendTimeoutMillis": 15_000}
    # None: nothing of what the request carries beside its place counts. The heartbeat subscribed to red.
    assert (await here.ask(34, {}, heartbeat())).code == 0
    plain = await here.ask(11, {**base, "sysFlag": 0, "subscription": "blue", "subVersion": 5})
    assert (plain.code, len(plain.body) > 0) == (0, True)
    assert (await here.ask(14, COMMITTED)).code == 22
    assert (await here.ask(11, {**base, "sysFlag": 0, "subVersion": 5, "queueOffset": 1})).code == 19
    # 1: the offset is committed.
    assert (await here.ask(11, {**base, "sysFlag": COMMIT, "subVersion": 5})).code == 0
    assert await here.ask(14, COMMITTED) == Answer(fields={"offset": "1"})
    # 2: a pull that finds nothing waits.
    waits = await hold(here, sysFlag=SUSPEND, subVersion=5)
    await here.send(properties="TAGS\x01red\x02")
    assert (await waits).code == 0
    # 4: the expression of the request counts.
    blue = await here.ask(11, {**base, "sysFlag": SUBSCRIPTION, "subscription": "blue"})
    assert (blue.code, blue.remark) == (20, "NO_MATCHED_MESSAGE")
    # 8: a filter class of a filter server, of which there is none.
    assert (
        await here.ask(11, {**base, "sysFlag": SUBSCRIPTION | CLASS_FILTER, "subscription": "*"})
    ).code == 0


@pytest.mark.seed("S002-6", "S002-9")
@pytest.mark.parametrize("hold_ms", [15_000, 20_000], ids=["a push consumer", "a pull consumer"])
async def test_a_pull_is_held_for_as_long_as_it_asks(here: Scene, hold_ms: int) -> None:
    await here.send()
    held = await hold(here, suspendTimeoutMillis=hold_ms)
    await passes(here, hold_ms - 1)
    assert here.broker.parked.count == 1
    here.clock.advance(1)
    ends = {"nextBeginOffset": "1", "minOffset": "0", "maxOffset": "1", "suggestWhichBrokerId": "0"}
    assert await held == Answer(19, "OFFSET_OVERFLOW_ONE", ends)


@pytest.mark.seed("S002-20", "S002-21", "S002-26", "S004-37")
async def test_the_broker_looks_after_held_pulls_every_five_seconds(here: Scene) -> None:
    """What came does not match, so nobody is woken by it; the check lets the consumer move on past it."""
    await here.send(properties="TAGS\x01red\x02")
    held = await hold(here, subscription="red")
    await here.send(properties="TAGS\x01blue\x02")
    await passes(here, 4_999)
    assert here.broker.parked.count == 1
    await passes(here, 1)
    ends = {"nextBeginOffset": "2", "minOffset": "0", "maxOffset": "2", "suggestWhichBrokerId": "0"}
    assert await held == Answer(20, "NO_MATCHED_MESSAGE", ends)


@pytest.mark.seed("S002-24", "S002-21")
async def test_the_check_reads_the_queues_present_end_whatever_it_was_told(here: Scene) -> None:
    await here.send()
    held = await hold(here)
    await passes(here, 4_000)
    listeners = here.broker.store.listeners
    listeners.remove(here.broker.parked)  # nobody is told of the next message
    await here.send(body=b"missed")
    listeners.append(here.broker.parked)
    assert here.broker.parked.count == 1
    await passes(here, 1_000)
    answer = await held
    assert [record.body for record in message.decode_all(answer.body)] == [b"missed"]


@pytest.mark.seed("S002-12", "S002-13")
async def test_a_pull_held_at_an_offset_is_sent_to_the_begin_when_its_topic_goes(here: Scene) -> None:
    await here.send()
    held = await hold(here)
    assert (await here.ask(215, {"topic": "orders"})).code == 0
    ends = {"nextBeginOffset": "0", "minOffset": "0", "maxOffset": "0", "suggestWhichBrokerId": "0"}
    assert await held == Answer(21, "NO_MATCHED_LOGIC_QUEUE", ends)


@pytest.mark.seed("S002-4", "S002-5", "S002-31")
async def test_without_long_polling_a_pull_is_held_for_a_second_whatever_it_asks() -> None:
    async with scene(JSON, long_polling=False) as here:
        await here.send()
        held = await hold(here)
        await here.send(body=b"new")  # and nobody is told
        await passes(here, 999)
        assert here.broker.parked.count == 1
        await passes(here, 1)
        assert [record.body for record in message.decode_all((await held).body)] == [b"new"]
