# SPDX-License-Identifier: Apache-2.0
"""The data source's options: read once, checked before anything runs, wrong ones named with the nearest known.

Names follow Spark's Kafka source, so habits carry over. Spark hands options over as text with case-insensitive keys.
"""

from __future__ import annotations

import difflib
import json
import re
from typing import TYPE_CHECKING, Any

import msgspec

from aerobee.protocol.filters import compile_filter
from aerobee.protocol.names import check_group, check_topic
from aerobee.spark import schema

if TYPE_CHECKING:
    from collections.abc import Mapping

DEFAULT_GROUP = "CID_RMQ_SYS_SPARK"  # this prefix is creatable on every broker, Apache's too

READ_ONLY = frozenset(
    [
        "subscribe",
        "subscribePattern",
        "assign",
        "startingOffsets",
        "endingOffsets",
        "startingTimestamp",
        "endingTimestamp",
        "startingOffsetsByTimestamp",
        "endingOffsetsByTimestamp",
        "startingOffsetsByTimestampStrategy",
        "maxOffsetsPerTrigger",
        "minOffsetsPerTrigger",
        "maxTriggerDelay",
        "maxBytesPerTrigger",
        "minPartitions",
        "maxPartitions",
        "maxRecordsPerPartition",
        "failOnDataLoss",
        "tags",
        "sqlFilter",
        "columns",
        "includeProperties",
        "includeRetries",
        "checkBodies",
        "storePath",
        "batchRows",
        "batchBytes",
        "discoveryIntervalMs",
        "orderedByQueue",
    ]
)
WRITE_ONLY = frozenset(["window", "maxBatchBytes"])
BOTH = frozenset(
    [
        "namesrv",
        "topic",
        "group",
        "numRetries",
        "retryIntervalMs",
        "requestTimeoutMs",
        "accessKey",
        "secretKey",
        "tls",
        "path",
    ]
)
KNOWN = READ_ONLY | WRITE_ONLY | BOTH

Offsets = dict[str, dict[str, dict[str, int]]]  # topic -> broker -> queue -> offset
EARLIEST, LATEST = -2, -1


class OptionError(ValueError):
    """An option is unknown, wrong or contradicts another; the text names it."""


class Position(msgspec.Struct, frozen=True):
    """Where reading starts or ends: a word, offsets per queue, a time for all, or times per topic."""

    word: str = ""
    offsets: Offsets | None = None
    timestamp: int | None = None
    timestamps: dict[str, int] | None = None


class Read(msgspec.Struct, frozen=True, kw_only=True):
    namesrv: str = ""
    store_path: str = ""
    topics: tuple[str, ...] = ()
    pattern: str = ""
    assign: dict[str, dict[str, list[int]]] | None = None
    group: str = ""
    start: Position
    end: Position
    missing_time: str = "error"
    max_offsets: int = 0
    min_offsets: int = 0
    max_delay_ms: int = 900_000
    max_bytes: int = 0
    min_partitions: int = 0
    max_partitions: int = 0
    max_records: int = 0
    fail_on_data_loss: bool = True
    tags: str = "*"
    sql: str = ""
    columns: tuple[str, ...] = schema.DEFAULT
    include_retries: bool = False
    check_bodies: bool = False
    batch_rows: int = 32_000
    batch_bytes: int = 16 << 20
    retries: int = 3
    retry_ms: int = 200
    timeout_ms: int = 10_000
    discovery_ms: int = 5_000
    access_key: str = ""
    secret_key: str = ""
    tls: bool = False
    ordered: bool = False


class Write(msgspec.Struct, frozen=True, kw_only=True):
    namesrv: str
    topic: str = ""
    group: str = "spark-sink"
    retries: int = 3
    retry_ms: int = 200
    timeout_ms: int = 10_000
    window: int = 8
    max_batch_bytes: int = 1 << 20
    access_key: str = ""
    secret_key: str = ""
    tls: bool = False


