# SPDX-License-Identifier: Apache-2.0
"""Admission by bytes, by the sizes messages really have; lag and rate of a stream. No Spark is started here."""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")

from pyspark.sql.streaming.datasource import ReadAllAvailable

from aerobee.protocol import message
from aerobee.protocol.command import Command
from aerobee.protocol.message import Record
from aerobee.spark import options
from aerobee.spark import stream_figures as metrics
from aerobee.spark.reading import plan, sizes
from aerobee.spark.reading.offsets import OffsetTexts
from aerobee.spark.reading.stream_reader import StreamReader
from aerobee.testing.server import TestServer
from tests.spark.patient import PATIENT

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from aerobee.spark.cluster import Question
    from aerobee.spark.option_values import Offsets


class ByOffset:
    """Messages of queue 0 take 100 bytes up to offset 1000, and 10,000 bytes from there on; others 1000."""

    def total(self, parts: list[plan.Range]) -> float:
        return float(sum(map(self._size, parts)))

    @staticmethod
    def _size(part: plan.Range) -> int:
        if part.queue:
            return len(part) * 1000
        small = max(0, min(part.end, 1000) - part.start)
        return small * 100 + (len(part) - small) * 10_000


def offsets(**queues: int) -> Offsets:
    return {"t": {"b": {name[1:]: offset for name, offset in queues.items()}}}


@pytest.mark.parametrize("budget", [1, 5_000, 80_000, 500_000, 4_000_000, 1 << 40])
def test_a_batch_fits_its_bytes_also_where_sizes_change(budget: int) -> None:
    begin, end = offsets(q0=0, q1=0), offsets(q0=2000, q1=500)
    rows = sizes.rows_within(budget, begin, end, ByOffset())
    taken = plan.clip(begin, end, rows)
    parts = [plan.Range("t", "b", int(q), 0, stop) for _, _, q, stop in plan.flat(taken) if stop]
    held = ByOffset().total(parts)
    assert held <= budget * 1.1 or sum(map(len, parts)) <= 2  # one message of each queue always moves
    assert held >= min(budget, 10_600_000) * 0.5 or budget < 2000  # and is not much smaller than it may be


def planned(reader: StreamReader) -> int:
    start = reader.initialOffset()
    return plan.backlog(start["o"], reader.latestOffset(start, ReadAllAvailable())["o"])


@pytest.mark.parametrize("size", [100, 20_000])
def test_a_stream_from_files_takes_as_many_as_fit(
    tmp_path: Path, write_store: Callable[[Path, list[Record]], None], size: int
) -> None:
    write_store(tmp_path / "store", [Record("t", bytes(size), "", queue_id=i % 2) for i in range(100)])
    given = {"storePath": str(tmp_path / "store"), "subscribe": "t", "startingOffsets": "earliest"}
    real = 91 + size + 1
    reader = StreamReader(options.for_stream({**given, "maxBytesPerTrigger": str(real * 10)}))
    assert planned(reader) == 10
    reader = StreamReader(options.for_stream({**given, "maxBytesPerTrigger": str(real * 1000)}))
    assert planned(reader) == 100


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::ResourceWarning")  # Spark ends the runner process: no reader is closed
def test_a_stream_from_a_broker_samples_its_messages() -> None:
    from aerobee import Message, Producer

    with TestServer() as server:
        server.create_topic("large", queues=2)

        async def send() -> None:
            async with Producer(server.namesrv, group="g", options=PATIENT) as producer:
                for _ in range(40):
                    await producer.send(Message("large", random.Random(1).randbytes(10_000)))

        server.run(send())
        given = {"namesrv": server.namesrv, "subscribe": "large", "startingOffsets": "earliest"}
        reader = StreamReader(options.for_stream({**given, "maxBytesPerTrigger": "110000"}))
        assert 8 <= planned(reader) <= 12  # by 512 bytes each it would have been all 40


def test_of_many_ranges_the_largest_are_sampled_for_all() -> None:
    asked: list[Question] = []
    measured = sizes.BrokerSizes(
        options.for_stream({"namesrv": "h:1", "subscribe": "t"}), lambda broker: f"{broker}:1"
    )
    body = message.encode(Record("t", bytes(909), "", queue_id=0)) * 3  # each takes 1,001 bytes

    def answer(questions: Sequence[Question]) -> list[Command]:
        asked.extend(questions)
        return [Command(0, 1, body=body) for _ in questions]

    measured._cluster.ask_each = answer  # type: ignore[assignment, method-assign]
    parts = [plan.Range(f"t{n}", "b", 0, 0, 10 + n) for n in range(1_000)]
    assert measured.total(parts) == pytest.approx(sum(map(len, parts)) * 1_001)
    assert len(asked) == 3 * sizes.MOST_ASKED
    assert {question.header.topic for question in asked} == {f"t{n}" for n in range(936, 1_000)}  # type: ignore[attr-defined]
    assert measured.total([]) == 0


def at(**queues: int) -> dict[str, Any]:
    return {"o": offsets(**queues), "v": 1}


def progress(**changed: Any) -> dict[str, Any]:
    told = {
        "id": "7c", "name": "lake", "batchId": 3, "numInputRows": 10, "processedRowsPerSecond": 5.0,
        "durationMs": {"triggerExecution": 2000},
        "sources": [{"endOffset": at(q0=10, q1=5), "latestOffset": at(q0=25, q1=5, q2=7)}],
    }  # fmt: skip
    return {**told, **changed}


def test_lag_is_what_lies_between_the_batch_and_the_heads() -> None:
    figures = metrics.figures_of(progress())
    assert (figures.lag, figures.behind, figures.rows_per_second) == ({"t": 22}, 22, 5.0)
    assert str(figures) == "lake batch 3: 10 messages, 5/s, 22 behind"


def test_a_query_without_a_first_batch_has_no_figures_yet() -> None:
    with pytest.raises(ValueError, match="has reported no progress yet; ask again after its first batch"):
        metrics.figures_of(None)


def test_a_batch_that_is_made_again_after_a_restart_does_not_claim_to_have_caught_up() -> None:
    """Spark asks for no heads before it: `latestOffset` is null, or the text of that."""
    for nothing in (None, "null"):
        figures = metrics.figures_of(progress(sources=[{"endOffset": at(q0=10), "latestOffset": nothing}]))
        assert (figures.lag, figures.behind) == ({}, 0)
        assert str(figures) == "lake batch 3: 10 messages, 5/s, lag not known yet"


def test_offsets_may_come_as_text_and_other_sources_have_no_lag() -> None:
    source = {"endOffset": json.dumps(at(q0=1)), "latestOffset": json.dumps(at(q0=3))}
    other = {"endOffset": "17", "latestOffset": None}
    figures = metrics.figures_of(progress(sources=[source, other], processedRowsPerSecond=None))
    assert (figures.lag, figures.rows_per_second) == ({"t": 2}, 0.0)


def test_offsets_of_many_queues_are_inflated() -> None:
    done = {f"t{i}": {"b": {str(q): 1_000 for q in range(8)}} for i in range(100)}
    heads = {topic: {"b": {**brokers["b"], "3": 1_007}} for topic, brokers in done.items()}
    source = {
        "endOffset": OffsetTexts().reached(done),
        "latestOffset": json.dumps(OffsetTexts().reached(heads)),
    }
    assert metrics.figures_of(progress(sources=[source])).lag == dict.fromkeys(done, 7)
