# SPDX-License-Identifier: Apache-2.0
"""What a handler of the consume pipeline may do wrong fails its messages, never the query. No Spark is started."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("pyspark")

import pyarrow as pa

from aerobee.spark.pipelines import consume


def batch(*bodies: bytes) -> Any:
    n = len(bodies)
    return pa.RecordBatch.from_pydict(
        {
            "topic": ["t"] * n,
            "brokerName": ["broker-a"] * n,
            "physicalOffset": list(range(n)),
            "reconsumeTimes": [0] * n,
            "msgId": [f"id{i}" for i in range(n)],
            "body": list(bodies),
        }
    )


def outcomes(per: str, handler: Any, *bodies: bytes) -> list[tuple[bool, str | None, str | None]]:
    (result,) = consume._ROADS[per](handler)(iter([batch(*bodies)]))
    assert result.num_rows == len(bodies)
    rows = result.to_pylist()
    return [
        (row["ok"], row["result"], (row["error"] or "").strip().rpartition("\n")[2] or None) for row in rows
    ]


def test_a_message_that_fails_leaves_the_others_alone() -> None:
    def handler(row: Any) -> Any:
        return {b"a": "text", b"b": {"n": 1}, b"c": None}[row.body]

    assert outcomes("message", handler, b"a", b"b", b"x", b"c") == [
        (True, "text", None),
        (True, '{"n": 1}', None),
        (False, None, "KeyError: b'x'"),
        (True, None, None),
    ]


def test_why_a_message_failed_is_told_in_a_line() -> None:
    def handler(row: Any) -> None:
        raise ValueError(f"no {row.body.decode()}\nin stock")

    def reasons(length: int) -> list[str | None]:
        (result,) = consume._ROADS["message"](handler, length)(iter([batch(b"a", b"b")]))
        return [row["reason"] for row in result.to_pylist()]

    assert reasons(200) == ["ValueError: no a in stock", "ValueError: no b in stock"]
    assert reasons(11) == ["ValueError…"] * 2
    assert reasons(0) == [None] * 2


@pytest.mark.parametrize("per", ["message", "batch"])
def test_a_row_has_its_properties_as_a_dict(per: str) -> None:
    sent = batch(b"a").append_column(
        "properties", pa.array([[("region", "EU")]], pa.map_(pa.string(), pa.string()))
    )

    def handler(given: Any) -> Any:
        return given.properties["region"] if per == "message" else [row.properties["region"] for row in given]

    (result,) = consume._ROADS[per](handler)(iter([sent]))
    assert result.to_pylist()[0]["result"] == "EU"


def test_a_result_or_an_error_that_is_no_text_is_a_failure_of_its_message() -> None:
    def handler(row: Any) -> str:
        if row.body == b"error":
            raise ValueError("\ud800")
        return "\ud800" if row.body == b"result" else "fine"

    found = outcomes("message", handler, b"error", b"result", b"fine")
    assert [ok for ok, _, _ in found] == [False, False, True]
    assert found[0][2] == r"ValueError: \ud800"


@pytest.mark.parametrize("returned", [[], ["one"], ["one", "two", "three"]])
def test_results_that_are_too_few_or_too_many_fail_the_batch(returned: list[str]) -> None:
    said = f"ValueError: the handler returned {len(returned)} results for 2 messages"
    assert outcomes("batch", lambda rows: returned, b"a", b"b") == [(False, None, said)] * 2


def test_a_batch_succeeds_or_fails_as_one() -> None:
    assert outcomes("batch", lambda rows: [row.body.decode() for row in rows], b"a", b"b") == [
        (True, "a", None),
        (True, "b", None),
    ]
    assert outcomes("batch", lambda rows: None, b"a") == [(True, None, None)]
    assert outcomes("arrow", lambda rows: rows.column("nothing"), b"a", b"b")[0][0] is False
    assert outcomes("arrow", lambda rows: rows, b"a", b"b") == [(True, None, None)] * 2
