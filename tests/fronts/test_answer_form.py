# SPDX-License-Identifier: Apache-2.0
"""The outer form of answers: what clients read of each, whatever was asked."""

from __future__ import annotations

import asyncio
import json
import struct
from typing import TYPE_CHECKING, Any

import pytest

from aerobee import Server
from aerobee.protocol import command as wire
from aerobee.protocol.command import request
from aerobee.protocol.headers import cluster, consume, produce, route
from aerobee.protocol.recall_handle import recall_handle
from aerobee.server import OFF

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from aerobee.protocol.command import Command, Header

STAMP = {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true"}


class Unknown(wire.Header):
    code = 9999


async def head_of(address: str, asked: Command) -> dict[str, Any]:
    """The answer's header as a client finds it on the wire: in our own client an absent member reads as an empty one."""
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(wire.encode(asked))
    _, header_size = struct.unpack(">II", await reader.readexactly(8))
    head: dict[str, Any] = json.loads(await reader.readexactly(header_size))
    writer.close()
    return head


@pytest.mark.parametrize(
    "asked",
    [
        Unknown(),
        consume.AckMessage(consumer_group="g", topic="nowhere", queue_id=0, extra_info="", offset=0),
        consume.Unregister(client_id="c", consumer_group="g"),
        cluster.BrokerStats(stats_name="TOPIC_PUT_NUMS", stats_key="nobody"),
    ],
    ids=lambda asked: type(asked).__name__,
)
async def test_an_answer_without_fields_has_an_empty_object_of_them(asked: Header, server: Any) -> None:
    head = await head_of(server.broker_address, request(asked))
    assert head["extFields"] == {}


async def test_so_does_an_accepted_ack(peer: Any, server: Any) -> None:
    await peer.send(queue_id=0)
    pop = consume.PopMessage(
        consumer_group="g", topic="orders", queue_id=0, max_msg_nums=1, invisible_time=60_000, poll_time=0
    )
    popped = await peer.call(pop)
    fields = popped.ext_dict()
    assert popped.code == 0, popped.remark
    receipt = f"0 {fields['popTime']} {fields['invisibleTime']} {fields['reviveQid']} 0 broker-a 0 0"
    ack = consume.AckMessage(consumer_group="g", topic="orders", queue_id=0, extra_info=receipt, offset=0)
    head = await head_of(server.broker_address, request(ack))
    assert (head["code"], head["extFields"]) == (0, {})


@pytest.fixture
async def namesrv_address() -> AsyncIterator[str]:
    async with Server(ephemeral=True, broker_port=OFF) as running:
        yield running.namesrv


@pytest.mark.parametrize(
    "asked", [Unknown(), route.GetRoute(topic="nowhere")], ids=lambda a: type(a).__name__
)
async def test_the_name_server_answers_in_the_same_form(asked: Header, namesrv_address: str) -> None:
    head = await head_of(namesrv_address, request(asked))
    assert head["code"] != 0
    assert head["extFields"] == {}


@pytest.mark.parametrize("serialize", [0, 1])
async def test_region_and_trace_switch_stand_in_every_answer_to_a_send(
    peer: Any, server: Any, serialize: int
) -> None:
    """Also in refusals: the clients' trace hooks read them before the code."""
    in_time = server.clock.now() + 60_000
    handle = recall_handle("orders", "broker-a", in_time, "AB12")
    await peer.send(queue_id=0)
    asked: list[tuple[Header, bytes, int]] = [
        (produce.SendMessageV2(topic="orders", queue_id=0), b"body", 0),
        (produce.SendMessageV2(topic="orders", queue_id=99), b"refused: no such queue", 1),
        (produce.SendMessage(topic="no such name", queue_id=0), b"refused: no such name", 1),
        (produce.SendReplyV2(topic="orders", queue_id=0), b"refused: nobody waits", 1),
        (produce.RecallMessage(topic="orders", recall_handle=handle), b"", 0),
        (produce.RecallMessage(topic="orders", recall_handle="nonsense"), b"", 1),
    ]
    for header, body, refused in asked:
        answer = await peer.call(header, body, serialize=serialize)
        assert bool(answer.code) == bool(refused), (header, answer)
        assert STAMP.items() <= answer.ext_dict().items(), (header, answer)


def asking(number: int) -> Header:
    return type("Asked", (wire.Header,), {"code": number, "__module__": __name__})()


@pytest.mark.parametrize(
    ("number", "code", "remark"),
    [
        (908, 0, None),  # resetMasterFlushOffset: for slaves
        (355, 0, "export done."),  # rocksDBConfigToJson: it is JSON
        (1007, 1, "this request only for controllerMode "),  # getBrokerEpoch
        *[
            (number, 1, "The authenticationMetadataProvider is not configured")
            for number in range(3001, 3011)
        ],
        *[
            (number, 3, f" request type {number} not supported")
            for number in (354, 902, 903, 2001, 2003, 2004)
        ],
    ],
)
async def test_what_tools_ask_of_other_parts_is_answered_as_rocketmq_without_them_does(
    peer: Any, number: int, code: int, remark: str | None
) -> None:
    answer = await peer.call(asking(number))
    assert answer.code == code
    assert answer.remark is remark or answer.remark.startswith(remark)


async def test_exporting_pop_records_puts_open_leases_into_the_revive_log(peer: Any, server: Any) -> None:
    await peer.send(queue_id=0)
    pop = consume.PopMessage(
        consumer_group="g", topic="orders", queue_id=0, max_msg_nums=1, invisible_time=60_000, poll_time=0
    )
    assert (await peer.call(pop)).code == 0
    log_end = server.broker.store.log_max
    assert (await peer.call(asking(200056))).code == 0
    checkpoint = server.broker.store.record_at(log_end)
    assert checkpoint is not None
    assert checkpoint.topic.startswith("rmq_sys_REVIVE_LOG")
