# SPDX-License-Identifier: Apache-2.0
"""What users of other clients expect of this one."""

from __future__ import annotations

import asyncio
import pydoc
import signal
import sys
import textwrap
import time
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

import aerobee
from aerobee import (
    Message,
    Producer,
    ProducerOptions,
    PullConsumer,
    PushConsumer,
    PushOptions,
    Server,
    SimpleConsumer,
    blocking,
)
from aerobee.client.session.identity import usual_namesrv
from aerobee.errors import ClientClosed, IllegalOperation, NetworkError, RequestTimeout
from aerobee.namesrv.name_server import NameServer
from aerobee.testing import TestServer, eventually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from aerobee import ReceivedMessage

pytestmark = pytest.mark.slow


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    async with Server(ephemeral=True) as running:
        yield running


async def filled(server: Server, count: int) -> None:
    async with Producer(server.namesrv) as producer:
        for number in range(count):
            await producer.send(Message("orders", b"%d" % number))


async def test_a_pull_consumer_is_iterated_and_what_was_not_handed_out_is_not_consumed(
    server: Server,
) -> None:
    await filled(server, 8)
    first: list[bytes] = []
    async with PullConsumer(server.namesrv, group="g", topics={"orders": "*"}, start="first") as consumer:
        async for message in consumer:
            first.append(message.body)
            if len(first) == 3:
                break
    rest: list[bytes] = []
    async with (
        PullConsumer(server.namesrv, group="g", topics={"orders": "*"}, start="first") as consumer,
        consumer.messages(timeout_ms=500) as messages,
    ):
        async for message in messages:
            rest.append(message.body)
            if len(rest) == 5:
                break
    assert sorted(first + rest) == [b"%d" % number for number in range(8)]


async def test_what_a_simple_consumer_fetched_and_did_not_hand_out_goes_to_others_at_once(
    server: Server,
) -> None:
    await filled(server, 8)
    async with SimpleConsumer(server.namesrv, group="g", topics={"orders": "*"}, start="first") as consumer:
        async with consumer.messages(invisible_ms=600_000) as messages:
            async for message in messages:
                await message.ack()
                break
        others: set[bytes] = set()
        async for message in consumer:
            others.add(message.body)
            await message.ack()
            if len(others) == 7:
                break
    assert len(others) == 7


async def test_iteration_ends_when_the_consumer_is_stopped(server: Server) -> None:
    consumer = PullConsumer(server.namesrv, group="g", topics={"orders": "*"})
    await consumer.start()
    messages = consumer.messages(timeout_ms=10)
    await consumer.stop()
    assert [message async for message in messages] == []


async def test_the_blocking_twin_is_iterated_too(server: Server) -> None:
    await filled(server, 4)

    def work() -> tuple[list[bytes], list[bytes]]:
        with blocking.SimpleConsumer(
            server.namesrv, group="s", topics={"orders": "*"}, start="first"
        ) as simple:
            popped = []
            for leased in simple:
                leased.ack()
                popped.append(leased.body)
                if len(popped) == 4:
                    break
        with blocking.PullConsumer(
            server.namesrv, group="p", topics={"orders": "*"}, start="first"
        ) as consumer:
            pulled = []
            with consumer.messages() as messages:
                for message in messages:
                    pulled.append(message.body)
                    if len(pulled) == 4:
                        break
        return popped, pulled

    popped, pulled = await asyncio.to_thread(work)
    assert sorted(popped) == sorted(pulled) == [b"0", b"1", b"2", b"3"]


async def test_a_wrong_address_is_told_at_the_start_and_names_the_port(server: Server) -> None:
    with pytest.raises(NetworkError, match=rf"{server.broker_address} is a broker.*9876"):
        await Producer(server.broker_address).start()
    with pytest.raises(NetworkError, match=r"no name server answers at 127.0.0.1:1: .*is it running"):
        await Producer("127.0.0.1:1").start()
    with pytest.raises(ValueError, match=r"give host:port without http://, as in 127\.0\.0\.1:9876"):
        Producer("http://127.0.0.1:9876/")


