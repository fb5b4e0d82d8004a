# SPDX-License-Identifier: Apache-2.0
"""Gates: one in the table is passed on every port alike, refuses in each port's own form, and is told how it ended."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from aerobee.clock import ManualClock
from aerobee.errors import NoPermission, TopicNotFound
from aerobee.fronts.gates import limits, table
from aerobee.fronts.gates.call import Call, Place, Port, pass_gates, stream_through_gates
from aerobee.fronts.grpc.codes import Code
from aerobee.fronts.grpc.generated import messaging_pb2 as pb
from aerobee.protocol.command import Command, Header, request
from aerobee.protocol.headers.cluster import UpdateBrokerConfig
from aerobee.protocol.headers.consume import PullMessage
from aerobee.protocol.headers.offsets import GetMaxOffset
from aerobee.protocol.headers.produce import SendMessageV2
from aerobee.protocol.headers.route import GetRoute, UpdateNamesrvConfig
from aerobee.server import Server
from aerobee.settings import BrokerConfig
from tests.grpc_line import Ended
from tests.ports import Wires

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Callable

    from aerobee.fronts.gates.call import Gate, Outcome

REFUSED = "bobby may not"
SEND = SendMessageV2(topic="orders", queue_id=0)


class Watch:
    """A gate at every route: notes each call and how it ended; refuses those whose fields say so."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.ends: list[tuple[Port, str, BaseException | None]] = []

    def make(self, place: Place) -> Gate | None:
        assert place.parts is not None
        return self.watch

    def watch(self, call: Call) -> Outcome:
        self.calls.append(call)
        if call.fields.get("user") == "bobby":
            raise NoPermission(REFUSED)
        return lambda error: self.ends.append((call.port, call.route, error))


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Watch:
    made = Watch()
    monkeypatch.setattr(table, "GATES", (*table.GATES, made.make))
    return made


class Ports(Wires):
    """Who asks says so in a field of its own."""

    async def ask(self, address: str, header: Header, body: bytes = b"", **said: str) -> Command:
        return await self.exchange(_saying(header, body, said), address)

    async def broker(self, header: Header, body: bytes = b"", **said: str) -> Command:
        return await self.ask("", header, body, **said)

    async def start(self, header: Header) -> asyncio.Future[Command]:
        return (await self.connection()).start_call(request(header))

    async def vip(self, header: Header, body: bytes = b"", **said: str) -> Command:
        return await self.ask(self.vip_address, header, body, **said)

    async def namesrv(self, header: Header, body: bytes = b"", **said: str) -> Command:
        return await self.ask(self.server.namesrv, header, body, **said)

    async def call(self, name: str, message: Any, **said: str) -> Any:
        return await self.unary(name, message, said)

    async def stream(self, name: str, message: Any, **said: str) -> list[Any]:
        return await self.answers(name, message, said)

    async def one_way(self, header: Header, body: bytes = b"", **said: str) -> None:
        (await self.connection()).send(_saying(header, body, said))


def _saying(header: Header, body: bytes, said: dict[str, str]) -> Command:
    command = request(header, body)
    assert isinstance(command.ext, dict)
    command.ext.update(said)
    return command


async def running() -> AsyncIterator[Ports]:
    config = BrokerConfig(vip_port=0)
    async with Server(ephemeral=True, clock=ManualClock(), config=config) as server:
        ports = Ports(server)
        yield ports
        await ports.close()


@pytest.fixture
async def ports() -> AsyncIterator[Ports]:
    async for each in running():
        yield each


@pytest.fixture
async def watched(watch: Watch) -> AsyncIterator[Ports]:
    async for each in running():
        watch.calls.clear()  # the broker registered itself
        watch.ends.clear()
        yield each


def grpc_send(topic: str = "orders", count: int = 1) -> Any:
    sent = pb.SendMessageRequest(messages=[pb.Message(body=b"x")] * count)
    for number, message in enumerate(sent.messages):
        message.topic.name = topic
        message.system_properties.message_id = f"01{number:032X}"
    return sent


# -- a gate in the table -----------------------------------------------------------------------------------


async def test_every_port_shows_a_gate_the_same_call(watched: Ports, watch: Watch) -> None:
    assert (await watched.broker(SEND, b"x", user="ann")).code == 0
    assert (await watched.vip(SEND, b"x", user="ann")).code == 0
    assert (await watched.namesrv(GetRoute(topic="orders"), b"x", user="ann")).code == 0
    sent = grpc_send()
    assert (await watched.call("SendMessage", sent, user="ann")).status.code == pb.OK
    seen = [(call.port, call.route, call.code, call.fields["user"], call.body) for call in watch.calls]
    assert seen == [
        (Port.BROKER, "SendMessageV2", 310, "ann", b"x"),
        (Port.VIP, "SendMessageV2", 310, "ann", b"x"),
        (Port.NAMESRV, "GetRoute", 105, "ann", b"x"),
        (Port.GRPC, "SendMessage", None, "ann", sent.SerializeToString()),
    ]
    assert [call.asked.topic for call in watch.calls[:3]] == ["orders"] * 3
    assert watch.calls[3].asked == sent
    assert {call.remote[0] for call in watch.calls[:3]} == {"127.0.0.1"}
    assert [end for _, _, end in watch.ends] == [None] * 4


