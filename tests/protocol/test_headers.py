# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import importlib
import pkgutil
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import NODEFAULT, inspect

from aerobee.protocol import command as wire
from aerobee.protocol import headers
from aerobee.protocol.codes import RequestCode
from aerobee.protocol.command import Command, Header
from aerobee.protocol.headers.produce import SendBatch, SendMessage, SendMessageV2

HEADERS = [
    kind
    for module in pkgutil.iter_modules(headers.__path__)
    for kind in vars(importlib.import_module(f"{headers.__name__}.{module.name}")).values()
    if isinstance(kind, type) and issubclass(kind, Header) and kind.__module__.endswith(f".{module.name}")
]
REQUESTS = {kind.code: kind for kind in HEADERS if hasattr(kind, "code")}

VALUES: dict[type, st.SearchStrategy[Any]] = {
    inspect.IntType: st.integers(-(2**63), 2**63 - 1),
    inspect.BoolType: st.booleans(),
    inspect.StrType: st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12),
}


def strategy(kind: type[Header]) -> st.SearchStrategy[Any]:
    members = {}
    for field in inspect.type_info(kind).fields:  # type: ignore[attr-defined]
        info, optional = field.type, isinstance(field.type, inspect.UnionType)
        if optional:
            info = next(each for each in info.types if not isinstance(each, inspect.NoneType))
        members[field.name] = VALUES[type(info)] | st.none() if optional else VALUES[type(info)]
    return st.builds(kind, **members)


def test_every_request_code_has_exactly_one_header() -> None:
    assert sorted(REQUESTS) == sorted(RequestCode)
    assert len(REQUESTS) == sum(hasattr(kind, "code") for kind in HEADERS)


@pytest.mark.parametrize("kind", HEADERS, ids=lambda kind: kind.__name__)
@given(data=st.data())
@settings(deadline=None, max_examples=10)
def test_every_header_survives_either_form(kind: type[Header], data: st.DataObject) -> None:
    sent = data.draw(strategy(kind))
    for serialize in (0, 1):
        frame = wire.encode(Command(1, ext=wire.header_fields(sent), serialize=serialize))
        assert wire.decode(frame[4:]).fields(kind) == sent


def test_the_letters_of_v2_stand_for_the_names_of_v1() -> None:
    long = dict(zip(SendMessage.__struct_fields__, SendMessage.__struct_encode_fields__, strict=True))
    short = dict(zip(SendMessageV2.__struct_fields__, SendMessageV2.__struct_encode_fields__, strict=True))
    assert list(long) == list(short)
    assert {short[name]: long[name] for name in long} == {
        "a": "producerGroup",
        "b": "topic",
        "c": "defaultTopic",
        "d": "defaultTopicQueueNums",
        "e": "queueId",
        "f": "sysFlag",
        "g": "bornTimestamp",
        "h": "flag",
        "i": "properties",
        "j": "reconsumeTimes",
        "k": "unitMode",
        "l": "maxReconsumeTimes",
        "m": "batch",
        "n": "bname",
    }


def test_a_batch_uses_the_letters_too() -> None:
    assert SendBatch.code == 320
    assert SendBatch.__struct_encode_fields__ == SendMessageV2.__struct_encode_fields__


# What RocketMQ's headers mark mandatory (`@CFNotNull`) and our own client therefore always sends.
MANDATORY = {
    10: "producerGroup topic defaultTopic defaultTopicQueueNums queueId sysFlag bornTimestamp flag",
    310: "a b c d e f g h",
    36: "offset group delayLevel",
    37: "producerGroup tranStateTableOffset commitLogOffset commitOrRollback",
    370: "topic recallHandle",
    11: "consumerGroup topic queueId queueOffset maxMsgNums sysFlag commitOffset"
    " suspendTimeoutMillis subVersion",
    14: "consumerGroup topic queueId",
    15: "consumerGroup topic queueId commitOffset",
    38: "consumerGroup",
    35: "clientID",
    200050: "consumerGroup topic queueId maxMsgNums invisibleTime pollTime bornTime initMode",
    200051: "consumerGroup topic queueId extraInfo offset",
    200053: "consumerGroup topic queueId extraInfo offset invisibleTime",
    200052: "topic queueId maxMsgNums consumerGroup",
    200054: "consumerGroup topic queueId pollTime bornTime",
    200055: "consumerGroup topic queueId",
    29: "topic queueId timestamp",
    30: "topic queueId",
    33: "offset",
    12: "topic key maxNum beginTimestamp endTimestamp",
    17: "topic defaultTopic readQueueNums writeQueueNums perm topicFilterType order",
    222: "topic group timestamp isForce",
    103: "brokerName brokerAddr clusterName haServerAddr brokerId",
    104: "brokerName brokerAddr clusterName brokerId",
    326: "producerGroup topic queueId bornHost storeHost storeTimestamp",
}


@pytest.mark.parametrize("code", MANDATORY)
def test_mandatory_fields_are_always_sent(code: int) -> None:
    kind = REQUESTS[code]
    given_ = {
        field.name: "x" if isinstance(field.type, inspect.StrType) else 1
        for field in inspect.type_info(kind).fields  # type: ignore[attr-defined]
        if field.default is NODEFAULT and field.default_factory is NODEFAULT
    }
    assert set(MANDATORY[code].split()) <= set(wire.header_fields(kind(**given_)))


def test_the_odd_spellings_of_the_wire_are_kept() -> None:
    assert "proxyFrowardClientId" in REQUESTS[11].__struct_encode_fields__
    assert "_UNIQUE_KEY_QUERY" in REQUESTS[12].__struct_encode_fields__
    assert "heartbeatTimeoutMills" in REQUESTS[904].__struct_encode_fields__
    assert "lo" in REQUESTS[351].__struct_encode_fields__
