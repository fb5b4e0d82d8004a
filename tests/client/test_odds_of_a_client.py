# SPDX-License-Identifier: Apache-2.0
"""Parts of a client that stand alone: a socket for blocking sends, places of messages, blocking twins, timers."""

from __future__ import annotations

import asyncio
import socket
import threading
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

import aerobee
from aerobee.client import blocking
from aerobee.client.admin.figures import place_of
from aerobee.client.consume.push_consumer import PushConsumer
from aerobee.client.options import ProducerOptions
from aerobee.client.produce.direct import DirectSends, Line
from aerobee.client.produce.producer import Producer
from aerobee.client.produce.replies import Replies
from aerobee.client.session.deadlines import Deadlines
from aerobee.clock import ManualClock
from aerobee.errors import NetworkError, RequestTimeout
from aerobee.protocol import bodies
from aerobee.protocol import command as wire
from aerobee.protocol import properties as props
from aerobee.protocol.bodies.figures import GroupLag, QueueLag
from aerobee.protocol.command import Command
from aerobee.protocol.headers.consume import CheckClientConfig
from aerobee.protocol.headers.produce import PushReply

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


# -- a line of a blocking caller ------------------------------------------------------------------------------------


class Server:
    """Answers each question with the frames that `answer` makes of its number."""

    def __init__(self) -> None:
        self.answer: Callable[[int], bytes | None] = lambda opaque: frame(opaque)
        self.asked: list[int] = []
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listening.getsockname()[1]}"
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        connection, _ = self._listening.accept()
        with connection:
            while data := connection.recv(65_536):
                self.asked.append(wire.decode(data[4:]).opaque)
                told = self.answer(self.asked[-1])
                if told is None:
                    return
                connection.sendall(told)

    def close(self) -> None:
        self._thread.join(10)
        self._listening.close()


def frame(opaque: int, flag: int = 1, remark: str = "") -> bytes:
    return wire.encode(Command(0, opaque, flag=flag, remark=remark))


def question(opaque: int) -> bytes:
    return wire.encode(Command(310, opaque))


@pytest.fixture
def server() -> Iterator[Server]:
    found = Server()
    yield found
    found.close()


def test_each_question_has_its_own_number_and_gets_its_own_answer(server: Server) -> None:
    line = Line(server.address, 5.0)
    server.answer = lambda opaque: (
        frame(opaque - 1, remark="late")
        + frame(opaque, flag=0, remark="a request")
        + frame(opaque, remark="mine")
    )
    assert [line.ask(question).remark for _ in range(3)] == ["mine"] * 3
    assert server.asked == [1, 2, 3]
    line._opaque = 0x7FFFFFFE
    line.ask(question)
    line.ask(question)
    assert server.asked[3:] == [0x7FFFFFFF, 0], "a number stays one that brokers take"
    line.close()


def test_a_line_that_ends_or_says_nothing_is_told(server: Server) -> None:
    line = Line(server.address, 0.05)
    server.answer = lambda opaque: b""
    with pytest.raises(RequestTimeout, match="no answer in time"):
        line.ask(question)
    assert line.is_open()
    server.answer = lambda opaque: None
    with pytest.raises(NetworkError, match=f"connection to {server.address} was lost"):
        line.ask(question)
    assert not line.is_open()
    line.close()


def test_a_port_that_nobody_listens_at_is_told(unused_tcp_port: int) -> None:
    with pytest.raises(
        NetworkError, match=f"cannot connect to 127.0.0.1:{unused_tcp_port}: Connection refused"
    ):
        Line(f"127.0.0.1:{unused_tcp_port}", 1.0)


@pytest.mark.parametrize(
    ("options", "closed"),
    [
        (ProducerOptions(), False),
        (ProducerOptions(tls="on"), True),
        (ProducerOptions(trace=True), True),
        (ProducerOptions(avoid_slow_brokers=True), True),
    ],
)
def test_what_needs_more_than_a_socket_does_not_begin_there(options: ProducerOptions, closed: bool) -> None:
    routes = SimpleNamespace(get=lambda topic: SimpleNamespace(writable=["queue"]))
    session: Any = SimpleNamespace(clock=ManualClock(), routes=routes, options=options)
    sender: Any = SimpleNamespace(way=lambda sending, queue: None)
    prepared: list[Any] = []
    direct = DirectSends(session, sender, prepared.append)  # type: ignore[arg-type]
    assert direct.send(aerobee.Message("T", b"x"), None, None, None) is None
    assert len(prepared) == (not closed)