class _Given:
    """The options as given, read by their proper names."""

    def __init__(self, options: Mapping[str, str], allowed: frozenset[str], use: str) -> None:
        by_lower = {name.lower(): name for name in KNOWN}
        self._values: dict[str, str] = {}
        for key, value in options.items():
            name = by_lower.get(key.lower())
            if name is None:
                near = difflib.get_close_matches(key.lower(), by_lower, n=1, cutoff=0.5)
                hint = f"; did you mean {by_lower[near[0]]!r}?" if near else ""
                raise OptionError(f"unknown option {key!r}{hint}")
            if name not in allowed:
                raise OptionError(f"option {name!r} has no meaning for {use}")
            self._values[name] = str(value)

    def __contains__(self, name: str) -> bool:
        return name in self._values

    def text(self, name: str, default: str = "") -> str:
        return self._values.get(name, default).strip()

    def number(self, name: str, default: int, low: int = 0) -> int:
        raw = self._values.get(name)
        if raw is None:
            return default
        try:
            value = int(raw)
        except ValueError:
            raise OptionError(f"option {name!r} is {raw!r}, expected a whole number") from None
        if value < low:
            raise OptionError(f"option {name!r} is {value}, expected at least {low}")
        return value

    def flag(self, name: str, default: bool) -> bool:  # noqa: FBT001 - the option's default, not a mode
        raw = self._values.get(name)
        if raw is None:
            return default
        if raw.lower() not in ("true", "false"):
            raise OptionError(f"option {name!r} is {raw!r}, expected true or false")
        return raw.lower() == "true"

    def json(self, name: str) -> Any:
        try:
            return json.loads(self._values[name])
        except ValueError as error:
            raise OptionError(f"option {name!r} is no JSON: {error}") from None

    def duration_ms(self, name: str, default: int) -> int:
        raw = self._values.get(name)
        if raw is None:
            return default
        match = re.fullmatch(r"(\d+)\s*(ms|s|m|h|d)?", raw.strip())
        if not match:
            raise OptionError(f"option {name!r} is {raw!r}, expected a duration such as 15m or 500ms")
        return (
            int(match[1])
            * {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}[match[2] or "ms"]
        )


def for_batch(options: Mapping[str, str], user_columns: tuple[str, ...] | None = None) -> Read:
    given = _Given(options, READ_ONLY | BOTH, "a batch read")
    for name in ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxBytesPerTrigger", "maxTriggerDelay"):
        if name in given:
            raise OptionError(f"option {name!r} is for streams; a batch reads from start to end at once")
    start = _position(given, "starting", "earliest", ("earliest", "group"))
    end = _position(given, "ending", "latest", ("latest",))
    return _read(given, start, end, user_columns)


def for_stream(options: Mapping[str, str], user_columns: tuple[str, ...] | None = None) -> Read:
    given = _Given(options, READ_ONLY | BOTH, "a stream")
    for name in ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"):
        if name in given:
            raise OptionError(
                f"option {name!r} is for batch reads; a stream has no end (use trigger(availableNow=True))"
            )
    start = _position(given, "starting", "latest", ("earliest", "latest", "group"))
    read = _read(given, start, Position(word="latest"), user_columns)
    if read.min_offsets and read.max_offsets and read.min_offsets > read.max_offsets:
        raise OptionError(
            f"option 'minOffsetsPerTrigger' ({read.min_offsets}) is above 'maxOffsetsPerTrigger' ({read.max_offsets})"
        )
    return read


def for_write(options: Mapping[str, str]) -> Write:
    given = _Given(options, WRITE_ONLY | BOTH, "a write")
    if "namesrv" not in given:
        raise OptionError("option 'namesrv' is missing: host:port of the name server to write to")
    topic = given.text("topic") or given.text("path")
    if topic:
        _checked("topic", topic)
    return Write(
        namesrv=_namesrv(given),
        topic=topic,
        group=_group(given, "spark-sink"),
        retries=given.number("numRetries", 3),
        retry_ms=given.number("retryIntervalMs", 200),
        timeout_ms=given.number("requestTimeoutMs", 10_000, 1),
        window=given.number("window", 8, 1),
        max_batch_bytes=given.number("maxBatchBytes", 1 << 20, 1024),
        access_key=given.text("accessKey"),
        secret_key=given.text("secretKey"),
        tls=given.flag("tls", False),
    )


