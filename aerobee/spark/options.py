# SPDX-License-Identifier: Apache-2.0
"""The data source's options: read once, checked before anything runs, wrong ones named with the nearest known.

Names follow Spark's Kafka source, so habits carry over. Spark hands options over as text with case-insensitive keys.
"""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from aerobee.net.tls import client_tls
from aerobee.spark import option_values as values
from aerobee.spark import schema
from aerobee.spark.option_values import EARLIEST, Assignment, Position
from aerobee.spark.reading import plan

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

DEFAULT_GROUP = "CID_RMQ_SYS_SPARK"  # this prefix is creatable on every broker, Apache's too
BATCH, STREAM, WRITE = "batch reads", "streams", "writes"


class OptionError(ValueError):
    """An option is unknown, wrong or contradicts another; the text names it."""


class Read(msgspec.Struct, frozen=True, kw_only=True):
    namesrv: str = ""
    store_path: str = ""
    topics: tuple[str, ...] = ()
    pattern: str = ""
    assign: Assignment | None = None
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
    security_token: str = ""
    tls: bool = False
    tls_ca: str = ""
    tls_cert: str = ""
    tls_key: str = ""
    ordered: bool = False
    push_filters: bool = False


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
    security_token: str = ""
    tls: bool = False
    tls_ca: str = ""
    tls_cert: str = ""
    tls_key: str = ""


class Option(NamedTuple):
    field: str  # of Read and Write; empty where it takes more than this option to fill one
    read: Callable[[str], Any]
    of: tuple[str, ...] = (BATCH, STREAM)
    asks_brokers: bool = False  # has no meaning with store files


