# SPDX-License-Identifier: Apache-2.0
"""However many sends wait for a broker, it is asked a few times a second, and all of them go on when it is back."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from aerobee.client.options import Options
from aerobee.client.produce.away import REST_MS, Lately
from aerobee.client.produce.sender import SINGLE, Sender
from aerobee.errors import ConnectionLost, NetworkError
from aerobee.net.shared import Shared
from aerobee.protocol.bodies import MessageQueue
from aerobee.protocol.fast_frames import Sending
from tests.client.test_sender import Line, stored

if TYPE_CHECKING:
    from aerobee.clock import ManualClock

SENDS = 50
AWAY_MS = 2_000
STEP_MS = 10
MOST_ASKED = AWAY_MS / REST_MS + 2


class World:
    """A broker that takes no connection until it is back."""

    def __init__(self, session: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        self.session, self.clock = session, session.clock
        self.line: Line | None = None
        self.is_back = False
        self.dialled: list[int] = []  # when
        monkeypatch.setattr(session, "open_connection", lambda address: self.line)
        monkeypatch.setattr(session, "connection", Shared(self._dial, "connecting to").get, raising=False)

    async def _dial(self, address: str) -> Line:
        self.dialled.append(self.clock.now())
        await asyncio.sleep(0)
        if not self.is_back:
            raise NetworkError(f"cannot connect to {address}")
        self.line = self.line or Line(address)
        return self.line

    async def runs(self, ms: int) -> None:
        for _ in range(ms // STEP_MS):
            self.clock.advance(STEP_MS)
            await settled()


async def settled() -> None:
    for _ in range(12):
        await asyncio.sleep(0)


@pytest.fixture
def world(session: Any, monkeypatch: pytest.MonkeyPatch) -> World:
    session.options = Options(send_timeout_ms=30_000)
    return World(session, monkeypatch)


def begun(
    sender: Sender, clock: ManualClock, count: int, topic: str = "T", queue: MessageQueue | None = None
) -> list[asyncio.Task[Any]]:
    def send() -> Any:
        return sender.send(Sending(topic, b"x", "UNIQ_KEY\x01ID\x02", "ID", clock.wall()), SINGLE, queue)

    return [asyncio.ensure_future(send()) for _ in range(count)]


async def test_fifty_sends_ask_a_broker_that_is_away_no_more_often_than_one(world: World) -> None:
    world.session.know("T")
    sends = begun(sender := Sender(world.session, "p"), world.clock, SENDS // 2)
    await world.runs(AWAY_MS // 2)
    sends += begun(sender, world.clock, SENDS // 2)  # those that come while it is away add nothing
    await world.runs(AWAY_MS // 2)
    assert AWAY_MS / 300 < len(world.dialled) < MOST_ASKED
    assert len(world.session.refreshed) < MOST_ASKED, "name servers are asked as seldom"
    for send in sends:
        send.cancel()


async def test_all_go_on_as_soon_as_one_of_them_has_met_the_broker_again(world: World) -> None:
    world.session.know("T")
    sends = begun(Sender(world.session, "p"), world.clock, SENDS)
    await world.runs(AWAY_MS)
    world.is_back, back_at = True, world.clock.now()
    while not world.line:
        await world.runs(STEP_MS)
    assert world.clock.now() - back_at <= 2 * REST_MS
    await settled()
    assert len(world.line.waiting) == SENDS, "all of them, at the same moment"
    for call in world.line.waiting:
        call.set_result(stored())
    assert len(await asyncio.gather(*sends)) == SENDS


async def test_a_lone_send_asks_again_after_its_longest_pause_and_a_rest_at_most(world: World) -> None:
    world.session.know("T")
    (send,) = begun(Sender(world.session, "p"), world.clock, 1)
    await world.runs(AWAY_MS)
    gaps = [later - one for one, later in zip(world.dialled, world.dialled[1:], strict=False)]
    # A try that comes sooner than the rest after the last one is told what that one met.
    assert max(gaps) <= 200 + REST_MS + 3 * STEP_MS
    send.cancel()


async def test_name_servers_that_are_away_are_asked_as_seldom_for_a_topic_nobody_knows(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    async def route(topic: str) -> Any:
        asked.append(topic)
        await asyncio.sleep(0)
        raise NetworkError("cannot connect to 127.0.0.1:9876")

    monkeypatch.setattr(world.session, "route", Shared(route, "asking for the route of").get)
    sends = begun(Sender(world.session, "p"), world.clock, SENDS, "never-seen")
    await world.runs(AWAY_MS)
    assert AWAY_MS / 300 < len(asked) < 2 * MOST_ASKED, "for the queues, and after each failure"
    for send in sends:
        send.cancel()


async def test_who_tries_once_asks_for_itself(world: World) -> None:
    """No retries: what it is told must be how it is now."""
    world.session.know("T")
    world.session.options = Options(send_retries=0)
    sender = Sender(world.session, "p")
    for _ in range(2):
        with pytest.raises(NetworkError, match="cannot connect"):
            await begun(sender, world.clock, 1)[0]
    world.is_back = True
    send = begun(sender, world.clock, 1)[0]
    await settled()
    assert world.line is not None
    world.line.waiting[0].set_result(stored())
    await send
    assert len(world.dialled) == 3


def test_what_failed_is_remembered_for_a_moment_and_kept_no_longer() -> None:
    lately = Lately()
    lately.failed("a:1", NetworkError("cannot connect to a:1"), now=1_000)
    told = lately.error("a:1", 1_000 + REST_MS - 1)
    assert str(told) == "cannot connect to a:1"
    assert lately.error("a:1", 1_001) is not told, "each who raises it has its own traceback"
    assert lately.error("b:1", 1_001) is None
    assert lately.error("a:1", 1_000 + REST_MS) is None
    lately.failed("b:1", NetworkError("cannot connect to b:1"), now=9_000)
    assert list(lately._failed) == ["b:1"]


async def test_sends_without_an_answer_when_the_broker_died_stay_before_those_that_came_later(
    world: World,
) -> None:
    world.session.know("T")
    queue, sends = MessageQueue("a", 2, "T"), []
    sender = Sender(world.session, "p")

    def send(number: int) -> None:
        sending = Sending("T", b"%d" % number, "UNIQ_KEY\x01ID\x02", "ID", world.clock.wall())
        sends.append(asyncio.ensure_future(sender.send(sending, SINGLE, queue)))

    world.line = first = Line("a:1")
    for number in range(3):
        send(number)
        await settled()
    world.line = None
    for call in first.waiting:
        call.set_exception(ConnectionLost("a:1 is gone"))
    for number in range(3, 6):
        await world.runs(50)
        send(number)
    world.is_back = True
    while world.line is None:
        await world.runs(STEP_MS)
    for _ in sends:
        await settled()
        for call in world.line.waiting:
            if not call.done():
                call.set_result(stored())
    await asyncio.gather(*sends)
    assert [frame.body for frame in world.line.frames()] == [b"%d" % number for number in range(6)]


async def test_sends_to_one_queue_end_in_their_time_whoever_stands_before_them(world: World) -> None:
    """The head of their line may have come later, and has more time."""
    world.session.know("T")
    world.session.options = Options(send_timeout_ms=300)
    sender = Sender(world.session, "p")
    sends: list[asyncio.Task[Any]] = []
    for _ in range(20):
        sends += begun(sender, world.clock, 1, queue=MessageQueue("a", 2, "T"))
        await world.runs(50)
        late = [
            n for n, send in enumerate(sends) if not send.done() and 50 * (len(sends) - n) > 300 + 2 * STEP_MS
        ]
        assert late == []
    for send in sends:
        send.cancel()
    failed = [
        each
        for each in await asyncio.gather(*sends, return_exceptions=True)
        if isinstance(each, NetworkError)
    ]
    assert len(failed) >= 13