async def test_a_refusal_is_answered_in_the_form_of_each_port(watched: Ports, watch: Watch) -> None:
    for answer in (
        await watched.broker(SEND, user="bobby"),
        await watched.vip(SEND, user="bobby"),
        await watched.namesrv(GetRoute(topic="orders"), user="bobby"),
    ):
        assert (answer.code, answer.remark) == (16, REFUSED)
    one = (await watched.call("SendMessage", grpc_send(), user="bobby")).status
    (stream,) = await watched.stream("PullMessage", pb.PullMessageRequest(), user="bobby")
    for status in (one, stream.status):
        assert (status.code, status.message) == (pb.FORBIDDEN, REFUSED)
    assert watched.server.broker.topics.get("orders") is None, "nothing of it was done"
    assert watch.ends == [], "a gate that refused knows"


async def test_a_gate_is_told_of_what_the_operation_refused(watched: Ports, watch: Watch) -> None:
    await watched.namesrv(GetRoute(topic="nowhere"))
    await watched.broker(SendMessageV2(topic="SELF_TEST_TOPIC", queue_id=0))
    await watched.call("SendMessage", pb.SendMessageRequest())
    (no_route, own_topic, no_message) = watch.ends
    assert no_route[:2] == (Port.NAMESRV, "GetRoute")
    assert isinstance(no_route[2], TopicNotFound)
    assert own_topic[:2] == (Port.BROKER, "SendMessageV2")
    assert "SELF_TEST_TOPIC" in str(own_topic[2])
    assert no_message[:2] == (Port.GRPC, "SendMessage")
    assert no_message[2] is not None


async def test_a_request_that_nobody_serves_passes_the_gates_too(watched: Ports, watch: Watch) -> None:
    class Unserved(Header):
        code = 9999

    for port in (watched.broker, watched.namesrv):
        assert (await port(Unserved(), user="bobby")).code == 16
        assert (await port(Unserved())).code == 3
    assert [(call.route, call.code) for call in watch.calls] == [("", 9999)] * 4


async def test_a_held_request_is_told_when_it_is_answered(watched: Ports, watch: Watch) -> None:
    await watched.broker(SEND, b"first")
    watch.ends.clear()
    pull = PullMessage(
        consumer_group="g", topic="orders", queue_id=0, queue_offset=1, sys_flag=6, subscription="*",
        suspend_timeout_millis=15_000,
    )  # fmt: skip
    held = await watched.start(pull)
    await watched.broker(
        GetMaxOffset(topic="orders", queue_id=0)
    )  # on the same connection: the pull was served
    assert [call.route for call in watch.calls[-2:]] == ["PullMessage", "GetMaxOffset"]
    assert [route for _, route, _ in watch.ends] == ["GetMaxOffset"]
    await watched.vip(SEND, b"second")
    assert (await held).code == 0
    assert (Port.BROKER, "PullMessage", None) in watch.ends


async def test_a_one_way_request_passes_the_gates_as_any_other(watched: Ports, watch: Watch) -> None:
    await watched.broker(SEND, b"first")
    await watched.one_way(SEND, b"not stored", user="bobby")
    await watched.one_way(SEND, b"stored")
    await watched.broker(SEND, b"last")
    assert [call.fields.get("user") for call in watch.calls] == [None, "bobby", None, None]
    assert len(watch.ends) == 3
    assert watched.server.broker.store.max_offset("orders", 0) == 3


async def test_telemetry_passes_the_gates_command_by_command(watched: Ports, watch: Watch) -> None:
    assert await watched.told([pb.TelemetryCommand()], {}) == []
    assert watch.ends == [(Port.GRPC, "Telemetry", None)] * 2, (
        "the opening, which says who comes, and the command"
    )


async def test_who_is_refused_at_the_opening_of_telemetry_is_not_known_afterwards(
    watched: Ports, watch: Watch
) -> None:
    (told,) = await watched.told([pb.TelemetryCommand()], {"user": "bobby"})
    assert (told.status.message, told.WhichOneof("command")) == (REFUSED, None)
    assert list(watched.service.peers) == []
    assert len(watch.calls) == 1, "what it says after that is not listened to"


async def test_a_call_that_nobody_serves_passes_the_gates_too(watched: Ports, watch: Watch) -> None:
    with pytest.raises(Ended, match="bobby may not") as refused:
        await watched.asked("SyncLiteSubscription", [], {"user": "bobby"})
    assert refused.value.code == Code.PERMISSION_DENIED
    with pytest.raises(Ended) as unserved:
        await watched.asked("SyncLiteSubscription", [], {})
    assert unserved.value.code == Code.UNIMPLEMENTED
    assert [(call.route, call.port) for call in watch.calls] == [("", Port.GRPC)] * 2


