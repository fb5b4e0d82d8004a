# SPDX-License-Identifier: Apache-2.0
"""A session without a network: answers are scripted by the type of request, what was asked is kept."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import pytest

from aerobee.client.consume.decoding import received
from aerobee.client.consume.hooks import Hooks
from aerobee.client.consume.membership import Membership, OwnedQueue
from aerobee.client.consume.offset_keeper import RemoteOffsets
from aerobee.client.consume.rebalance import AVG
from aerobee.client.consume.start_offset import StartPoint
from aerobee.client.consume.subscriptions import Subscriptions
from aerobee.client.message import Origin
from aerobee.client.options import Options
from aerobee.client.session.ack_turns import AckTurns
from aerobee.client.session.route_cache import RouteCache
from aerobee.client.session.tasks import Tasks
from aerobee.clock import ManualClock
from aerobee.errors import NoRoute, error_for
from aerobee.protocol import bodies, message
from aerobee.protocol import properties as props
from aerobee.protocol.bodies import BrokerData, MessageModel, MessageQueue, QueueData, TopicRoute
from aerobee.protocol.command import Command, header_fields

if TYPE_CHECKING:
    from collections.abc import Callable

    from aerobee.client.message import ReceivedMessage
    from aerobee.protocol.command import Header


class FakeSession:
    """Stands in for Session. `answers[HeaderType]` is a list of (code, header, body) or errors, or a function."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.clock = ManualClock()
        self.client_id = "me"
        self.namesrv = "127.0.0.1:9876"
        self.routes = RouteCache()
        self.consumers: dict[str, Any] = {}
        self.producers: dict[str, Any] = {}
        self.asked: list[Any] = []
        self.sent: list[Any] = []
        self.bodies: list[bytes] = []
        self.heartbeats = 0
        self.refreshed: list[str] = []
        self.answers: dict[type, Any] = defaultdict(list)
        self.tasks = Tasks()
        self.acks = AckTurns(self)  # type: ignore[arg-type]
        self.users = 0
        self.story: list[str] = []
        self.leaving_fails: Exception | None = None

    def check_loop(self) -> None:
        """Here all is on one."""

    def know(
        self,
        topic: str,
        queues: int = 4,
        brokers: tuple[str, ...] = ("a",),
        *,
        perm: int = 6,
        masters: tuple[str, ...] | None = None,
    ) -> None:
        """`masters` are the brokers that have one: all, unless it is said."""

        def addresses(broker: str) -> dict[int, str]:
            slave = {1: f"{broker}-slave:1"}
            return {0: f"{broker}:1", **slave} if masters is None or broker in masters else slave

        self.routes.put(
            topic,
            TopicRoute(
                broker_datas=[
                    BrokerData(broker_name=b, cluster="c", broker_addrs=addresses(b)) for b in brokers
                ],
                queue_datas=[
                    QueueData(broker_name=b, perm=perm, read_queue_nums=queues, write_queue_nums=queues)
                    for b in brokers
                ],
            ),
        )

    async def call(
        self, address: str, header: Any, body: bytes = b"", *, timeout_ms: int = 0, accept: Any = (0,)
    ) -> Command:
        self.asked.append((address, header, timeout_ms))
        self.story.append(type(header).__name__)
        self.bodies.append(body)
        script = self.answers[type(header)]
        answer = script(address, header, body) if callable(script) else script.pop(0)
        if asyncio.isfuture(answer) or asyncio.iscoroutine(answer):
            answer = await answer
        if isinstance(answer, BaseException):
            raise answer
        code, fields, data = answer
        if code not in accept:
            raise error_for(code, "scripted")
        return Command(code, ext=header_fields(fields) if fields is not None else {}, body=data)

    async def send(self, address: str, header: Any, body: bytes = b"") -> None:
        self.sent.append((address, header, body))
        self.story.append(type(header).__name__)

    def open_connection(self, address: str) -> Any:
        """None: whoever would not wait takes the way through `call`."""

    async def route(self, topic: str) -> Any:
        found = self.routes.get(topic)
        if found is None:
            raise NoRoute(f"{topic} is unknown")
        return found

    async def refresh_route(self, topic: str) -> Any:
        self.refreshed.append(topic)
        return await self.route(topic)

    async def master(self, broker_name: str, topic: str) -> str:
        address = self.routes.master(broker_name)
        if address is None:
            raise NoRoute(broker_name)
        return address

    async def heartbeat(self) -> int:
        self.heartbeats += 1
        self.story.append("heartbeat")
        return 1

    # -- its life, told in order -------------------------------------------------------------------------------

    async def start(self) -> None:
        self.users += 1
        self.story.append("start")

    async def stop(self) -> None:
        self.users -= 1
        self.story.append("stop")

    async def leave(self, **group: str) -> None:
        self.story.append(f"leave {group}")
        if self.leaving_fails is not None:
            raise self.leaving_fails

    def blaming_the_address(self) -> Any:
        return nullcontext()

    def unuse_topic(self, topic: str) -> None:
        self.story.append(f"unuse {topic}")

    def headers(self, kind: type[Header]) -> list[Any]:
        return [header for _, header, _ in self.asked if type(header) is kind]