# -- where a message is for a group ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("offset", "place"),
    [(0, "consumed"), (4, "consumed"), (5, "handed out"), (8, "handed out"), (9, "waiting"), (20, "waiting")],
)
def test_a_message_is_consumed_handed_out_or_waits(make_message: Any, offset: int, place: str) -> None:
    queues = [
        QueueLag(topic="T", broker_name="a", queue_id=1, committed=99, position=99),
        QueueLag(topic="T", broker_name="b", queue_id=0, committed=99, position=99),
        QueueLag(topic="U", broker_name="a", queue_id=0, committed=99, position=99),
        QueueLag(topic="T", broker_name="a", queue_id=0, committed=5, position=9),
    ]
    lag = GroupLag(group="g", queues=queues)
    assert place_of(make_message(offset), lag) == place
    assert place_of(make_message(offset, topic="other"), lag) is None


# -- replies, timers, checks ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("host", "shown"),
    [
        ("/[::1]:80", "[::1]:80"),
        ("[::1]:80", "[::1]:80"),
        ("10.0.0.1:70000", "10.0.0.1:0"),
        ("10.0.0.1:x", "10.0.0.1:0"),
    ],
)
async def test_a_reply_tells_where_it_was_born(session: Any, host: str, shown: str) -> None:
    replies = Replies(session)
    with replies.expect(5_000) as one:
        text = props.render({"CORRELATION_ID": one.correlation_id})
        assert replies.arrived(PushReply(topic="t", properties=text, born_host=host, store_host=host), b"x")
        assert (await one.reply()).born_address == shown


async def test_no_deadline_comes_after_the_end() -> None:
    clock = ManualClock()
    deadlines = Deadlines(clock)
    call: Any = asyncio.get_running_loop().create_future()
    deadlines.watch(call, clock.now() + 50)
    deadlines.close()
    clock.advance(1_000)
    assert not call.done()
    deadlines.close()
    deadlines.watch(call, clock.now())
    clock.advance(100)
    assert isinstance(call.exception(), RequestTimeout), "it can be taken up again"


async def test_one_address_of_each_broker_is_asked_whether_it_understands_the_filter(session: Any) -> None:
    session.know("T", brokers=("a", "b"))
    session.answers[CheckClientConfig] = lambda *_: (0, None, b"")
    consumer: Any = PushConsumer.__new__(PushConsumer)
    consumer.session, consumer.group = session, "g"
    await consumer._check_sql(bodies.SubscriptionData(topic="T", sub_string="a > 1", expression_type="SQL92"))
    assert [address for address, _, _ in session.asked] == ["a:1", "b:1"]
    sent = bodies.decode(session.bodies[0], bodies.CheckClient)
    assert (sent.client_id, sent.group, sent.subscription_data.sub_string) == ("me", "g", "a > 1")


# -- blocking twins -------------------------------------------------------------------------------------------------


def test_a_blocking_twin_shows_what_is_public_and_says_what_it_is() -> None:
    producer = blocking.Producer("127.0.0.1:1", group="g")
    assert producer.group == "g"
    for private in ("_sender", "_open", "__no_such__"):
        with pytest.raises(AttributeError, match=private):
            getattr(producer, private)
    with pytest.raises(AttributeError, match="nothing"):
        producer.nothing  # type: ignore[attr-defined]  # noqa: B018
    for name in ("send_oneway", "queues"):
        assert getattr(blocking.Producer, name).__doc__ == getattr(Producer, name).__doc__
    for twin, original in ((blocking.Producer, Producer), (blocking.Producer.recall, Producer.recall)):
        text = original.__doc__ or ""
        assert twin.__doc__ == text.replace("async with", "with").replace("await ", "")
    assert "The handler runs on the loop" in (blocking.PushConsumer.__doc__ or "")