# -- gates that are there ----------------------------------------------------------------------------------


async def test_limits_hold_on_every_port(ports: Ports) -> None:
    settings = b"x" * (limits.MAX_SETTINGS_BYTES + 1)
    for answer in (
        await ports.broker(UpdateBrokerConfig(), settings),
        await ports.vip(UpdateBrokerConfig(), settings),
        await ports.namesrv(UpdateNamesrvConfig(), settings),
    ):
        assert (answer.code, answer.remark) == (29, "settings of 65537 bytes, limit 65536")
    status = (await ports.call("SendMessage", grpc_send(count=1001))).status
    assert (status.code, status.message) == (
        pb.BAD_REQUEST,
        "1001 messages in one request, limit 1000; send several",
    )
    acks = pb.AckMessageRequest(entries=[pb.AckMessageEntry(message_id="m")] * 1001)
    assert "1001 receipts" in (await ports.call("AckMessage", acks)).status.message
    assert (await ports.call("SendMessage", grpc_send(count=1000))).status.code == pb.OK


async def test_the_vip_port_refuses_to_read(ports: Ports) -> None:
    pull = PullMessage(consumer_group="g", topic="orders", queue_id=0, queue_offset=0)
    answer = await ports.vip(pull)
    assert answer.code == 3
    assert answer.remark == "request code 11 is not served on the VIP port; use the broker's port"


async def test_routes_without_a_gate_do_not_go_that_way(ports: Ports) -> None:
    path = ports.server._listeners[0]._handler.__self__  # type: ignore[attr-defined]
    assert {310, 11, 200050, 200051} <= path._open.keys()


# -- the way through ---------------------------------------------------------------------------------------


class Book:
    """Gates that write down what they see."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def gate(self, name: str) -> Gate:
        def enter(call: Call) -> Outcome:
            self.lines.append(f"{name} in")
            return lambda error: self.lines.append(f"{name} {type(error).__name__}")

        return enter


CALL = Call(Port.BROKER, "SendMessage", 10, ("10.0.0.5", 4000), b"")


def shut(call: Call) -> None:
    raise NoPermission("shut")


def never() -> Any:
    pytest.fail("worked on, though a gate refused")


def test_gates_are_told_in_the_opposite_order() -> None:
    book = Book()
    assert pass_gates([book.gate("a"), book.gate("b")], CALL, lambda: 7) == 7
    assert book.lines == ["a in", "b in", "b NoneType", "a NoneType"]


def test_a_refusal_is_told_to_the_gates_before_it() -> None:
    book = Book()
    with pytest.raises(NoPermission):
        pass_gates([book.gate("a"), shut, book.gate("b")], CALL, never)
    assert book.lines == ["a in", "a NoPermission"]


async def test_a_held_request_whose_peer_leaves_is_told_so() -> None:
    book = Book()
    held = asyncio.ensure_future(pass_gates([book.gate("a")], CALL, asyncio.Event().wait))
    await asyncio.sleep(0)
    held.cancel()
    await asyncio.wait([held])
    assert book.lines == ["a in", "a CancelledError"]


@pytest.mark.parametrize(("fail", "told"), [(False, "NoneType"), (True, "ZeroDivisionError")])
async def test_a_stream_is_told_at_its_end(fail: bool, told: str) -> None:
    async def work() -> AsyncGenerator[int, None]:
        yield 1
        yield 1 // (not fail)

    book = Book()
    found = []
    try:
        async for each in stream_through_gates([book.gate("a")], CALL, work):
            assert book.lines == ["a in"]
            found.append(each)
    except ZeroDivisionError:
        assert fail
    assert len(found) == (1 if fail else 2)
    assert book.lines == ["a in", f"a {told}"]


async def test_a_stream_whose_peer_leaves_ends_its_work_and_is_told_at_once() -> None:
    async def work() -> AsyncGenerator[int, None]:
        try:
            yield 1
        finally:
            book.lines.append("given back")

    book = Book()
    stream = stream_through_gates([book.gate("a")], CALL, work)
    assert await anext(stream) == 1
    await stream.aclose()
    assert book.lines == ["a in", "given back", "a GeneratorExit"]


def test_a_gate_that_fails_when_told_costs_nobody_the_answer(caplog: pytest.LogCaptureFixture) -> None:
    def broken(error: BaseException | None) -> None:
        raise ZeroDivisionError

    book = Book()
    gates: list[Callable[[Call], Any]] = [book.gate("a"), lambda call: broken]
    assert pass_gates(gates, CALL, lambda: 7) == 7
    assert book.lines == ["a in", "a NoneType"]
    assert "a gate failed" in caplog.text
