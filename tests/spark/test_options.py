# SPDX-License-Identifier: Apache-2.0
"""Wrong options fail before a query starts and name themselves."""

from __future__ import annotations

from pathlib import Path

import pytest

from aerobee.cli import profiles
from aerobee.clock import SystemClock
from aerobee.spark import options, schema
from aerobee.spark.options import OptionError
from aerobee.spark.writing.encode import check_columns

WIRE = {"namesrv": "127.0.0.1:9876", "subscribe": "orders"}


def test_defaults_are_kafka_like() -> None:
    batch, stream = options.for_batch(WIRE), options.for_stream(WIRE)
    assert (batch.start.word, batch.end.word, stream.start.word) == ("earliest", "latest", "latest")
    assert batch.fail_on_data_loss
    assert batch.columns == schema.DEFAULT


@pytest.mark.parametrize("name", sorted(options.OPTIONS))
def test_every_option_has_its_line_in_the_docs(name: str) -> None:
    page = Path(__file__).parents[2] / "docs" / "spark.md"
    table = page.read_text().partition("## Options")[2].partition("\n## ")[0]
    assert f"`{name}`" in table


def test_keys_are_case_insensitive() -> None:
    assert options.for_stream({**WIRE, "MAXOFFSETSPERTRIGGER": "7"}).max_offsets == 7
    asked = {"ACCESSKEY": "a", "secretkey": "s", "tls": "true", "group": "g", "subscribe": "t"}
    assert options.connection(asked) == {"ACCESSKEY": "a", "secretkey": "s", "tls": "true"}


@pytest.mark.parametrize(("raw", "meant"), [("on", True), ("true", True), ("Off", False), ("false", False)])
def test_tls_is_on_or_off_as_in_clients_or_true_or_false_as_in_spark(raw: str, meant: bool) -> None:
    assert options.for_batch({**WIRE, "tls": raw}).tls is meant


def test_files_of_tls_are_those_of_the_client(certificate: tuple[Path, Path]) -> None:
    cert, key = map(str, certificate)
    read = options.for_stream({**WIRE, "tls": "on", "tlsCa": cert, "tlsCert": cert, "tlsKey": key})
    assert (read.tls_ca, read.tls_cert, read.tls_key) == (cert, cert, key)


def test_what_clients_know_of_account_and_tls_are_options_here() -> None:
    account = {"access_key": "ann", "secret_key": "@home env:", "tls": "on", "tls_ca": "ca.pem"}
    told = options.of_client(account, {})
    assert set(told) == {"accessKey", "secretKey", "tls", "tlsCa"}
    written = options.for_write({"namesrv": "h:1", **{k: v for k, v in told.items() if k != "tlsCa"}})
    assert (written.access_key, written.secret_key, written.tls) == ("ann", "@home env:", True)


def test_an_option_goes_before_what_clients_know() -> None:
    account = {"access_key": "ann", "secret_key": "s", "tls": "on", "tls_ca": "ca.pem"}
    assert options.of_client(account, {"ACCESSKEY": "bob", "tls": "off"}) == {"secretKey": "text:s"}
    assert options.of_client({"tls_ca": "ca.pem"}, {"tls": "true"}) == {"tlsCa": "ca.pem"}
    assert options.of_client({"tls_ca": "ca.pem"}, {}) == {}, "a client without tls looks at none of them"


def test_every_setting_of_a_profile_has_its_option() -> None:
    every = dict.fromkeys(profiles.NAMES, "on")
    assert len(options.of_client(every, {})) == len(profiles.NAMES)


