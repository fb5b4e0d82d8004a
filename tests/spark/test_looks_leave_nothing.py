# SPDX-License-Identifier: Apache-2.0
"""A batch read is a look: it makes no group and moves none. No Spark is started."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")

from aerobee import Admin, Message, Producer, ProducerOptions
from aerobee.spark.options import for_batch
from aerobee.spark.reading.batch_reader import BatchReader, Part
from aerobee.testing.server import TestServer
from tests.spark.patient import PATIENT

if TYPE_CHECKING:
    from collections.abc import Iterator

# Spark ends the runner process: no reader is closed.
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::ResourceWarning")]


@pytest.fixture(scope="module")
def server() -> Iterator[TestServer]:
    with TestServer() as running:
        running.create_topic("looked-at", queues=2)
        running.run(_prepared(running))
        yield running


async def _prepared(server: TestServer) -> None:
    async with (
        Producer(server.namesrv, group="p", options=PATIENT) as producer,
        Admin(server.namesrv) as admin,
    ):
        for number in range(6):
            await producer.send(Message("looked-at", b"%d" % number))
        await admin.create_group("known")
        await admin.reset_offsets("known", "looked-at", "last")


async def _groups(server: TestServer) -> set[str]:
    async with Admin(server.namesrv) as admin:
        return set(await admin.groups())


def rows(server: TestServer, **options: Any) -> int:
    given = {"namesrv": server.namesrv, "subscribe": "looked-at", **options}
    reader = BatchReader(for_batch(given), ("queueOffset",))
    parts = [part for part in reader.partitions() if isinstance(part, Part)]
    return sum(batch.num_rows for part in parts for batch in reader.read(part))


def warned(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]


def test_a_batch_from_the_offsets_of_a_group_that_nobody_knows_does_not_make_it_and_says_so(
    server: TestServer, caplog: pytest.LogCaptureFixture
) -> None:
    assert rows(server, group="ghost", startingOffsets="group") == 6
    assert "ghost" not in server.run(_groups(server))
    assert warned(caplog) == [
        "group=ghost has no offsets on looked-at yet: each queue is read from its start"
    ]


@pytest.mark.parametrize("more", [{}, {"tags": "*"}, {"includeRetries": "true"}, {"sqlFilter": "a IS NULL"}])
def test_a_batch_that_names_a_group_does_not_make_it(
    server: TestServer, caplog: pytest.LogCaptureFixture, more: dict[str, str]
) -> None:
    assert rows(server, group="ghost", **more) == 6
    assert "ghost" not in server.run(_groups(server))
    assert warned(caplog) == []


def test_a_batch_from_the_offsets_of_a_group_that_has_some_begins_there(
    server: TestServer, caplog: pytest.LogCaptureFixture
) -> None:
    assert rows(server, group="known", startingOffsets="group") == 0
    assert warned(caplog) == []


async def _one(server: TestServer) -> None:
    async with Producer(server.namesrv, options=ProducerOptions(**server.account)) as producer:
        await producer.send(Message("t", b"1"))


def test_with_an_account_the_rights_of_the_group_named_suffice() -> None:
    with TestServer.secured() as server:
        server.create_topic("t", queues=1)
        server.run(_one(server))
        server.add_user("reader", "secret-of-it", {"Topic:t": "Sub", "Group:mine": "Sub"})
        account = {"accessKey": "reader", "secretKey": "secret-of-it"}
        assert rows(server, subscribe="t", group="mine", startingOffsets="group", **account) == 1