_ALL = (BATCH, STREAM, WRITE)
OPTIONS = {
    "namesrv": Option("namesrv", values.addresses, _ALL),
    "storePath": Option("store_path", values.text),
    # which messages
    "subscribe": Option("", values.topics),
    "subscribePattern": Option("pattern", values.pattern),
    "assign": Option("assign", values.assignment),
    "topic": Option("", values.topics, _ALL),
    "path": Option("", values.topics, _ALL),  # of load("orders") and save("orders")
    "startingOffsets": Option("", values.place),
    "startingTimestamp": Option("", values.time),
    "startingOffsetsByTimestamp": Option("", values.times),
    "startingOffsetsByTimestampStrategy": Option("missing_time", values.word_of("error", "latest")),
    "endingOffsets": Option("", values.place, (BATCH,)),
    "endingTimestamp": Option("", values.time, (BATCH,)),
    "endingOffsetsByTimestamp": Option("", values.times, (BATCH,)),
    "failOnDataLoss": Option("fail_on_data_loss", values.flag),
    "tags": Option("tags", values.tags),
    "sqlFilter": Option("sql", values.sql),
    "checkBodies": Option("check_bodies", values.flag),
    "group": Option("group", values.group, _ALL, asks_brokers=True),
    "includeRetries": Option("include_retries", values.flag, asks_brokers=True),
    # which columns
    "columns": Option("", values.columns),
    "includeProperties": Option("", values.flag),
    # how much at once
    "maxOffsetsPerTrigger": Option("max_offsets", values.whole(1), (STREAM,)),
    "minOffsetsPerTrigger": Option("min_offsets", values.whole(1), (STREAM,)),
    "maxTriggerDelay": Option("max_delay_ms", values.duration_ms, (STREAM,)),
    "maxBytesPerTrigger": Option("max_bytes", values.whole(1), (STREAM,)),
    "discoveryIntervalMs": Option("discovery_ms", values.whole(0), (STREAM,)),
    "minPartitions": Option("min_partitions", values.whole(1)),
    "maxPartitions": Option("max_partitions", values.whole(1)),
    "maxRecordsPerPartition": Option("max_records", values.whole(1)),
    "orderedByQueue": Option("ordered", values.flag),
    "pushFilters": Option("push_filters", values.flag, (BATCH,)),
    "batchRows": Option("batch_rows", values.whole(1)),
    "batchBytes": Option("batch_bytes", values.whole(1024)),
    "window": Option("window", values.whole(1), (WRITE,)),
    "maxBatchBytes": Option("max_batch_bytes", values.whole(1024), (WRITE,)),
    # how brokers are asked
    "numRetries": Option("retries", values.whole(0), _ALL, asks_brokers=True),
    "retryIntervalMs": Option("retry_ms", values.whole(0), _ALL, asks_brokers=True),
    "requestTimeoutMs": Option("timeout_ms", values.whole(1), _ALL, asks_brokers=True),
    "accessKey": Option("access_key", values.text, _ALL, asks_brokers=True),
    "secretKey": Option("secret_key", values.secret, _ALL, asks_brokers=True),
    "securityToken": Option("security_token", values.secret, _ALL, asks_brokers=True),
    "tls": Option("tls", values.is_on, _ALL, asks_brokers=True),
    "tlsCa": Option("tls_ca", values.file, _ALL, asks_brokers=True),
    "tlsCert": Option("tls_cert", values.file, _ALL, asks_brokers=True),
    "tlsKey": Option("tls_key", values.file, _ALL, asks_brokers=True),
}
_BY_LOWER = {name.lower(): name for name in OPTIONS}
# What Spark 4.3 hands to a source or sink besides the user's options: settings of the query, and marks of its own.
_SPARKS_OWN = frozenset(
    name.lower()
    for name in (
        "checkpointLocation", "queryName", "outputMode", "asyncProgressTrackingEnabled",
        "asyncProgressTrackingCheckpointIntervalMs", "_asyncProgressTrackingOverrideSinkSupportCheck",
        "__partition_columns", "__clustering_columns", "__v1_save_as_table_overwrite",
        # of a table made with USING rocketmq
        "provider", "owner", "location", "is_managed_location", "external", "comment", "collation",
    )
)  # fmt: skip
_OF_A_TABLE = "option."  # comes before the names of its options
# What users of Spark's Kafka source reach for, by our names.
_OF_KAFKA = {
    "kafka.bootstrap.servers": "'namesrv', host:port of the name servers with ';' between them",
    "kafka.group.id": "'group'",
    "groupidprefix": "'group'",
    "includeheaders": "'includeProperties', a column 'properties'",
    "fetchoffset.numretries": "'numRetries'",
    "fetchoffset.retryintervalms": "'retryIntervalMs'",
    "kafkaconsumer.polltimeoutms": "'requestTimeoutMs'",
}
# What a client has in its options and a profile in its table, by our names.
_OF_CLIENT = {
    "access_key": "accessKey", "secret_key": "secretKey", "security_token": "securityToken",
    "tls": "tls", "tls_ca": "tlsCa", "tls_cert": "tlsCert", "tls_key": "tlsKey",
}  # fmt: skip
_TLS_FILES = ("tlsCa", "tlsCert", "tlsKey")
_CONNECTION = ("numRetries", "retryIntervalMs", "requestTimeoutMs", *_OF_CLIENT.values())

Given = dict[str, Any]  # by proper names, read


def for_batch(options: Mapping[str, str], user_columns: tuple[str, ...] | None = None) -> Read:
    given = _given(options, BATCH)
    start = _position(given, "starting", Position(word="earliest"))
    end = _position(given, "ending", Position(word="latest"))
    if start.word == "latest":
        raise OptionError("option 'startingOffsets' is 'latest': a batch would read nothing")
    if end.word in ("earliest", "group"):
        raise OptionError(f"option 'endingOffsets' is {end.word!r}, expected latest or JSON offsets")
    _check_order(start, end)
    return _read(given, start, end, user_columns)


def for_stream(options: Mapping[str, str], user_columns: tuple[str, ...] | None = None) -> Read:
    given = _given(options, STREAM)
    read = _read(
        given,
        _position(given, "starting", Position(word="latest")),
        Position(word="latest"),
        user_columns,
    )
    _check_least_and_most(given, "minOffsetsPerTrigger", "maxOffsetsPerTrigger")
    return read


def for_write(options: Mapping[str, str]) -> Write:
    given = _given(options, WRITE)
    if "namesrv" not in given:
        raise OptionError("option 'namesrv' is missing: host:port of the name server to write to")
    _check_account(given)
    _check_tls(given)
    topics = given.get("topic") or given.get("path") or ("",)
    if len(topics) > 1:
        raise OptionError(f"option 'topic' is {','.join(topics)!r}: a row goes to one topic")
    return Write(topic=topics[0], **_fields(given))


