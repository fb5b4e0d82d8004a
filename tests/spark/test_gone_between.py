# SPDX-License-Identifier: Apache-2.0
"""What a task does when its topic went away after it was planned, and how Spark's errors are told. No Spark here."""

from __future__ import annotations

import asyncio
import shutil
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from aerobee import Message, Producer
from aerobee.clock import ManualClock
from aerobee.protocol.message import Record
from aerobee.settings import StoreConfig
from aerobee.spark.options import for_batch
from aerobee.spark.reading import tasks
from aerobee.spark.reading.plan import DataLoss, Range
from aerobee.spark.reasons import reason
from aerobee.store.message_store import MessageStore
from aerobee.testing.server import TestServer
from tests.spark.patient import PATIENT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


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
        async with Producer(server.namesrv, group="tests", options=PATIENT) as producer:
            await producer.send(Message("deleted-since", b"x"))

    server.create_topic("deleted-since", queues=1)
    asyncio.run(send())
    with pytest.raises(DataLoss, match=r"the broker holds 0..1, planned were 4..9"):
        list(tasks.read(planned(server)))
    assert list(tasks.read(planned(server, failOnDataLoss="false"))) == []


def stored(tmp_path: Path, **options: str) -> tuple[Path, tasks.Task]:
    """A store of three log files, and a task planned over all of its one queue."""
    root = tmp_path / "store"
    config = StoreConfig(commit_log_segment_bytes=1 << 16, consume_queue_units=16)
    store = MessageStore.open(root, config, ManualClock())
    for n in range(40):
        store.append(Record("orders", b"%04d" % n + bytes(3_000), "", 0))
    store.close()
    read = for_batch({"storePath": str(root), "subscribe": "orders", **options})
    return root, tasks.Task(read, [Range("orders", "store", 0, 0, 40)], {}, ("queueOffset",))


@pytest.mark.parametrize(
    ("gone", "said", "left"),
    [
        ("consumequeue/orders", "40 messages of orders/0 0..40 were in queue files that are gone", []),
        ("consumequeue/orders/0/00000000000000000320", "16 messages of .* queue files", [*range(16), *range(32, 40)]),
        ("commitlog/00000000000000000000", "lie before the oldest commit-log file", None),
    ],
)  # fmt: skip
def test_files_deleted_between_plan_and_scan_are_data_loss_or_left_out(
    tmp_path: Path, gone: str, said: str, left: list[int] | None
) -> None:
    root, task = stored(tmp_path)
    shutil.rmtree(root / gone) if (root / gone).is_dir() else (root / gone).unlink()
    with pytest.raises(DataLoss, match=said):
        list(tasks.read(task))
    lenient = msgspec.structs.replace(
        task, options=msgspec.structs.replace(task.options, fail_on_data_loss=False)
    )
    found = [offset for batch in tasks.read(lenient) for offset in batch.column(0).to_pylist()]
    if left is None:
        assert found == list(range(40 - len(found), 40))
        assert 0 < len(found) < 40
    else:
        assert found == left


def test_a_log_file_deleted_while_it_is_scanned_is_data_loss_or_left_out(tmp_path: Path) -> None:
    for lenient in ("false", "true"):
        root, task = stored(tmp_path / lenient, batchRows="5", failOnDataLoss=str(lenient == "false").lower())
        reading = tasks.read(task)
        seen = next(reading).num_rows
        (root / "commitlog" / f"{1 << 16:020d}").unlink()
        if lenient == "true":
            assert 0 < seen + sum(batch.num_rows for batch in reading) < 40
        else:
            with pytest.raises(DataLoss, match=r"lay in .*00000000000000065536, which was deleted meanwhile"):
                list(reading)


TRACE = """[STREAM_FAILED] Query terminated with exception: [X] failed: Traceback (most recent call last):
  File "a.py", line 1, in f
    raise DataLoss("gone")
{}
 SQLSTATE: 38000
\tat org.apache.spark"""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (TRACE.format("aerobee.spark.reading.plan.DataLoss: t/b/0: gone. Do this"), "t/b/0: gone. Do this"),
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
