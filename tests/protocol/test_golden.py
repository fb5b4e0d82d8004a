# SPDX-License-Identifier: Apache-2.0
"""Bytes of real clients and a real broker, recorded by tests/interop/golden.py: read, understood, written alike."""

from __future__ import annotations

import importlib
import json
import pkgutil
from pathlib import Path
from typing import Any

import msgspec
import pytest

from aerobee.protocol import batch, headers, java_json, message
from aerobee.protocol import bodies as B
from aerobee.protocol import command as wire
from aerobee.protocol.codes import SysFlag
from aerobee.protocol.command import Command, Header
from aerobee.protocol.compression import decompress
from aerobee.protocol.frames import FrameDecoder
from aerobee.protocol.headers import cluster, consume, groups, offsets, produce, route, topics
from aerobee.protocol.receipt import parse_msg_offsets, parse_start_offsets

GOLDEN = Path(__file__).parents[1] / "golden"
INDEX = GOLDEN / "index.json"
ROWS = json.loads(INDEX.read_bytes()) if INDEX.exists() else []
REQUESTS = [row for row in ROWS if row["kind"] == "request"]
RESPONSES = [row for row in ROWS if row["kind"] == "response"]

REQUEST_HEADERS: dict[int, type[Header]] = {
    kind.code: kind
    for module in pkgutil.iter_modules(headers.__path__)
    for kind in vars(importlib.import_module(f"{headers.__name__}.{module.name}")).values()
    if isinstance(kind, type) and issubclass(kind, Header) and hasattr(kind, "code")
}
RESPONSE_HEADERS: dict[int, type[Header]] = {
    **dict.fromkeys((10, 310, 320, 324, 325), produce.SendResult),
    370: produce.RecallResult,
    **dict.fromkeys((11, 361), consume.PullResult),
    **dict.fromkeys((14, 29, 30, 31), offsets.OffsetResult),
    32: offsets.EarliestStoreTimeResult,
    12: offsets.QueryMessageResult,
    34: consume.HeartbeatResult,
    **dict.fromkeys((200050, 200052), consume.PopResult),
    200053: consume.ChangeInvisibleResult,
    200054: consume.NotificationResult,
    200055: consume.PollingInfoResult,
    21: topics.AllTopicConfigsResult,
    201: groups.AllGroupConfigsResult,
    26: cluster.BrokerConfigResult,
    103: route.RegisterBrokerResult,
    205: route.WipeWritePermResult,
    327: route.AddWritePermResult,
    322: route.QueryDataVersionResult,
    101: route.GetKVResult,
}
REQUEST_BODIES: dict[int, type[Any]] = {
    34: B.Heartbeat,
    41: B.LockBatch,
    42: B.LockBatch,
    46: B.CheckClient,
    18: B.TopicConfigList,
    200: B.GroupConfig,
    225: B.GroupConfigList,
    220: B.ResetOffsetBody,
    217: B.TopicRoute,
    322: B.DataVersion,
    400: B.AssignmentQuery,
    401: B.RequestMode,
    200151: B.BatchAck,
}
RESPONSE_BODIES: dict[int, type[Any]] = {
    38: B.ConsumerIds,
    41: B.LockedQueues,
    21: B.TopicConfigs,
    28: B.KVTable,
    43: B.ConsumerOffsets,
    45: B.DelayOffsets,
    105: B.TopicRoute,
    106: B.ClusterInfo,
    201: B.GroupConfigs,
    202: B.TopicStats,
    203: B.ConsumerConnection,
    204: B.ProducerConnection,
    206: B.TopicList,
    208: B.ConsumeStats,
    219: B.KVTable,
    221: B.QueueOffsets,
    222: B.ResetOffsetBody,
    223: B.ConsumerStatusTable,
    224: B.TopicList,
    300: B.GroupList,
    303: B.ConsumeTimeSpans,
    304: B.TopicList,
    305: B.TopicList,
    307: B.ConsumerRunningInfo,
    308: B.CorrectionOffsets,
    309: B.ConsumeDirectlyResult,
    315: B.BrokerStatsData,
    317: B.ConsumeStatsList,
    321: B.ConsumeQueueView,
    322: B.DataVersion,
    328: B.ProducerTable,
    343: B.TopicList,
    345: B.GroupSubscriptionBody,
    351: B.TopicConfig,
    352: B.GroupConfig,
    353: B.GroupForbidden,
    400: B.Assignment,
    402: B.RequestModes,
    901: B.MemberGroupAnswer,
}
RECORD_BODIES = {11, 361, 12, 33, 200050, 200052}
SENDS = {10, 310, 324, 325}
# In the binary header, codes above 16 bits are cut; see `test_codes_above_16_bits...`.
FULL_CODES = {3442: 200050, 3443: 200051, 3445: 200053, 3446: 200054, 3543: 200151}


