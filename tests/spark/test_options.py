# SPDX-License-Identifier: Apache-2.0
"""Wrong options fail before a query starts and name themselves."""

from __future__ import annotations

from pathlib import Path

import pytest

from aerobee.spark import options, schema
from aerobee.spark.encode import check_columns
from aerobee.spark.options import OptionError

WIRE = {"namesrv": "127.0.0.1:9876", "subscribe": "orders"}


def test_defaults_are_kafka_like() -> None:
    batch, stream = options.for_batch(WIRE), options.for_stream(WIRE)
    assert (batch.start.word, batch.end.word, stream.start.word) == ("earliest", "latest", "latest")
    assert batch.fail_on_data_loss
    assert batch.columns == schema.DEFAULT


@pytest.mark.parametrize("name", sorted(options.KNOWN))
def test_every_option_has_its_line_in_the_docs(name: str) -> None:
    page = Path(__file__).parents[2] / "docs" / "spark.md"
    table = page.read_text().partition("## Options")[2].partition("\n## ")[0]
    assert f"`{name}`" in table


def test_keys_are_case_insensitive() -> None:
    assert options.for_stream({**WIRE, "MAXOFFSETSPERTRIGGER": "7"}).max_offsets == 7


@pytest.mark.parametrize(
    ("extra", "said"),
    [
        ({"subscribbe": "x"}, r"'subscribbe'; did you mean 'subscribe'"),
        ({"subscribePattern": "x"}, r"exactly one of .*'subscribe' and 'subscribePattern'"),
        ({"subscribe": "bad topic!"}, "'subscribe'"),
        ({"subscribe": ""}, "names no topic"),
        ({"namesrv": "nowhere"}, "'namesrv' is 'nowhere'"),
        ({"storePath": "/x"}, "either 'namesrv'"),
        ({"startingOffsets": "erliest"}, "'startingOffsets' is 'erliest'"),
        ({"startingOffsets": "latest"}, "'startingOffsets' is 'latest'"),
        ({"startingOffsets": "{"}, "'startingOffsets' is no JSON"),
        ({"startingOffsets": '{"orders": 3}'}, "'startingOffsets' is wrong"),
        ({"startingOffsets": '{"orders":{"b":{"x":3}}}'}, "queue 'x'"),
        ({"startingOffsets": '{"orders":{"b":{"0":-9}}}'}, "offset -9"),
        ({"startingOffsets": "group"}, "needs the option 'group'"),
        ({"endingOffsets": '{"orders":{"b":{"0":-2}}}'}, "offset -2"),
        ({"startingTimestamp": "soon"}, "'startingTimestamp' is 'soon'"),
        ({"startingOffsets": "earliest", "startingTimestamp": "1"}, "exclude each other"),
        ({"startingOffsetsByTimestamp": "[]"}, "'startingOffsetsByTimestamp' is wrong"),
        ({"startingOffsetsByTimestampStrategy": "maybe"}, "'startingOffsetsByTimestampStrategy' is 'maybe'"),
        ({"maxOffsetsPerTrigger": "5"}, "'maxOffsetsPerTrigger' is for streams"),
        ({"minPartitions": "0"}, "'minPartitions' is 0"),
        ({"maxPartitions": "x"}, "'maxPartitions' is 'x'"),
        ({"maxRecordsPerPartition": "-1"}, "'maxRecordsPerPartition' is -1"),
        ({"failOnDataLoss": "yes"}, "'failOnDataLoss' is 'yes'"),
        ({"tags": "A", "sqlFilter": "a = 1"}, "'tags' and 'sqlFilter' exclude"),
        ({"sqlFilter": "a ="}, "'sqlFilter'"),
        ({"columns": "bodyy"}, "'columns'.*did you mean 'body'"),
        ({"columns": " , "}, "names no column"),
        ({"includeRetries": "true"}, "needs the option 'group'"),
        ({"checkBodies": "sure"}, "'checkBodies' is 'sure'"),
        ({"group": "no spaces"}, "'group'"),
        ({"batchRows": "0"}, "'batchRows' is 0"),
        ({"requestTimeoutMs": "0"}, "'requestTimeoutMs' is 0"),
        ({"window": "3"}, "'window' has no meaning for a batch read"),
    ],
)
def test_a_wrong_batch_option_is_named(extra: dict[str, str], said: str) -> None:
    with pytest.raises(OptionError, match=said):
        options.for_batch({**WIRE, **extra})


@pytest.mark.parametrize(
    ("extra", "said"),
    [
        ({"endingOffsets": "latest"}, "'endingOffsets' is for batch reads"),
        ({"maxTriggerDelay": "long"}, "'maxTriggerDelay' is 'long'"),
        ({"minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "5"}, "'minOffsetsPerTrigger' .9. is above"),
        ({"maxBytesPerTrigger": "0"}, "'maxBytesPerTrigger' is 0"),
        ({"discoveryIntervalMs": "-1"}, "'discoveryIntervalMs' is -1"),
    ],
)
def test_a_wrong_stream_option_is_named(extra: dict[str, str], said: str) -> None:
    with pytest.raises(OptionError, match=said):
        options.for_stream({**WIRE, **extra})


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "'namesrv' is missing"),
        ({"namesrv": "127.0.0.1:1", "subscribe": "x"}, "'subscribe' has no meaning for a write"),
        ({"namesrv": "127.0.0.1:1", "topic": "bad topic"}, "'topic'"),
        ({"namesrv": "127.0.0.1:1", "window": "0"}, "'window' is 0"),
        ({"namesrv": "127.0.0.1:1", "maxBatchBytes": "1"}, "'maxBatchBytes' is 1"),
    ],
)
def test_a_wrong_write_option_is_named(given: dict[str, str], said: str) -> None:
    with pytest.raises(OptionError, match=said):
        options.for_write(given)


@pytest.mark.parametrize(
    ("types", "said"),
    [
        ({"tags": "string"}, "no column 'body'"),
        ({"body": "int"}, "'body' is int"),
        ({"body": "string", "colour": "string"}, "'colour' has no meaning"),
    ],
)
def test_rows_that_are_no_messages_are_refused(types: dict[str, str], said: str) -> None:
    with pytest.raises(OptionError, match=said):
        check_columns(types, options.for_write({"namesrv": "127.0.0.1:1", "topic": "t"}))


def test_a_sink_without_any_topic_is_refused() -> None:
    with pytest.raises(OptionError, match="no topic"):
        check_columns({"body": "string"}, options.for_write({"namesrv": "127.0.0.1:1"}))
