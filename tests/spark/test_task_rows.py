# SPDX-License-Identifier: Apache-2.0
"""What a task hands to Spark: which rows pass, which columns are needed for that, what is asked when a broker falters,
and that every connection ends. Links are scripted. No Spark."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from aerobee.errors import AerobeeError, NetworkError, RequestCodeNotSupported, TopicNotFound
from aerobee.protocol import message
from aerobee.protocol.command import Command, header_fields
from aerobee.protocol.headers.consume import PullResult
from aerobee.protocol.message import Record
from aerobee.spark import options
from aerobee.spark.reading import tasks, wire_scan
from aerobee.spark.reading.plan import DataLoss, Range
from aerobee.spark.reading.tasks import Task

if TYPE_CHECKING:
    from collections.abc import Iterator

PART = Range("t", "b", 3, 10, 20)


def read(**given: str) -> options.Read:
    return options.for_batch({"namesrv": "h:1", "subscribe": "t", "retryIntervalMs": "250", **given})


def scan(**given: str) -> options.Read:
    return options.for_batch({"storePath": "unused", "subscribe": "t", **given})


# -- which rows pass --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("told", "asked", "needed"),
    [
        (read(), ("body",), ("body",)),
        (read(tags="a"), ("body",), ("body", "tags")),
        (read(tags="a"), ("tags", "body"), ("tags", "body")),
        (read(sqlFilter="x = 1"), ("body",), ("body",)),  # the broker's work
        (scan(sqlFilter="x = 1"), ("body",), ("body", "properties")),
        (scan(sqlFilter="x = 1"), ("properties",), ("properties",)),
        (scan(), ("body",), ("body",)),
        (read(checkBodies="true", tags="a"), ("body",), ("body", "bodyCrcOk", "tags")),
        (read(checkBodies="true"), ("bodyCrcOk", "body"), ("bodyCrcOk", "body")),
    ],
)
def test_a_filter_has_its_column_and_no_other_is_made(
    told: options.Read, asked: tuple[str, ...], needed: tuple[str, ...]
) -> None:
    assert tasks._with_filter_columns(Task(told, [], {}, asked)) == needed


ROWS = pa.RecordBatch.from_pydict(
    {
        "n": [1, 2, 3, 4],
        "tags": ["a", "b", None, "ab"],
        "bodyCrcOk": [True, False, True, True],
        "properties": pa.array(
            [[("x", "1")], [("x", "2")], [], [("x", "1"), ("y", "3")]], pa.map_(pa.string(), pa.string())
        ),
    }
)


@pytest.mark.parametrize(
    ("told", "kept"),
    [
        (read(), [1, 2, 3, 4]),
        (read(tags="a"), [1]),
        (read(tags="a || b"), [1, 2]),
        (read(tags="c"), []),
        (read(sqlFilter="x = '1'"), [1, 2, 3, 4]),
        (scan(sqlFilter="x = '1'"), [1, 4]),
        (scan(sqlFilter="x IS NULL"), [3]),
    ],
)
def test_rows_pass_whose_tag_or_properties_are_wanted(told: options.Read, kept: list[int]) -> None:
    assert tasks._matching(told, ROWS).column("n").to_pylist() == kept


def test_rows_whose_body_is_damaged_are_left_out_when_that_is_asked_for(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING, "aerobee.spark"):
        assert tasks._undamaged(read(), ROWS).column("n").to_pylist() == [1, 2, 3, 4]
        assert tasks._undamaged(read(checkBodies="true"), ROWS.slice(2)).column("n").to_pylist() == [3, 4]
        assert caplog.records == []
        assert tasks._undamaged(read(checkBodies="true"), ROWS).column("n").to_pylist() == [1, 3, 4]
    assert [each.message for each in caplog.records] == [
        "left out 1 records whose body does not match its CRC"
    ]


# -- over the wire ----------------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    found: list[float] = []
    monkeypatch.setattr(tasks, "time", SimpleNamespace(sleep=found.append))
    return found


def records(*offsets: int, tag: str = "a", damaged: bool = False) -> bytes:
    made = [Record("t", b"%d" % n, f"TAGS\x01{tag}\x02", queue_id=3, queue_offset=n) for n in offsets]
    raw = [bytearray(message.encode(each)) for each in made]
    if damaged:
        raw[0][88] ^= 1
    return b"".join(map(bytes, raw))


class Link:
    """Answers what the script says, in its order: bodies with the offset to go on from, codes, or errors."""

    def __init__(self, *script: Any) -> None:
        self.script = list(script)
        self.asked: list[int] = []
        self.closed = 0

    def send(self, header: Any) -> int:
        self.asked.append(header.queue_offset)
        return len(self.asked)

    ahead = send

    def receive_view(self, opaque: int) -> tuple[Command, memoryview]:
        assert opaque == len(self.asked), "the last question is the one under way"
        told = self.script.pop(0)
        if isinstance(told, AerobeeError):
            raise told
        code, following, body = told
        result = PullResult(next_begin_offset=following, min_offset=0, max_offset=99)
        return Command(code, ext=header_fields(result)), memoryview(body)

    def close(self) -> None:
        self.closed += 1


def rows(monkeypatch: pytest.MonkeyPatch, link: Link, told: options.Read | None = None) -> list[int]:
    monkeypatch.setattr(tasks, "connection_to", lambda address, options: link)
    task = Task(told or read(), [PART], {"b": "b:1"}, ("body",))
    return [int(row["body"]) for batch in tasks.read(task) for row in batch.to_pylist()]


def test_each_answer_says_where_the_next_question_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    link = Link((0, 13, records(10, 11, 12)), (20, 15, b""), (0, 20, records(15, 19)))
    assert rows(monkeypatch, link) == [10, 11, 12, 15, 19]
    assert link.asked == [10, 13, 15], "and none is asked behind the end"
    assert (link.closed, link.script) == (1, [])


def test_a_body_counts_only_with_an_answer_that_found_something(monkeypatch: pytest.MonkeyPatch) -> None:
    link = Link((20, 12, records(10)), (0, 14, b""), (0, 30, records(14, 19, 20, 21)))
    assert rows(monkeypatch, link) == [14, 19]
    assert link.asked == [10, 12, 14]


def test_what_fails_is_asked_again_from_where_it_was(
    monkeypatch: pytest.MonkeyPatch, slept: list[float]
) -> None:
    lost = NetworkError("lost")
    link = Link(lost, (0, 15, records(10)), lost, lost, lost, (0, 20, records(15)))
    assert rows(monkeypatch, link) == [10, 15]
    assert link.asked == [10, 10, 15, 15, 15, 15], "each piece has its own tries"
    assert slept == [0.25] * 4
    for retries in (0, 2):
        link = Link(*[lost] * (retries + 1))
        with pytest.raises(NetworkError):
            rows(monkeypatch, link, read(numRetries=str(retries)))
        assert (len(link.asked), link.closed) == (retries + 1, 1)


def test_a_refusal_that_no_retry_changes_ends_the_task_at_once(
    monkeypatch: pytest.MonkeyPatch, slept: list[float]
) -> None:
    link = Link(RequestCodeNotSupported("what?"))
    with pytest.raises(RequestCodeNotSupported):
        rows(monkeypatch, link)
    assert (link.asked, link.closed, slept) == ([10], 1, [])


def test_a_topic_deleted_while_it_is_read_is_data_loss_or_the_end(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    script = [(0, 15, records(10)), TopicNotFound("t"), TopicNotFound("t")]
    with pytest.raises(DataLoss) as caught:
        rows(monkeypatch, Link(*script), read(numRetries="1"))
    said = "t/b/3: the topic was deleted before offsets 15..20 were read"
    assert str(caught.value) == f"{said}. Set failOnDataLoss=false to go on with what is there"
    with caplog.at_level(logging.WARNING, "aerobee.spark"):
        assert rows(monkeypatch, Link(*script), read(numRetries="1", failOnDataLoss="false")) == [10]
    assert [each.message for each in caplog.records] == [said]


def test_offsets_that_went_away_are_data_loss_or_stepped_over(monkeypatch: pytest.MonkeyPatch) -> None:
    script = [(21, 17, b""), (0, 20, records(17, 18, 19))]
    with pytest.raises(DataLoss, match=r"offsets 10\.\.17 were deleted while reading"):
        rows(monkeypatch, link := Link(*script))
    assert link.closed == 1
    assert rows(monkeypatch, Link(*script), read(failOnDataLoss="false")) == [17, 18, 19]
    assert rows(monkeypatch, Link((19, 0, b"")), read(failOnDataLoss="false")) == []


def test_bad_rows_are_left_out_and_only_asked_columns_handed_over(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    told = read(tags="a", checkBodies="true")
    script = (0, 20, records(10) + records(11, tag="b") + records(12, damaged=True) + records(13))
    monkeypatch.setattr(tasks, "connection_to", lambda address, options: Link(script))
    batches = list(tasks.read(Task(told, [PART], {"b": "b:1"}, ("queueOffset", "body"))))
    assert [each.to_pydict() for each in batches] == [{"queueOffset": [10, 13], "body": [b"10", b"13"]}]
    cut = (0, 20, records(10) + records(11)[:-40])
    monkeypatch.setattr(tasks, "connection_to", lambda address, options: Link(cut))
    with caplog.at_level(logging.WARNING, "aerobee.spark"):
        (batch,) = tasks.read(Task(read(), [PART], {"b": "b:1"}, ("queueOffset",)))
    assert batch.to_pydict() == {"queueOffset": [10]}
    position = len(records(10))
    assert caplog.records[-1].message == f"left out bad record position={position}: cut off"


def test_of_many_bad_records_five_are_told(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    raw = bytearray(records(*range(10, 17)))
    size = len(raw) // 7
    for n in range(7):
        raw[n * size + 4] ^= 0xFF
    with caplog.at_level(logging.WARNING, "aerobee.spark"):
        assert rows(monkeypatch, Link((0, 20, bytes(raw)))) == []
    assert [each.message for each in caplog.records] == [
        f"left out bad record position={n * size}: no record magic" for n in range(5)
    ]


def test_links_end_also_when_nobody_wants_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    links = {"b:1": Link((0, 15, records(10))), "c:1": Link()}
    monkeypatch.setattr(tasks, "connection_to", lambda address, options: links[address])
    addresses = {"b": "b:1", "c": "c:1"}
    batches = tasks.read(Task(read(batchRows="1"), [PART], addresses, ("body",)))
    next(batches)
    assert [link.closed for link in links.values()] == [0, 0]
    batches.close()  # type: ignore[attr-defined]
    assert [link.closed for link in links.values()] == [1, 1]


def test_a_task_in_the_order_of_the_log_scans_by_one_link_and_ends_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    link, told = Link(), read()
    scanned: list[Any] = []

    def scanning(*given: Any) -> Iterator[Any]:
        scanned.append(given)
        yield SimpleNamespace(bad=[], batch=pa.RecordBatch.from_pydict({"body": [b"1"]}))
        raise NetworkError("lost")

    monkeypatch.setattr(wire_scan, "scan", scanning)
    monkeypatch.setattr(tasks, "connection_to", lambda address, options: link)
    batches = tasks.read(Task(told, [PART], {"b": "b:1"}, ("body",), in_log_order=True))
    assert next(batches).to_pydict() == {"body": [b"1"]}
    assert link.closed == 0
    with pytest.raises(NetworkError):
        next(batches)
    assert (scanned, link.closed) == ([(link, [PART], ("body",), told)], 1)


def test_tasks_are_stretches_of_the_log_where_these_serve_better(monkeypatch: pytest.MonkeyPatch) -> None:
    source: Any = SimpleNamespace(address=lambda broker: f"{broker}:1")
    parts = [PART, Range("t", "c", 0, 0, 5)]
    groups = [[parts[0]], [parts[1]]]
    addresses = {"b": "b:1", "c": "c:1"}
    asked: list[Any] = []
    told = read()
    for stretches, expected, in_order in ((None, groups, False), ([parts], [parts], True)):
        monkeypatch.setattr(wire_scan, "cut", lambda *given, found=stretches: asked.append(given) or found)
        found = tasks.over_the_wire(source, parts, groups, told, ("body",))
        assert found == [Task(told, group, addresses, ("body",), in_order) for group in expected]
    assert asked == [(source, parts, 2, told)] * 2


def test_the_group_of_a_pull_is_that_of_the_option_or_the_sources_own() -> None:
    for told, group in ((read(), options.DEFAULT_GROUP), (read(group="mine"), "mine")):
        header = tasks.request(PART, 12, told)
        assert header.consumer_group == group
        assert (header.queue_offset, header.max_msg_nums, header.as_stored) == (12, 8, True)
