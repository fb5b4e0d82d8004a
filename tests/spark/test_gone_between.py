# SPDX-License-Identifier: Apache-2.0
"""What a task does when its topic went away after it was planned, and how Spark's errors are told. No Spark here."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from aerobee import Message, Producer
from aerobee.spark import tasks
from aerobee.spark.options import for_batch
from aerobee.spark.plan import DataLoss, Range
from aerobee.spark.reasons import reason
from aerobee.testing.server import TestServer

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def server() -> Iterator[TestServer]:
    with TestServer() as running:
        yield running


def planned(server: TestServer, **options: str) -> tasks.Task:
    read = for_batch(
        {"namesrv": server.namesrv, "subscribe": "deleted-since", "retryIntervalMs": "1", **options}
    )
    part = Range("deleted-since", "broker-a", 0, 4, 9)
    return tasks.Task(read, [part], {"broker-a": server.broker_address}, ("body",))


def test_a_topic_deleted_between_plan_and_read_is_data_loss_or_nothing(server: TestServer) -> None:
    with pytest.raises(
        DataLoss, match=r"deleted-since/broker-a/0: the topic was deleted before offsets 4..9"
    ):
        list(tasks.read(planned(server)))
    assert list(tasks.read(planned(server, failOnDataLoss="false"))) == []


def test_a_topic_re_created_between_plan_and_read_is_data_loss_or_what_is_there(server: TestServer) -> None:
    async def send() -> None:
        async with Producer(server.namesrv, group="tests") as producer:
            await producer.send(Message("deleted-since", b"x"))

    server.create_topic("deleted-since", queues=1)
    asyncio.run(send())
    with pytest.raises(DataLoss, match=r"the broker holds 0..1, planned were 4..9"):
        list(tasks.read(planned(server)))
    assert list(tasks.read(planned(server, failOnDataLoss="false"))) == []


TRACE = """[STREAM_FAILED] Query terminated with exception: [X] failed: Traceback (most recent call last):
  File "a.py", line 1, in f
    raise DataLoss("gone")
{}
 SQLSTATE: 38000
\tat org.apache.spark"""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (TRACE.format("aerobee.spark.plan.DataLoss: t/b/0: gone. Do this"), "t/b/0: gone. Do this"),
        (
            TRACE.format("ModuleNotFoundError: No module named 'x'"),
            "ModuleNotFoundError: No module named 'x'",
        ),
        (TRACE.format("KeyboardInterrupt"), "KeyboardInterrupt"),
        ("[PATH_NOT_FOUND] no such path\nmore", "[PATH_NOT_FOUND] no such path"),
        ("", "RuntimeError"),
    ],
)
def test_the_sentence_that_matters_is_found_in_sparks_pages(text: str, expected: str) -> None:
    error: Any = RuntimeError(text)
    assert reason(error) == expected
