# SPDX-License-Identifier: Apache-2.0
"""What one request may cost everybody else: each limit is named in the refusal, and one below it is served."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from aerobee.broker.operations import ack, heartbeat, send
from aerobee.errors import NetworkError
from aerobee.fronts.remoting import admin, clients
from aerobee.net.listener import MAX_REQUEST_HEADER
from aerobee.protocol import batch
from aerobee.protocol.batch import BatchItem
from aerobee.protocol.codes import RequestCode, ResponseCode
from aerobee.protocol.command import Command

INVALID = int(ResponseCode.INVALID_PARAMETER)


def beat(*, subscriptions: int = 0, consumers: int = 1, producers: int = 0) -> dict[str, Any]:
    named = [{"topic": f"t{n}", "subString": "*"} for n in range(subscriptions)]
    return {
        "clientID": "c",
        "producerDataSet": [{"groupName": f"p{n}"} for n in range(producers)],
        "consumerDataSet": [
            {"groupName": f"g{n}", "subscriptionDataSet": named if n == 0 else []} for n in range(consumers)
        ],
    }


def queues(count: int) -> dict[str, Any]:
    listed = [{"topic": "t", "brokerName": "broker-a", "queueId": n} for n in range(count)]
    return {"clientId": "c", "consumerGroup": "g", "mqSet": listed}


def acks(count: int) -> dict[str, Any]:
    entry = {"c": "g", "t": "t", "r": "0", "so": 0, "q": 0, "rq": 0, "pt": 1, "it": 1, "b": "AQ=="}
    return {"brokerName": "broker-a", "acks": [entry] * count}


def topics(count: int) -> dict[str, Any]:
    return {"topicConfigList": [{"topicName": f"t{n}"} for n in range(count)]}


def groups(count: int) -> dict[str, Any]:
    return {"groupConfigList": [{"groupName": f"g{n}"} for n in range(count)]}


@pytest.mark.parametrize(
    ("code", "body", "limit", "what"),
    [
        (
            RequestCode.HEART_BEAT,
            lambda n: beat(subscriptions=n),
            heartbeat.MAX_SUBSCRIPTIONS,
            "subscriptions",
        ),
        (RequestCode.HEART_BEAT, lambda n: beat(consumers=n), heartbeat.MAX_CONSUMERS, "consumer groups"),
        (RequestCode.HEART_BEAT, lambda n: beat(producers=n), heartbeat.MAX_PRODUCERS, "producer groups"),
        (RequestCode.LOCK_BATCH_MQ, queues, clients.MAX_LOCKED_QUEUES, "queues"),
        (RequestCode.UNLOCK_BATCH_MQ, queues, clients.MAX_LOCKED_QUEUES, "queues"),
        (RequestCode.BATCH_ACK_MESSAGE, acks, ack.MAX_BATCH_ACKS, "acks"),
        (RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, topics, admin.MAX_LISTED, "topics"),
        (RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, groups, admin.MAX_LISTED, "groups"),
    ],
)
async def test_entries_of_a_request_are_limited(
    peer: Any, server: Any, code: int, body: Any, limit: int, what: str
) -> None:
    refused = await peer.connection.call(Command(code, body=msgspec.json.encode(body(limit + 1))), 10_000)
    assert (refused.code, refused.remark) == (
        INVALID,
        f"{limit + 1} {what} in one request, limit {limit}; send several",
    )
    assert server.broker.clients.groups() == {}, "nothing of it was done"
    served = await peer.connection.call(Command(code, body=msgspec.json.encode(body(10))), 10_000)
    assert served.code == 0


@pytest.mark.parametrize(
    "code",
    [
        RequestCode.HEART_BEAT,
        RequestCode.LOCK_BATCH_MQ,
        RequestCode.UNLOCK_BATCH_MQ,
        RequestCode.CHECK_CLIENT_CONFIG,
        RequestCode.BATCH_ACK_MESSAGE,
        RequestCode.UPDATE_AND_CREATE_TOPIC_LIST,
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST,
        RequestCode.SET_MESSAGE_REQUEST_MODE,
    ],
)
@pytest.mark.parametrize("unit", [b"1,", b"1:1,", b"{},"])
async def test_no_json_body_is_read_that_would_take_long(peer: Any, code: int, unit: bytes) -> None:
    body = b'{"x":[' + unit * 100_000 + b"1]}"
    refused = await peer.connection.call(Command(code, body=body), 10_000)
    assert refused.code == int(ResponseCode.SYSTEM_ERROR)
    assert "values, limit 60000; send several" in (refused.remark or "")


@pytest.mark.parametrize(
    ("items", "remark"),
    [
        (
            [BatchItem(0, b"x")] * (send.MAX_BATCH + 1),
            f"a batch of more than {send.MAX_BATCH} messages; send smaller ones",
        ),
        (
            [BatchItem(0, b"x", "KEYS\x01" + "k " * 9_000 + "\x02")] * 5,
            f"a batch with 45000 keys, limit {send.MAX_BATCH_KEYS}; send smaller ones",
        ),
    ],
)
async def test_a_batch_is_limited_in_messages_and_keys(
    peer: Any, server: Any, items: list[BatchItem], remark: str
) -> None:
    refused = await peer.send(body=batch.encode(items), batch=True)
    assert (refused.code, refused.remark) == (int(ResponseCode.MESSAGE_ILLEGAL), remark)
    assert server.broker.store.max_offset("orders", 0) == 0
    assert (await peer.send(body=batch.encode(items[:3]), batch=True)).code == 0


async def test_a_long_tag_filter_is_refused_as_a_long_sql_filter_is(peer: Any) -> None:
    await peer.send()
    answer = await peer.start_pull(subscription="||".join(f"t{n}" for n in range(10_000)), sys_flag=4)
    assert answer.code == int(ResponseCode.SUBSCRIPTION_PARSE_FAILED)
    assert "characters, limit 32768" in (answer.remark or "")


async def test_a_header_is_limited_and_a_body_is_not_by_it(peer: Any) -> None:
    assert (await peer.send(body=bytes(MAX_REQUEST_HEADER + 1))).code == 0
    with pytest.raises(NetworkError):
        await peer.connection.call(Command(310, ext={"x": "1" * MAX_REQUEST_HEADER}), 10_000)


async def test_settings_are_limited(peer: Any) -> None:
    code = RequestCode.UPDATE_BROKER_CONFIG
    refused = await peer.connection.call(Command(code, body=b"a=b\n" * 20_000), 10_000)
    assert (refused.code, refused.remark) == (INVALID, "settings of 80000 bytes, limit 65536")