@pytest.mark.parametrize("kind", [PullConsumer, SimpleConsumer, partial(PushConsumer, handler=print)])
async def test_a_consumer_is_told_of_a_wrong_address_too(server: Server, kind: Callable[..., Any]) -> None:
    with pytest.raises(NetworkError, match=rf"{server.broker_address} is a broker.*9876"):
        await kind(server.broker_address, group="g", topics={"orders": "*"}).start()
    with pytest.raises(NetworkError, match=r"no name server answers at 127.0.0.1:1: .*is it running"):
        await kind("127.0.0.1:1", group="g", topics={"orders": "*"}).start()


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (9876, "addresses are 9876; give text: 'host:port'"),
        (["a:1", "b:2"], "several separated by ';'"),
        ("localhost", "expected host:port, as in localhost:9876"),
        ("", "give host:port"),
    ],
)
def test_an_address_that_is_none_is_refused_with_one_that_is(given: Any, told: str) -> None:
    with pytest.raises((TypeError, ValueError), match=told):
        Producer(given)


def test_wrong_options_are_refused_by_name_type_and_nearest() -> None:
    with pytest.raises(ValueError, match="send_retries is '5'; it must be a whole number, 0 to 100"):
        ProducerOptions(send_retries="5")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"concurrency is 2\.5"):
        PushOptions(concurrency=2.5)  # type: ignore[arg-type]
    with pytest.raises(
        TypeError, match=r"PushOptions has no option 'concurency'; did you mean concurrency\?"
    ):
        PushOptions(concurency=2)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"has no option 'zzz'; help\(ProducerOptions\) lists them"):
        ProducerOptions(zzz=2)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"is str, not bytes: text\.encode\(\) makes them"):
        Message("orders", "text")  # type: ignore[arg-type]


def plainly(message: ReceivedMessage) -> None:
    raise KeyError("no such card")


async def asynchronously(message: ReceivedMessage) -> None:
    raise KeyError("no such card")


@pytest.mark.parametrize("handler", [plainly, asynchronously])
async def test_what_a_handler_raises_is_logged_with_its_traceback(
    server: Server, handler: Callable[[ReceivedMessage], Any], caplog: pytest.LogCaptureFixture
) -> None:
    await filled(server, 1)
    async with PushConsumer(
        server.namesrv, group="g", topics={"orders": "*"}, handler=handler, start="first"
    ):
        await eventually(lambda: "handler failed" in caplog.text)
    [said] = [record for record in caplog.records if "handler failed" in record.message]
    assert "topic=orders" in said.message
    assert f"in {handler.__name__}" in caplog.text
    assert "KeyError: 'no such card'" in caplog.text


async def test_a_message_that_waits_for_its_time_is_taken_back(server: Server) -> None:
    later = int(time.time() * 1000) + 3_600_000
    async with Producer(server.namesrv) as producer:
        kept = await producer.send(Message("orders", b"kept", deliver_at=later))
        sent = await producer.send(Message("orders", b"taken back", deliver_at=later))
        assert sent.recall_handle
        assert kept.recall_handle
        assert await producer.recall("orders", sent.recall_handle) == sent.message_id
        with pytest.raises(IllegalOperation, match="is invalid; use the one in the send result"):
            await producer.recall("orders", "not a handle")
        with pytest.raises(IllegalOperation, match="is of topic 'orders', not 'TBW102'"):
            await producer.recall("TBW102", kept.recall_handle)


async def test_a_producer_whose_start_failed_can_be_left_alone(server: Server) -> None:
    producer = Producer("127.0.0.1:1")
    with pytest.raises(OSError, match="no name server"):
        await producer.start()
    await producer.stop()


def test_network_errors_are_what_python_calls_them() -> None:
    assert issubclass(NetworkError, OSError)
    assert issubclass(RequestTimeout, TimeoutError)
    assert str(RequestTimeout("no answer")) == "no answer"


@pytest.mark.parametrize("name", sorted(set(aerobee.__all__) - {"__version__"}))
def test_help_shows_every_public_name(name: str) -> None:
    assert pydoc.render_doc(getattr(aerobee, name))