def _read(given: _Given, start: Position, end: Position, user_columns: tuple[str, ...] | None) -> Read:
    topics, pattern, assign = _selection(given)
    if ("namesrv" in given) == ("storePath" in given):
        raise OptionError(
            "give either 'namesrv' (read from brokers) or 'storePath' (read store files), not both or neither"
        )
    if "storePath" in given:
        for name in ("group", "includeRetries", "sqlFilter"):
            if name in given and name != "sqlFilter":
                raise OptionError(f"option {name!r} needs a broker; with 'storePath' there is none")
    if "group" in (start.word,) and "group" not in given:
        raise OptionError("option 'startingOffsets' is 'group', which needs the option 'group'")
    if given.flag("includeRetries", False) and "group" not in given:
        raise OptionError("option 'includeRetries' needs the option 'group': whose retries?")
    _checked_filters(given)
    strategy = given.text("startingOffsetsByTimestampStrategy", "error").lower()
    if strategy not in ("error", "latest"):
        raise OptionError(
            f"option 'startingOffsetsByTimestampStrategy' is {strategy!r}, expected error or latest"
        )
    return Read(
        namesrv=_namesrv(given) if "namesrv" in given else "",
        store_path=given.text("storePath"),
        topics=topics,
        pattern=pattern,
        assign=assign,
        group=_group(given, "") if "group" in given else "",
        start=start,
        end=end,
        missing_time=strategy,
        max_offsets=given.number("maxOffsetsPerTrigger", 0, 1),
        min_offsets=given.number("minOffsetsPerTrigger", 0, 1),
        max_delay_ms=given.duration_ms("maxTriggerDelay", 900_000),
        max_bytes=given.number("maxBytesPerTrigger", 0, 1),
        min_partitions=given.number("minPartitions", 0, 1),
        max_partitions=given.number("maxPartitions", 0, 1),
        max_records=given.number("maxRecordsPerPartition", 0, 1),
        fail_on_data_loss=given.flag("failOnDataLoss", True),
        tags=given.text("tags", "*") or "*",
        sql=given.text("sqlFilter"),
        columns=_columns(given, user_columns),
        include_retries=given.flag("includeRetries", False),
        check_bodies=given.flag("checkBodies", False),
        batch_rows=given.number("batchRows", 32_000, 1),
        batch_bytes=given.number("batchBytes", 16 << 20, 1024),
        retries=given.number("numRetries", 3),
        retry_ms=given.number("retryIntervalMs", 200),
        timeout_ms=given.number("requestTimeoutMs", 10_000, 1),
        discovery_ms=given.number("discoveryIntervalMs", 5_000, 0),
        access_key=given.text("accessKey"),
        secret_key=given.text("secretKey"),
        tls=given.flag("tls", False),
        ordered=given.flag("orderedByQueue", False),
    )


def _checked_filters(given: _Given) -> None:
    if "tags" in given and "sqlFilter" in given:
        raise OptionError("options 'tags' and 'sqlFilter' exclude each other")
    if "sqlFilter" in given:
        try:
            compile_filter("SQL92", given.text("sqlFilter"))
        except Exception as error:
            raise OptionError(f"option 'sqlFilter': {error}") from None


def _selection(given: _Given) -> tuple[tuple[str, ...], str, dict[str, dict[str, list[int]]] | None]:
    chosen = [name for name in ("subscribe", "subscribePattern", "assign", "topic", "path") if name in given]
    if len(chosen) != 1:
        said = " and ".join(repr(name) for name in chosen) or "none of them"
        raise OptionError(f"give exactly one of 'subscribe', 'subscribePattern', 'assign'; given: {said}")
    if chosen[0] == "subscribePattern":
        pattern = given.text("subscribePattern")
        try:
            re.compile(pattern)
        except re.error as error:
            raise OptionError(f"option 'subscribePattern' is {pattern!r}: {error}") from None
        return (), pattern, None
    if chosen[0] == "assign":
        return (), "", _assignment(given.json("assign"))
    topics = tuple(name.strip() for name in given.text(chosen[0]).split(",") if name.strip())
    if not topics:
        raise OptionError(f"option {chosen[0]!r} names no topic")
    for name in topics:
        _checked(chosen[0], name)
    return topics, "", None


