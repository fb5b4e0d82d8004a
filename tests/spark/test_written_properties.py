# SPDX-License-Identifier: Apache-2.0
"""Rows that were read with their properties may be written with them: no name twice, columns before properties."""

from __future__ import annotations

import pyarrow as pa

from aerobee.protocol import properties as props
from aerobee.spark.writing.encode import properties_text

READ = [("UNIQ_KEY", "OLD"), ("WAIT", "true"), ("TAGS", "old"), ("KEYS", "o-1"), ("region", "eu")]


def texts(**columns: list[str]) -> list[str]:
    maps = pa.array([READ, None], pa.map_(pa.string(), pa.string()))
    batch = pa.RecordBatch.from_pydict({"body": [b"a", b"b"], **columns, "properties": maps})
    return [str(text) for text in properties_text(batch, ["NEW-1", "NEW-2"]).to_pylist()]


def test_a_column_counts_and_no_name_stands_there_twice() -> None:
    first, second = texts(tags=["big", "big"], keys=["k", "k"])
    assert first == "UNIQ_KEY\x01NEW-1\x02WAIT\x01true\x02TAGS\x01big\x02KEYS\x01k\x02region\x01eu\x02"
    assert props.parse(second) == {"UNIQ_KEY": "NEW-2", "WAIT": "true", "TAGS": "big", "KEYS": "k"}


def test_without_a_column_the_property_counts() -> None:
    first, _ = texts()
    assert first == "UNIQ_KEY\x01NEW-1\x02WAIT\x01true\x02TAGS\x01old\x02KEYS\x01o-1\x02region\x01eu\x02"