def columns_of(options: Mapping[str, str]) -> tuple[str, ...]:
    """The columns a read of these options has, before Spark tells whether it is a batch or a stream."""
    return _columns(_given(options, None), None)


def connection(options: Mapping[str, str]) -> dict[str, str]:
    """Those of `options` that say how brokers are asked: for other jobs at the same brokers."""
    return {name: value for name, value in options.items() if _BY_LOWER.get(name.lower()) in _CONNECTION}


def of_client(account: Mapping[str, str], own: Mapping[str, str]) -> dict[str, str]:
    """What a client's options (`access_key`, `tls_ca` ...) say of account and TLS and `own` does not, as options of the
    source. Spark shows no value of an option whose name says that it is a secret."""
    named = {name.lower(): raw for name, raw in own.items()}
    found = {
        option: f"{values.AS_IS}{account[name]}" if OPTIONS[option].read is values.secret else account[name]
        for name, option in _OF_CLIENT.items()
        if account.get(name) and option.lower() not in named
    }
    if named.get("tls", found.get("tls", "off")).strip().lower() in ("off", "false"):
        return {option: raw for option, raw in found.items() if option not in _TLS_FILES}
    return found


def _given(options: Mapping[str, str], use: str | None) -> Given:
    """The options as given, by their proper names, each read; `use` is what they are for."""
    found: Given = {}
    for key, raw in _unfolded(options).items():
        name = _BY_LOWER.get(key.lower())
        if key.lower() in _SPARKS_OWN:
            continue
        if name is None:
            raise OptionError(f"unknown option {key!r}{_hint(key.lower())}")
        option = OPTIONS[name]
        if use and use not in option.of:
            hint = (
                "; a stream has no end (use trigger(availableNow=True))" if name.startswith("ending") else ""
            )
            raise OptionError(f"option {name!r} is for {' and '.join(option.of)}, not for {use}{hint}")
        try:
            found[name] = option.read(str(raw))
        except ValueError as error:
            shown = "" if option.read is values.secret else f" is {str(raw)!r}"
            raise OptionError(f"option {name!r}{shown}: {error}") from None
    return found


def _unfolded(options: Mapping[str, str]) -> dict[str, str]:
    """A table's options by their own names; what a query says goes before."""
    of_table = {
        key[len(_OF_A_TABLE) :]: raw for key, raw in options.items() if key.lower().startswith(_OF_A_TABLE)
    }
    told = {key: raw for key, raw in options.items() if not key.lower().startswith(_OF_A_TABLE)}
    said = {key.lower() for key in told}
    return {**{key: raw for key, raw in of_table.items() if key.lower() not in said}, **told}


def _hint(key: str) -> str:
    if key in _OF_KAFKA:
        return f"; that is Kafka's, here it is {_OF_KAFKA[key]}"
    if key.startswith("kafka."):
        return "; options of Kafka's client have no meaning here"
    near = difflib.get_close_matches(key, _BY_LOWER, n=1, cutoff=0.5)
    return f"; did you mean {_BY_LOWER[near[0]]!r}?" if near else ""


def _fields(given: Given) -> dict[str, Any]:
    return {OPTIONS[name].field: value for name, value in given.items() if OPTIONS[name].field}


def _read(given: Given, start: Position, end: Position, user_columns: tuple[str, ...] | None) -> Read:
    if ("namesrv" in given) == ("storePath" in given):
        raise OptionError(
            "give either 'namesrv' (read from brokers) or 'storePath' (read store files), not both or neither"
        )
    if "storePath" in given:
        for name in given:
            if OPTIONS[name].asks_brokers:
                raise OptionError(f"option {name!r} needs a broker; with 'storePath' there is none")
    if start.word == "group" and "group" not in given:
        raise OptionError("option 'startingOffsets' is 'group', which needs the option 'group'")
    if given.get("includeRetries") and "group" not in given:
        raise OptionError("option 'includeRetries' needs the option 'group': whose retries?")
    if "tags" in given and "sqlFilter" in given:
        raise OptionError("options 'tags' and 'sqlFilter' exclude each other")
    _check_least_and_most(given, "minPartitions", "maxPartitions")
    _check_account(given)
    _check_tls(given)
    return Read(
        topics=_topics(given),
        start=start,
        end=end,
        columns=_columns(given, user_columns),
        **_fields(given),
    )