def name_of(row: dict[str, Any]) -> str:
    return str(row["file"])


def frame_of(row: dict[str, Any]) -> tuple[bytes, Command]:
    data = (GOLDEN / row["file"]).read_bytes()
    (frame,) = FrameDecoder().feed(data)
    return data, wire.decode(frame)


def code_of(row: dict[str, Any]) -> int:
    return FULL_CODES.get(row["requestCode"], row["requestCode"])


def test_there_are_golden_bytes_of_every_client() -> None:
    """The recording is checked in: without it nothing pins the codecs to the real peers."""
    assert ROWS, f"{INDEX} is missing: run tests/interop/golden.py"
    assert {row["client"] for row in ROWS} >= {"java", "java-binary", "mqadmin", "go", "ons", "cpp", "broker"}
    assert {row["requestCode"] for row in ROWS} >= {
        10,
        310,
        320,
        11,
        361,
        14,
        15,
        34,
        36,
        37,
        39,
        41,
        105,
        103,
    }
    missing = [row["file"] for row in ROWS if not (GOLDEN / row["file"]).exists()]
    assert not missing


@pytest.mark.parametrize("row", ROWS, ids=name_of)
def test_the_frame_is_read_and_written_again_with_the_same_meaning(row: dict[str, Any]) -> None:
    data, command = frame_of(row)
    assert (command.code, command.opaque, command.flag) == (row["code"], row["opaque"], row["flag"])
    again = wire.encode(command)
    (frame,) = FrameDecoder().feed(again)
    found = wire.decode(frame)
    assert found.ext_dict() == command.ext_dict()
    assert msgspec.structs.replace(found, ext={}) == msgspec.structs.replace(command, ext={})
    if command.serialize == 1:
        assert again == data
    else:
        size = int.from_bytes(data[5:8], "big")
        written, meant = (
            json.loads(text, strict=False)
            for text in (again[8 : -len(found.body) or None], data[8 : 8 + size])
        )
        for optional in ("serializeTypeCurrentRPC", "extFields", "remark"):
            written.pop(optional, None), meant.pop(optional, None)
        assert written == meant


@pytest.mark.parametrize("row", REQUESTS, ids=name_of)
def test_the_requests_fields_are_declared(row: dict[str, Any]) -> None:
    """Every field sent is one the header knows, and comes out of it with the same text."""
    _, command = frame_of(row)
    kind = REQUEST_HEADERS[code_of(row)]
    check_fields(command, command.fields(kind))


@pytest.mark.parametrize("row", RESPONSES, ids=name_of)
def test_the_responses_fields_are_declared(row: dict[str, Any]) -> None:
    _, command = frame_of(row)
    kind = RESPONSE_HEADERS.get(code_of(row))
    sent = {name for name in command.ext_dict() if name not in ("MSG_REGION", "TRACE_ON")}
    if kind is None:
        assert not sent - IGNORED
    elif sent:
        check_fields(command, command.fields(kind))


# Fields beside the header's: common ones of 5.x, and a signature.
IGNORED = {
    "ns",
    "nsd",
    "oway",
    "lo",
    "bname",
    "Signature",
    "AccessKey",
    "SecurityToken",
    "OnsChannel",
    "ReqT",
}


def check_fields(command: Command, header: Header) -> None:
    sent = {name: value for name, value in command.ext_dict().items() if name not in IGNORED}
    written = wire.header_fields(header)
    if command.language == "CPP":  # whose booleans are numbers
        sent |= {name: str(sent[name] == "1").lower() for name in ("unitMode", "batch") if name in sent}
    assert {name: written.get(name) for name in sent} == sent