@pytest.fixture
def options() -> Options:
    return Options()


@pytest.fixture
def session(options: Options) -> FakeSession:
    found = FakeSession(options)
    found.know("T")
    return found


@pytest.fixture
def make_message() -> Callable[..., ReceivedMessage]:
    def make(
        offset: int = 0, body: bytes = b"body", *, tags: str = "", topic: str = "T", **more: Any
    ) -> ReceivedMessage:
        text = props.render({"TAGS": tags} if tags else {}) + more.pop("properties", "")
        max_offset = more.pop("max_offset", offset + 1)
        record = message.Record(
            topic,
            body,
            f"UNIQ_KEY\x01ID{offset}\x02{text}",
            queue_offset=offset,
            physical_offset=offset * 100,
            **more,
        )
        return received(record, Origin("a", 0, max_offset))

    return make


@pytest.fixture
def encode_messages() -> Callable[..., bytes]:
    """Messages as the body of an answer."""

    def encode(*offsets: int, topic: str = "T", tags: str = "", body: bytes = b"body") -> bytes:
        return b"".join(
            message.encode(
                message.Record(
                    topic,
                    body,
                    props.render({"TAGS": tags} if tags else {}),
                    queue_offset=n,
                    physical_offset=n * 100,
                )
            )
            for n in offsets
        )

    return encode


@pytest.fixture
def make_member(session: FakeSession) -> Callable[..., Membership]:
    def make(
        *,
        ordered: bool = False,
        model: MessageModel = MessageModel.CLUSTERING,
        topics: dict[str, str] | None = None,
        start: str = "last",
    ) -> Membership:
        member = Membership(
            session,  # type: ignore[arg-type]
            "g",
            model,
            ordered,
            Subscriptions(topics or {"T": "*"}, session.clock.now()),
            RemoteOffsets(session, "g"),  # type: ignore[arg-type]
            StartPoint.of(start),
            AVG,
        )
        member.running = True
        return member

    return make


@pytest.fixture
def own(session: FakeSession) -> Callable[..., OwnedQueue]:
    """A queue the member owns."""

    def add(member: Membership, queue_id: int = 0, offset: int = 0, topic: str = "T") -> OwnedQueue:
        owned = OwnedQueue(MessageQueue("a", queue_id, topic), offset, session.clock.now())
        owned.inbox.locked = True
        member.pulled[owned.queue] = owned
        return owned

    return add


@pytest.fixture
def hooks() -> Hooks:
    return Hooks(900_000)


@pytest.fixture
async def tasks() -> Any:
    found = Tasks()
    yield found
    await found.cancel()


@pytest.fixture
def settle() -> Callable[[], Any]:
    """Let everything that can run, run."""

    async def turn(times: int = 50) -> None:
        for _ in range(times):
            await asyncio.sleep(0)

    return turn


@pytest.fixture
def json_body() -> Callable[[Any], bytes]:
    return bodies.encode
