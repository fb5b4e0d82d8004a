# SPDX-License-Identifier: Apache-2.0
"""Rows of a store directory by the reader's tasks alone: every one once, filtered as asked, losses told. No Spark."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from aerobee.errors import TopicNotFound
from aerobee.protocol.message import Record
from aerobee.spark import options
from aerobee.spark.reading import tasks
from aerobee.spark.reading.batch_reader import BatchReader
from aerobee.spark.reading.plan import DataLoss, Place, Range
from aerobee.spark.reading.store_scan import StoreQueues, store_root
from aerobee.spark.reading.stream_reader import StreamReader

if TYPE_CHECKING:
    from pathlib import Path

START = 1_700_000_000_000
COUNT, QUEUES = 240, 3
COLUMNS = ("topic", "brokerName", "queueId", "queueOffset", "tags", "body", "storeTimestamp")


def records() -> list[Record]:
    return [
        Record(
            "t" if n % 8 else "u",
            b"%d:" % n + b"x" * (n % 900),
            f"TAGS\x01{'ab'[n % 2]}\x02price\x01{n}\x02",
            queue_id=n % QUEUES,
            store_timestamp=START + n * 1000,
        )
        for n in range(COUNT)
    ]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from tests.spark.conftest import _write_store

    root = tmp_path_factory.mktemp("rows") / "store"
    _write_store(root, records(), segment=16 * 1024)
    assert len(list((root / "commitlog").iterdir())) >= 4
    return root


def read(store: Path, parts: list[Range] | None = None, **given: str) -> list[list[dict[str, Any]]]:
    """The batches of one task over all of topic t."""
    told = options.for_batch({"storePath": str(store), "subscribe": "t", **given})
    if parts is None:
        queues = StoreQueues(str(store)).queues("t")["store"]
        parts = [Range("t", "store", int(queue), low, high) for queue, (low, high) in sorted(queues.items())]
    task = tasks.Task(told, parts, {}, COLUMNS)
    return [batch.to_pylist() for batch in tasks.read(task)]


def numbers(batches: list[list[dict[str, Any]]]) -> list[int]:
    return [int(row["body"].partition(b":")[0]) for rows in batches for row in rows]


MINE = [n for n in range(COUNT) if n % 8]


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ({}, MINE),
        ({"tags": "a"}, [n for n in MINE if n % 2 == 0]),
        ({"tags": "a||b"}, MINE),
        ({"tags": "c"}, []),
        ({"sqlFilter": "price >= 100 AND price < 120"}, [n for n in MINE if 100 <= n < 120]),
    ],
)
def test_every_row_that_is_asked_for_comes_once_in_the_order_of_the_log(
    store: Path, given: dict[str, str], kept: list[int]
) -> None:
    batches = read(store, None, **given)
    assert numbers(batches) == kept
    for row in (row for rows in batches for row in rows):
        n = int(row["body"].partition(b":")[0])
        assert (row["topic"], row["brokerName"], row["queueId"]) == ("t", "store", n % QUEUES)
        assert row["tags"] == "ab"[n % 2]
        assert round(row["storeTimestamp"].timestamp() * 1000) == START + n * 1000
        assert len(row["body"]) == len(b"%d:" % n) + n % 900


def test_in_order_means_queue_by_queue(store: Path) -> None:
    batches = read(store, orderedByQueue="true")
    rows = [(row["queueId"], row["queueOffset"]) for rows in batches for row in rows]
    assert rows == sorted(rows)
    assert sorted(numbers(batches)) == MINE


def test_batches_are_closed_by_their_rows_and_bytes(store: Path) -> None:
    by_rows = read(store, batchRows="7")
    assert numbers(by_rows) == MINE
    assert max(map(len, by_rows)) == 7
    told = options.for_batch({"storePath": str(store), "subscribe": "t"})
    assert len(read(store)) < len(by_rows)
    assert told.batch_rows > 7


def test_of_a_range_nothing_before_and_nothing_behind_it_is_read(store: Path) -> None:
    parts = [Range("t", "store", 1, 10, 20), Range("t", "store", 2, 0, 1), Range("t", "store", 0, 5, 5)]
    rows = [(row["queueId"], row["queueOffset"]) for rows in read(store, parts) for row in rows]
    assert sorted(rows) == [*((1, at) for at in range(10, 20)), (2, 0)]


@pytest.mark.parametrize("tolerant", [False, True])
def test_messages_whose_log_file_is_gone_are_missed(store: Path, tmp_path: Path, tolerant: bool) -> None:
    copy = tmp_path / "store"
    shutil.copytree(store, copy)
    oldest = min((copy / "commitlog").iterdir())
    oldest.unlink()
    if tolerant:
        left = numbers(read(copy, failOnDataLoss="false"))
        assert 0 < len(left) < len(MINE)
        assert left == MINE[-len(left) :]
    else:
        with pytest.raises(DataLoss, match="lie before the oldest commit-log file"):
            read(copy)


def test_what_a_store_holds_is_told_by_topic(store: Path, tmp_path: Path) -> None:
    queues = StoreQueues(str(store))
    assert queues.topics() == ["t", "u"]
    assert StoreQueues(str(store.parent)).topics() == ["t", "u"], "a data directory around it will do"
    look = queues.look(["t", "none"], frozenset({("none", "store"), ("t", "store")}))
    counts = {queue: sum(n % QUEUES == queue for n in MINE) for queue in range(QUEUES)}
    assert look.bounds == {"t": {"store": {str(queue): (0, counts[queue]) for queue in range(QUEUES)}}}
    assert (look.brokers, look.away, look.gone) == (frozenset({"store"}), {}, frozenset({("none", "store")}))
    assert isinstance(look.failed["none"], TopicNotFound)
    with pytest.raises(TopicNotFound, match="holds no topic 'none'; it holds: t, u"):
        queues.queues("none")
    only = StoreQueues(str(store), {"t": {"any": [2]}})
    assert only.queues("t") == {"store": {"2": (0, counts[2])}}
    assert len(only.queues("u")["store"]) == QUEUES
    with pytest.raises(FileNotFoundError, match="holds no commitlog directory"):
        store_root(str(tmp_path))


@pytest.mark.parametrize("number", [0, 1, 2, 100, 101, COUNT - 1])
@pytest.mark.parametrize("later", [-1, 0, 1])
def test_an_offset_by_time_is_that_of_the_first_message_from_then_on(
    store: Path, number: int, later: int
) -> None:
    moment = START + number * 1000 + later
    places = [Place("t", "store", queue) for queue in range(QUEUES)]
    expected = [
        sum(START + n * 1000 < moment for n in MINE if n % QUEUES == queue) for queue in range(QUEUES)
    ]
    assert StoreQueues(str(store)).offsets_at(places, [moment] * QUEUES) == expected


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ({}, MINE),
        (
            {"startingOffsets": '{"t": {"store": {"0": -1, "1": -1, "2": 5}}}'},
            [n for n in MINE if n % QUEUES == 2][5:],
        ),
        ({"startingTimestamp": str(START + 200_000)}, [n for n in MINE if n >= 200]),
        ({"endingTimestamp": str(START + 50_000)}, [n for n in MINE if n < 50]),
        ({"minPartitions": "5"}, MINE),
        ({"orderedByQueue": "true", "maxPartitions": "1"}, MINE),
    ],
)
def test_a_whole_query_is_planned_and_read_without_a_broker(
    store: Path, given: dict[str, str], kept: list[int]
) -> None:
    told = options.for_batch({"storePath": str(store), "subscribe": "t", **given})
    reader = BatchReader(told, COLUMNS)
    parts = reader.partitions()
    found = [row for part in parts for batch in reader.read(part) for row in batch.to_pylist()]
    assert sorted(int(row["body"].partition(b":")[0]) for row in found) == kept
    if "minPartitions" in given:
        assert len(parts) >= 5
    if "maxPartitions" in given:
        assert len(parts) == 1


@pytest.mark.parametrize("side", ["startingOffsets", "endingOffsets"])
def test_a_query_that_names_a_queue_which_is_not_there_is_refused(store: Path, side: str) -> None:
    misspelt = {'{"t": {"stor": {"0": 5}}}': "names queue stor/0 of 't'", '{"v": {"store": {"0": 5}}}': "'v'"}
    for where, why in misspelt.items():
        told = options.for_batch({"storePath": str(store), "subscribe": "t", side: where})
        with pytest.raises(Exception, match=why):
            BatchReader(told, COLUMNS).partitions()


def stream(store: Path, **given: str) -> StreamReader:
    told = {"storePath": str(store), "subscribe": "t", "startingOffsets": "earliest"}
    return StreamReader(msgspec.structs.replace(options.for_stream({**told, **given}), columns=COLUMNS))


def all_batches(reader: StreamReader, limit: Any) -> list[list[int]]:
    """As Spark asks: offsets go through JSON, and the same end twice is no batch."""
    at, found = json.loads(json.dumps(reader.initialOffset())), []
    while (end := json.loads(json.dumps(reader.latestOffset(at, limit)))) != at:
        parts = reader.partitions(at, end)
        rows = [row for part in parts for batch in reader.read(part) for row in batch.to_pylist()]
        found.append(sorted(int(row["body"].partition(b":")[0]) for row in rows))
        at = end
    return found


@pytest.mark.parametrize(
    ("limit", "given", "most", "batches"),
    [
        (ReadAllAvailable(), {}, COUNT, 1),
        (ReadMaxRows(50), {}, 50 + QUEUES, 4),
        (ReadAllAvailable(), {"maxOffsetsPerTrigger": "100"}, 100 + QUEUES, 3),
        (ReadMaxRows(50), {"maxOffsetsPerTrigger": "100"}, 50 + QUEUES, 4),
        (ReadAllAvailable(), {"maxBytesPerTrigger": "20000"}, 120, 2),
    ],
)
def test_a_stream_reads_each_message_once_batch_by_batch(
    store: Path, limit: Any, given: dict[str, str], most: int, batches: int
) -> None:
    found = all_batches(stream(store, **given), limit)
    assert sorted(n for batch in found for n in batch) == MINE
    assert max(map(len, found)) <= most
    assert len(found) >= batches


def test_a_stream_takes_as_much_as_its_option_says_unless_told_otherwise(store: Path) -> None:
    assert isinstance(stream(store).getDefaultReadLimit(), ReadAllAvailable)
    limit = stream(store, maxOffsetsPerTrigger="7").getDefaultReadLimit()
    assert isinstance(limit, ReadMaxRows)
    assert limit.max_rows == 7


def test_available_now_is_what_was_there_when_it_began(store: Path) -> None:
    reader = stream(store)
    reader.prepareForTriggerAvailableNow()
    end = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    assert reader.reportLatestOffset()["o"] == end["o"]
    assert end["o"]["t"]["store"] == {
        str(queue): sum(n % QUEUES == queue for n in MINE) for queue in range(QUEUES)
    }
    assert end["from"] == {"t": {"store": dict.fromkeys("012", 0)}}, "where the first batch began"
    assert reader.latestOffset(end, ReadAllAvailable()) == end


def test_a_stream_that_names_a_queue_which_is_not_there_is_refused(store: Path) -> None:
    with pytest.raises(Exception, match="names queue store/9 of 't'"):
        stream(store, startingOffsets='{"t": {"store": {"9": 5}}}').initialOffset()