WRONG_READS: list[tuple[dict[str, str], str]] = [
    ({"subscribbe": "x"}, r"'subscribbe'; did you mean 'subscribe'"),
    ({"subscribePattern": "x"}, r"exactly one of .*'subscribe' and 'subscribePattern'"),
    ({"assign": "{}", "subscribe": "x"}, "'assign' is '{}': names no queue"),
    ({"assign": '{"orders": [0]}'}, "'assign' is .*: expected"),
    ({"topic": "other"}, "exactly one of .*'subscribe' and 'topic'"),
    ({"path": "other"}, "exactly one of .*'subscribe' and 'path'"),
    ({"subscribe": "bad topic!"}, "'subscribe' is 'bad topic!'"),
    ({"subscribe": ""}, "'subscribe' is '': names no topic"),
    ({"namesrv": "nowhere"}, "'namesrv' is 'nowhere'"),
    ({"namesrv": "127.0.0.1:99999"}, "'namesrv' is '127.0.0.1:99999'"),
    ({"storePath": "/x"}, "either 'namesrv'.* or 'storePath'"),
    ({"startingOffsets": "erliest"}, "'startingOffsets' is 'erliest'"),
    ({"startingOffsets": "{"}, "'startingOffsets' is '{': no JSON"),
    ({"startingOffsets": '{"orders": 3}'}, "'startingOffsets' is .*: expected"),
    ({"startingOffsets": '{"orders":{"b":{"x":3}}}'}, "'startingOffsets' is .*: queue 'x'"),
    ({"startingOffsets": '{"orders":{"b":{"0":-9}}}'}, "'startingOffsets' is .*: offset -9"),
    ({"startingOffsets": "group"}, "'startingOffsets' is 'group', which needs the option 'group'"),
    ({"startingTimestamp": "soon"}, "'startingTimestamp' is 'soon'"),
    (
        {"startingOffsets": "earliest", "startingTimestamp": "1"},
        "'startingOffsets' and 'startingTimestamp' excl",
    ),
    ({"startingOffsetsByTimestamp": "[]"}, "'startingOffsetsByTimestamp' is .*: expected"),
    (
        {"startingOffsetsByTimestamp": '{"orders": -3}'},
        "'startingOffsetsByTimestamp' is .*: time -3 of orders",
    ),
    ({"startingOffsetsByTimestampStrategy": "maybe"}, "'startingOffsetsByTimestampStrategy' is 'maybe'"),
    ({"minPartitions": "0"}, "'minPartitions' is '0'"),
    ({"maxPartitions": "x"}, "'maxPartitions' is 'x'"),
    ({"minPartitions": "9", "maxPartitions": "4"}, "'minPartitions' .9. is above 'maxPartitions' .4."),
    ({"maxRecordsPerPartition": "-1"}, "'maxRecordsPerPartition' is '-1'"),
    ({"failOnDataLoss": "yes"}, "'failOnDataLoss' is 'yes'"),
    ({"tags": "A", "sqlFilter": "a = 1"}, "'tags' and 'sqlFilter' exclude"),
    ({"sqlFilter": "a ="}, "'sqlFilter' is 'a ='"),
    ({"columns": "bodyy"}, "'columns' is 'bodyy'.*did you mean 'body'"),
    ({"columns": " , "}, "'columns' is .*: names no column"),
    (
        {"columns": "body", "includeProperties": "true"},
        "'columns' leaves out 'properties', which 'includeProp",
    ),
    ({"includeProperties": "1"}, "'includeProperties' is '1'"),
    ({"includeRetries": "true"}, "'includeRetries' needs the option 'group'"),
    ({"checkBodies": "sure"}, "'checkBodies' is 'sure'"),
    ({"orderedByQueue": "no"}, "'orderedByQueue' is 'no'"),
    ({"group": "no spaces"}, "'group' is 'no spaces'"),
    ({"batchRows": "0"}, "'batchRows' is '0'"),
    ({"batchBytes": "1023"}, "'batchBytes' is '1023': expected at least 1024"),
    ({"numRetries": "-1"}, "'numRetries' is '-1'"),
    ({"retryIntervalMs": "soon"}, "'retryIntervalMs' is 'soon'"),
    ({"requestTimeoutMs": "0"}, "'requestTimeoutMs' is '0'"),
    ({"accessKey": "me"}, "'accessKey' needs the option 'secretKey'"),
    ({"secretKey": "x"}, "'secretKey' needs the option 'accessKey'"),
    ({"securityToken": "x"}, "'securityToken' needs the option 'accessKey'"),
    ({"tls": "yes"}, "'tls' is 'yes': expected on or off"),
    ({"tlsCa": "ca.pem"}, "'tlsCa' needs the option 'tls', which is off"),
    ({"tlsCert": "c.pem", "tls": "off"}, "'tlsCert' needs the option 'tls', which is off"),
    ({"tlsKey": "c.key", "tls": "on"}, "'tlsKey' needs the option 'tlsCert'"),
    (
        {"tlsCa": "/nowhere/ca.pem", "tls": "on"},
        "'tlsCa': certificate file '/nowhere/ca.pem': .*No such file",
    ),
    ({"window": "3"}, "'window' is for writes, not for (batch reads|streams)"),
]
WRONG_BATCHES = [
    ({"startingOffsets": "latest"}, "'startingOffsets' is 'latest'"),
    ({"endingOffsets": "earliest"}, "'endingOffsets' is 'earliest'"),
    ({"endingOffsets": '{"orders":{"b":{"0":-2}}}'}, "'endingOffsets': offset -2"),
    (
        {"startingOffsets": '{"orders":{"b":{"0":7}}}', "endingOffsets": '{"orders":{"b":{"0":5}}}'},
        "'startingOffsets' .orders/b/0: 7. is after 'endingOffsets' .5.",
    ),
    ({"endingTimestamp": "-1"}, "'endingTimestamp' is '-1'"),
    (
        {"startingTimestamp": "2000", "endingTimestamp": "1000"},
        "'startingTimestamp' .2000. is after 'endingTimestamp' .1000.",
    ),
    ({"endingOffsetsByTimestamp": "3"}, "'endingOffsetsByTimestamp' is '3'"),
    (
        {"startingOffsetsByTimestamp": '{"orders": 20}', "endingOffsetsByTimestamp": '{"orders": 10}'},
        "'startingOffsetsByTimestamp' .orders: 20. is after 'endingOffsetsByTimestamp' .10.",
    ),
    ({"maxOffsetsPerTrigger": "5"}, "'maxOffsetsPerTrigger' is for streams, not for batch reads"),
    ({"discoveryIntervalMs": "5"}, "'discoveryIntervalMs' is for streams, not for batch reads"),
    ({"pushFilters": "all"}, "'pushFilters' is 'all'"),
]
WRONG_STREAMS = [
    ({"endingOffsets": "latest"}, "'endingOffsets' is for batch reads, not for streams; a stream has no end"),
    ({"maxTriggerDelay": "long"}, "'maxTriggerDelay' is 'long'"),
    ({"maxOffsetsPerTrigger": "0"}, "'maxOffsetsPerTrigger' is '0'"),
    ({"minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "5"}, "'minOffsetsPerTrigger' .9. is above"),
    ({"maxBytesPerTrigger": "0"}, "'maxBytesPerTrigger' is '0'"),
    ({"discoveryIntervalMs": "-1"}, "'discoveryIntervalMs' is '-1'"),
]
WRONG_WRITES = [
    ({"subscribe": "x"}, "'subscribe' is for batch reads and streams, not for writes"),
    ({"topic": "bad topic"}, "'topic' is 'bad topic'"),
    ({"topic": "a,b"}, "'topic' is 'a,b': a row goes to one topic"),
    ({"path": "bad topic"}, "'path' is 'bad topic'"),
    ({"window": "0"}, "'window' is '0'"),
    ({"maxBatchBytes": "1"}, "'maxBatchBytes' is '1'"),
    ({"accessKey": "me"}, "'accessKey' needs the option 'secretKey'"),
]


@pytest.mark.parametrize(("extra", "said"), WRONG_READS + WRONG_BATCHES)
def test_a_wrong_batch_option_is_named(extra: dict[str, str], said: str) -> None:
    with pytest.raises(OptionError, match=said):
        options.for_batch({**WIRE, **extra})


@pytest.mark.parametrize(("extra", "said"), WRONG_READS + WRONG_STREAMS)
def test_a_wrong_stream_option_is_named(extra: dict[str, str], said: str) -> None:
    with pytest.raises(OptionError, match=said):
        options.for_stream({**WIRE, **extra})


@pytest.mark.parametrize(("extra", "said"), WRONG_WRITES)
def test_a_wrong_write_option_is_named(extra: dict[str, str], said: str) -> None:
    with pytest.raises(OptionError, match=said):
        options.for_write({"namesrv": "127.0.0.1:9876", **extra})


def test_a_write_needs_a_name_server() -> None:
    with pytest.raises(OptionError, match="'namesrv' is missing"):
        options.for_write({})


@pytest.mark.parametrize("name", sorted(options.OPTIONS))
def test_every_option_can_be_wrong(name: str) -> None:
    """The tables above leave none out."""
    tables = WRONG_READS + WRONG_BATCHES + WRONG_STREAMS + WRONG_WRITES
    assert any(name in extra and f"'{name}'" in said for extra, said in tables)


@pytest.mark.parametrize("name", [name for name, option in options.OPTIONS.items() if option.asks_brokers])
def test_what_needs_a_broker_has_no_meaning_with_files(name: str) -> None:
    given = {
        "storePath": "/x",
        "subscribe": "orders",
        name: "true" if name in ("includeRetries", "tls") else "1",
    }
    for read in (options.for_batch, options.for_stream):
        with pytest.raises(OptionError, match=f"'{name}' needs a broker"):
            read(given)


@pytest.mark.parametrize(
    ("types", "said"),
    [
        ({"tags": "string"}, "no column 'body'"),
        ({"body": "int"}, "'body' is int"),
        ({"body": "string", "colour": "string"}, "'colour' has no meaning"),
        ({"body": "string", "brokerName": "string"}, "'brokerName' .* give 'queueId' too"),
        ({"body": "string", "queueId": "string"}, "'queueId' is string, expected int or bigint"),
    ],
)
def test_rows_that_are_no_messages_are_refused(types: dict[str, str], said: str) -> None:
    with pytest.raises(OptionError, match=said):
        check_columns(types, options.for_write({"namesrv": "127.0.0.1:1", "topic": "t"}))


def test_a_sink_without_any_topic_is_refused() -> None:
    with pytest.raises(OptionError, match="no topic"):
        check_columns({"body": "string"}, options.for_write({"namesrv": "127.0.0.1:1"}))


@pytest.mark.parametrize(
    "name", ["checkpointLocation", "queryName", "outputMode", "asyncProgressTrackingEnabled"]
)
def test_what_spark_itself_adds_is_no_mistake(name: str) -> None:
    assert options.for_write({"namesrv": "h:1", "topic": "t", name.lower(): "x"}).topic == "t"
    assert options.for_stream({"namesrv": "h:1", "subscribe": "t", name: "x"}).topics == ("t",)


def test_a_secret_comes_from_a_file_or_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "key").write_text("hidden\n")
    monkeypatch.setenv("MY_SECRET", "hidden too")
    known = {"namesrv": "h:1", "topic": "t", "accessKey": "me"}
    assert options.for_write({**known, "secretKey": f"@{tmp_path / 'key'}"}).secret_key == "hidden"
    assert options.for_write({**known, "secretKey": "env:MY_SECRET"}).secret_key == "hidden too"
    assert options.for_write({**known, "secretKey": "plain"}).secret_key == "plain"
    with pytest.raises(
        options.OptionError, match="option 'secretKey': the environment has no variable 'NONE'"
    ):
        options.for_write({**known, "secretKey": "env:NONE"})
    with pytest.raises(options.OptionError, match="option 'secretKey': the file '/nowhere' cannot be read"):
        options.for_write({**known, "secretKey": "@/nowhere"})


@pytest.mark.parametrize(("text", "back_ms"), [("-1h", 3_600_000), ("-30m", 1_800_000), ("-2d", 172_800_000)])
def test_a_time_may_be_so_long_ago(text: str, back_ms: int) -> None:
    read = options.for_batch(
        {"namesrv": "a:1", "subscribe": "t", "startingTimestamp": text, "endingTimestamp": "now"}
    )
    assert read.end.timestamp and read.start.timestamp
    assert read.end.timestamp - read.start.timestamp == pytest.approx(back_ms, abs=1_000)
    assert read.end.timestamp == pytest.approx(SystemClock().wall(), abs=5_000)


def test_a_time_that_is_none_is_told_how_to_write_it() -> None:
    with pytest.raises(options.OptionError, match=r"epoch milliseconds, a time such as .* or one before now"):
        options.for_batch({"namesrv": "a:1", "subscribe": "t", "startingTimestamp": "-1 hour"})