def _topics(given: Given) -> tuple[str, ...]:
    chosen = [name for name in ("subscribe", "subscribePattern", "assign", "topic", "path") if name in given]
    if len(chosen) != 1:
        said = " and ".join(repr(name) for name in chosen) or "none of them"
        raise OptionError(f"give exactly one of 'subscribe', 'subscribePattern', 'assign'; given: {said}")
    named: tuple[str, ...] = given[chosen[0]] if not OPTIONS[chosen[0]].field else ()
    return named


def _columns(given: Given, user_columns: tuple[str, ...] | None) -> tuple[str, ...]:
    asked: tuple[str, ...] | None = given.get("columns")
    if asked and given.get("includeProperties") and "properties" not in asked:
        raise OptionError("option 'columns' leaves out 'properties', which 'includeProperties' asks for")
    if user_columns is not None:
        return schema.check(user_columns)
    if asked:
        return asked
    return (*schema.DEFAULT, "properties") if given.get("includeProperties") else schema.DEFAULT


def _position(given: Given, side: str, default: Position) -> Position:
    names = [f"{side}Offsets", f"{side}Timestamp", f"{side}OffsetsByTimestamp"]
    chosen = [name for name in names if name in given]
    if len(chosen) > 1:
        raise OptionError(f"options {' and '.join(map(repr, chosen))} exclude each other")
    position: Position = given[chosen[0]] if chosen else default
    return position


def _check_order(start: Position, end: Position) -> None:
    """What a batch ends before it starts is somebody's mistake, not an empty range."""
    if start.timestamp is not None and end.timestamp is not None and start.timestamp > end.timestamp:
        raise OptionError(
            f"option 'startingTimestamp' ({start.timestamp}) is after 'endingTimestamp' ({end.timestamp})"
        )
    for topic, timestamp in (start.timestamps or {}).items():
        last = (end.timestamps or {}).get(topic, timestamp)
        if timestamp > last:
            raise OptionError(
                f"option 'startingOffsetsByTimestamp' ({topic}: {timestamp}) is after"
                f" 'endingOffsetsByTimestamp' ({last})"
            )
    for topic, broker, queue, stop in plan.flat(end.offsets or {}):
        place = f"{topic}/{broker}/{queue}"
        if stop == EARLIEST:
            raise OptionError(f"option 'endingOffsets': offset {stop} of {place} is not possible")
        first = plan.get(start.offsets or {}, topic, broker, queue, 0)
        if first > stop >= 0:
            raise OptionError(
                f"option 'startingOffsets' ({place}: {first}) is after 'endingOffsets' ({stop})"
            )


def _check_least_and_most(given: Given, least: str, most: str) -> None:
    if least in given and most in given and given[least] > given[most]:
        raise OptionError(f"option {least!r} ({given[least]}) is above {most!r} ({given[most]})")


def _check_account(given: Given) -> None:
    for name, other in (
        ("accessKey", "secretKey"),
        ("secretKey", "accessKey"),
        ("securityToken", "accessKey"),
    ):
        if given.get(name) and not given.get(other):
            raise OptionError(f"option {name!r} needs the option {other!r}")


def _check_tls(given: Given) -> None:
    """Files that have no use are a mistake, and those that cannot be used are told of before the query starts."""
    files = {name: given[name] for name in _TLS_FILES if name in given}
    for name in files:
        if not given.get("tls"):
            raise OptionError(f"option {name!r} needs the option 'tls', which is off")
    if "tlsKey" in files and "tlsCert" not in files:
        raise OptionError("option 'tlsKey' needs the option 'tlsCert'")
    if files:
        try:
            client_tls(*(files.get(name, "") for name in _TLS_FILES))
        except ValueError as error:
            raise OptionError(f"option {' or '.join(map(repr, files))}: {error}") from None