def test_a_star_import_gives_the_public_names() -> None:
    names: dict[str, object] = {}
    exec("from aerobee import *", names)
    assert {"Producer", "PushConsumer", "Message", "run"} <= names.keys()


def test_the_name_server_comes_from_the_environment_when_none_is_given(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("AEROBEE_NAMESRV", raising=False)
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    assert usual_namesrv() == "127.0.0.1:9876"
    monkeypatch.setenv("NAMESRV_ADDR", "10.0.0.1:9876;10.0.0.2:9876")
    assert Producer().session.namesrv == "10.0.0.1:9876;10.0.0.2:9876"
    monkeypatch.setenv("AEROBEE_NAMESRV", "10.0.0.3:9876")
    assert Producer().session.namesrv == "10.0.0.3:9876"
    assert Producer("127.0.0.1:1234").session.namesrv == "127.0.0.1:1234"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_run_ends_by_a_signal_and_commits_what_was_handled(
    server: Server, number: signal.Signals
) -> None:
    await filled(server, 20)
    script = f"""
        import aerobee
        done = []
        def handle(message):
            done.append(message.body)
            if len(done) == 20:
                print("handled", flush=True)
        aerobee.run(aerobee.PushConsumer({server.namesrv!r}, group="g", topics={{"orders": "*"}}, start="first",
                                         handler=handle))
        print("ended")
    """
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", textwrap.dedent(script), stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    assert await process.stdout.readline() == b"handled\n"
    process.send_signal(number)
    assert await process.stdout.read() == b"ended\n"
    assert await process.wait() == 0
    queues = server.broker.topics.require("orders").write_queue_nums
    committed = sum(max(0, server.broker.offsets.get("g", "orders", queue)) for queue in range(queues))
    assert committed == 20


def test_run_without_a_client_says_so() -> None:
    with pytest.raises(ValueError, match="no client"):
        aerobee.run()


async def test_the_name_server_answers_only_when_the_broker_is_registered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whoever can connect finds the topics: no moment in which a send is told that nobody creates them."""
    seen: list[bool] = []
    start = NameServer.start

    async def watched(self: NameServer) -> None:
        seen.append("TBW102" in self.routes.topics())
        await start(self)

    monkeypatch.setattr(NameServer, "start", watched)
    async with Server(ephemeral=True):
        assert seen == [True]


def test_run_takes_a_coroutine_to_its_end_on_the_fast_loop() -> None:
    async def main() -> str:
        return type(asyncio.get_running_loop()).__module__

    assert aerobee.run(main()) == "uvloop"


async def test_a_send_that_a_stop_does_not_wait_for_ends_with_it() -> None:
    options = ProducerOptions(send_timeout_ms=60_000, stop_wait_ms=10)
    with TestServer() as server:
        async with Producer(server.namesrv, options=options) as producer:
            await producer.send(Message("orders", b"1"))
            await asyncio.to_thread(server.stop)
            waiting = asyncio.ensure_future(producer.send(Message("orders", b"2")))
            await asyncio.sleep(0)
        with pytest.raises(ClientClosed, match="this client is closed"):
            await asyncio.wait_for(waiting, 20)  # far less than the send has


def test_a_test_server_outside_its_block_says_so() -> None:
    server = TestServer()
    with pytest.raises(RuntimeError, match="use it in a `with` block"):
        server.start()
    with server:
        pass
    with pytest.raises(RuntimeError, match="use it in a `with` block"):
        server.start()


def test_a_message_is_printed_as_its_sender_knows_it() -> None:
    with TestServer() as server, blocking.Producer(server.namesrv) as producer:
        producer.send(Message("orders", b"tea", keys=["o-1"], tags="new", properties={"tenant": "t-1"}))
        producer.send(Message("orders", b"x" * 300))
        first, second = map(repr, server.messages_of("orders"))
    assert "body=b'tea' keys=['o-1'] tags='new' properties={'tenant': 't-1'} attempt=1 of" in first
    assert "xxx'... 300 bytes attempt=1 of" in second
    assert len(second) < 400
