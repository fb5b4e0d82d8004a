# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import asyncio
import multiprocessing
import threading
from contextlib import suppress
from typing import Any

import pytest

import aerobee.blocking as aerobee

pytestmark = pytest.mark.slow


async def test_the_same_names_without_async(cluster: Any) -> None:
    topic, group = await cluster.topic(), await cluster.group()

    def work() -> list[bytes]:
        options = cluster.options
        with aerobee.Producer(cluster.namesrv, group="shop", options=options) as producer:
            for n in range(10):
                producer.send(aerobee.Message(topic, b"%d" % n))
        with aerobee.PullConsumer(
            cluster.namesrv, group=cluster.fresh("g"), topics={topic: "*"}, start="first", options=options
        ) as consumer:
            polled: list[bytes] = []
            while len(polled) < 10:
                polled += [message.body for message in consumer.poll(timeout_ms=5_000)]
        with aerobee.SimpleConsumer(
            cluster.namesrv, group=group, topics={topic: "*"}, options=options
        ) as simple:
            received = 0
            while received < 10:
                for message in simple.receive(wait_ms=5_000):
                    message.ack()
                    received += 1
        with aerobee.Admin(cluster.namesrv, options=options) as admin:
            assert topic in admin.topics()
            queue = next(iter(admin.topic_stats(topic)))
            assert len(list(admin.browse(queue, 0))) <= 10
        return polled

    assert sorted(await asyncio.to_thread(work)) == [b"%d" % n for n in range(10)]


async def test_what_an_exception_leaves_of_a_poll_comes_again(cluster: Any) -> None:
    topic = await cluster.topic()

    def work() -> list[bytes]:
        with aerobee.Producer(cluster.namesrv, group="shop", options=cluster.options) as producer:
            for n in range(3):
                producer.send(aerobee.Message(topic, b"%d" % n, sharding_key="same"))
        made: Any = {
            "group": cluster.fresh("g"),
            "topics": {topic: "*"},
            "start": "first",
            "options": cluster.options,
        }
        with suppress(ZeroDivisionError), aerobee.PullConsumer(cluster.namesrv, **made) as consumer:
            while not (polled := consumer.poll(timeout_ms=5_000)):
                pass
            raise ZeroDivisionError(polled)
        with aerobee.PullConsumer(cluster.namesrv, **made) as consumer:
            again: list[bytes] = []
            while len(again) < 3:
                again += [message.body for message in consumer.poll(timeout_ms=5_000)]
        return again

    assert await asyncio.to_thread(work) == [b"0", b"1", b"2"]


async def test_a_push_consumers_plain_handler_runs_in_threads(cluster: Any) -> None:
    topic = await cluster.topic()

    def work() -> set[str]:
        names, done = set(), threading.Event()

        def handle(message: Any) -> None:
            names.add(threading.current_thread().name)
            done.set()

        with (
            aerobee.PushConsumer(
                cluster.namesrv,
                group=cluster.fresh("g"),
                topics={topic: "*"},
                handler=handle,
                start="first",
                options=cluster.options,
            ),  # fmt: skip
            aerobee.Producer(cluster.namesrv, group="shop", options=cluster.options) as producer,
        ):
            producer.send(aerobee.Message(topic, b"x"))
            assert done.wait(20)
        return names

    assert all(name.startswith("aerobee-") for name in await asyncio.to_thread(work))


def _send_in_child(namesrv: str, topic: str, result: Any) -> None:
    with aerobee.Producer(namesrv, group="child") as producer:
        result.put(producer.send(aerobee.Message(topic, b"from a child")).queue_offset)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # forking with threads is the point
async def test_it_works_in_a_forked_child(cluster: Any) -> None:
    topic = await cluster.topic()

    def work() -> int:
        with aerobee.Producer(cluster.namesrv, group="parent") as producer:  # the parent's loop runs already
            producer.send(aerobee.Message(topic, b"from the parent"))
            context = multiprocessing.get_context("fork")
            result: Any = context.Queue()
            child = context.Process(target=_send_in_child, args=(cluster.namesrv, topic, result))
            child.start()
            offset = result.get(timeout=20)
            child.join(20)
            producer.send(aerobee.Message(topic, b"from the parent again"))
            return int(offset)

    assert await asyncio.to_thread(work) >= 0


async def test_errors_are_the_same_and_the_loop_refuses_to_wait_for_itself(cluster: Any) -> None:
    def work() -> None:
        with pytest.raises(ValueError, match="blank"):
            aerobee.Message("", b"x")
        with pytest.raises(RuntimeError, match="not started"):
            aerobee.Producer(cluster.namesrv).send(aerobee.Message("t", b"x"))

        async def inside() -> None:
            aerobee.run(asyncio.sleep(0))

        with pytest.raises(RuntimeError, match="wait for itself"):
            aerobee.run(inside())

    await asyncio.to_thread(work)