def _assignment(value: Any) -> dict[str, dict[str, list[int]]]:
    try:
        return msgspec.convert(value, dict[str, dict[str, list[int]]])
    except msgspec.ValidationError:
        raise OptionError('option \'assign\' is wrong, expected {"topic": {"broker-a": [0, 1]}}') from None


def _checked(option: str, topic: str) -> None:
    try:
        check_topic(topic)
    except ValueError as error:
        raise OptionError(f"option {option!r}: {error}") from None


def _group(given: _Given, default: str) -> str:
    group = given.text("group", default)
    try:
        check_group(group)
    except ValueError as error:
        raise OptionError(f"option 'group': {error}") from None
    return group


def _namesrv(given: _Given) -> str:
    text = given.text("namesrv")
    for address in text.split(";"):
        if not re.fullmatch(r"(\[[0-9a-fA-F:]+\]|[^:\s]+):\d{1,5}", address.strip()):
            raise OptionError(f"option 'namesrv' is {text!r}, expected host:port;host:port")
    return text


def _columns(given: _Given, user_columns: tuple[str, ...] | None) -> tuple[str, ...]:
    if user_columns is not None:
        return schema.check(user_columns)
    if "columns" in given:
        try:
            names = schema.check(
                tuple(name.strip() for name in given.text("columns").split(",") if name.strip())
            )
        except ValueError as error:
            raise OptionError(f"option 'columns': {error}") from None
        if not names:
            raise OptionError("option 'columns' names no column")
        return names
    if given.flag("includeProperties", False):
        return (*schema.DEFAULT, "properties")
    return schema.DEFAULT


def _position(given: _Given, side: str, default: str, words: tuple[str, ...]) -> Position:
    names = [f"{side}Offsets", f"{side}Timestamp", f"{side}OffsetsByTimestamp"]
    chosen = [name for name in names if name in given]
    if len(chosen) > 1:
        raise OptionError(f"options {' and '.join(map(repr, chosen))} exclude each other")
    if not chosen:
        return Position(word=default)
    name = chosen[0]
    if name.endswith("Timestamp") and name != f"{side}OffsetsByTimestamp":
        return Position(timestamp=given.number(name, 0))
    if name == f"{side}OffsetsByTimestamp":
        return Position(timestamps=_times(name, given.json(name)))
    text = given.text(name)
    if text.lower() in words:
        return Position(word=text.lower())
    if not text.startswith("{"):
        raise OptionError(f"option {name!r} is {text!r}, expected {', '.join(words)} or JSON offsets")
    try:
        offsets = msgspec.convert(given.json(name), Offsets)
    except msgspec.ValidationError:
        raise OptionError(
            f'option {name!r} is wrong, expected {{"topic": {{"broker-a": {{"0": 123}}}}}}'
        ) from None
    _check_special(name, side, offsets)
    return Position(offsets=offsets)


def _check_special(name: str, side: str, offsets: Offsets) -> None:
    wrong = LATEST if side == "starting" else EARLIEST
    for topic, brokers in offsets.items():
        for broker, queues in brokers.items():
            for queue, offset in queues.items():
                if not queue.isdigit():
                    raise OptionError(f"option {name!r}: queue {queue!r} of {topic}/{broker} is no number")
                if offset < EARLIEST or (side == "ending" and offset == wrong):
                    raise OptionError(
                        f"option {name!r}: offset {offset} of {topic}/{broker}/{queue} is not possible"
                    )


def _times(name: str, value: Any) -> dict[str, int]:
    try:
        return msgspec.convert(value, dict[str, int])
    except msgspec.ValidationError:
        raise OptionError(f'option {name!r} is wrong, expected {{"topic": 1700000000000}}') from None


def columns_of(options: Mapping[str, str]) -> tuple[str, ...]:
    """The columns a read of these options has, before Spark tells whether it is a batch or a stream."""
    return _columns(_Given(options, KNOWN, "a read"), None)