@pytest.mark.parametrize("row", [row for row in REQUESTS if code_of(row) in REQUEST_BODIES], ids=name_of)
def test_the_requests_body_is_read_and_written_again_with_the_same_meaning(row: dict[str, Any]) -> None:
    _, command = frame_of(row)
    check_body(command.body, REQUEST_BODIES[code_of(row)])


@pytest.mark.parametrize(
    "row", [row for row in RESPONSES if code_of(row) in RESPONSE_BODIES and row["code"] == 0], ids=name_of
)
def test_the_responses_body_is_read_and_written_again_with_the_same_meaning(row: dict[str, Any]) -> None:
    _, command = frame_of(row)
    if command.body:
        check_body(command.body, RESPONSE_BODIES[code_of(row)])


def check_body(body: bytes, kind: type[Any]) -> None:
    value = java_json.decode(body, kind)
    for dialect in java_json.Dialect:
        assert java_json.decode(java_json.encode(value, dialect), kind) == value
    # What Java sent and what we make of it agree in every member we declare.
    sent, written = java_json.parse(body), java_json.parse(java_json.encode(value))
    assert not different(sent, written)


def different(sent: Any, written: Any, path: str = "") -> list[str]:
    """Where the two disagree, members one of them lacks aside."""
    if isinstance(sent, dict) and isinstance(written, dict):
        left = {str(sorted(map(str, k)) if isinstance(k, tuple) else k): v for k, v in sent.items()}
        right = {str(sorted(map(str, k)) if isinstance(k, tuple) else k): v for k, v in written.items()}
        return [
            each for k in left.keys() & right.keys() for each in different(left[k], right[k], f"{path}.{k}")
        ]
    if isinstance(sent, list) and isinstance(written, list):
        if len(sent) != len(written):
            return [f"{path}: {len(sent)} != {len(written)}"]
        return [
            each
            for i, (a, b) in enumerate(zip(sent, written, strict=True))
            for each in different(a, b, f"{path}[{i}]")
        ]
    if isinstance(written, str) and isinstance(sent, int):
        return []  # an ordinal that we write by name
    return (
        []
        if str(sent).lower() == str(written).lower() or sent is None
        else [f"{path}: {sent!r} != {written!r}"]
    )


@pytest.mark.parametrize(
    "row", [row for row in RESPONSES if code_of(row) in RECORD_BODIES and row["code"] == 0], ids=name_of
)
def test_records_are_read_verified_and_written_to_the_byte(row: dict[str, Any]) -> None:
    _, command = frame_of(row)
    at = 0
    for record in message.decode_all(command.body):
        raw = command.body[at : at + record.size]
        message.verify(raw)
        assert message.encode(record) == raw
        decompress(record.body, record.sys_flag)
        at += record.size
    assert at


@pytest.mark.parametrize("row", [row for row in REQUESTS if code_of(row) in SENDS | {320}], ids=name_of)
def test_bodies_of_sends_are_understood(row: dict[str, Any]) -> None:
    _, command = frame_of(row)
    if code_of(row) == 320:
        items = batch.decode(command.body)
        assert items
        assert batch.encode(items) == command.body
    else:
        kind = REQUEST_HEADERS[code_of(row)]
        sys_flag = command.fields(kind).sys_flag  # type: ignore[attr-defined]
        assert decompress(command.body, sys_flag)
        assert not sys_flag & SysFlag.INNER_BATCH


def test_the_info_strings_of_a_pop_name_its_messages() -> None:
    for row in [row for row in RESPONSES if code_of(row) == 200050 and row["code"] == 0]:
        _, command = frame_of(row)
        found = command.fields(consume.PopResult)
        taken = parse_msg_offsets(found.msg_offset_info)
        assert parse_start_offsets(found.start_offset_info).keys() == taken.keys()
        assert sum(map(len, taken.values())) == len(list(message.decode_all(command.body)))


@pytest.mark.parametrize("row", [row for row in REQUESTS if code_of(row) == 103], ids=name_of)
def test_a_brokers_registration_is_understood(row: dict[str, Any]) -> None:
    _, command = frame_of(row)
    header = command.fields(route.RegisterBroker)
    if header.compressed:
        body = B.decompress_registration(command.body)
    else:
        body = B.decode_registration(command.body, command.version)
    assert body.topic_config_serialize_wrapper.topic_config_table
