# SPDX-License-Identifier: Apache-2.0
"""The gRPC front call by call: codes, limits, receipts shared with the remoting front."""

from __future__ import annotations

import asyncio
import gzip
import hashlib
from typing import Any

import grpc
import pytest

from aerobee.broker.operations.send import PlainOrigin, send
from aerobee.fronts.grpc.generated import messaging_pb2 as pb
from aerobee.protocol import names
from aerobee.protocol import properties as props
from aerobee.protocol.bodies import GroupConfig, TopicConfig
from aerobee.protocol.message import Record

pytestmark = pytest.mark.slow  # a server and a channel each


async def test_a_client_must_say_who_it_is(client: Any) -> None:
    request = pb.QueryRouteRequest(topic=pb.Resource(name="t"))
    answer = await client.call("QueryRoute", request, metadata=())
    assert answer.status.code == pb.CLIENT_ID_REQUIRED


async def test_a_route_has_everything_clients_insist_on(client: Any) -> None:
    client.server.broker.topics.ensure("t", queues=4)
    endpoints = pb.Endpoints(scheme=pb.IPv4, addresses=[pb.Address(host="127.0.0.1", port=1)])
    answer = await client.call(
        "QueryRoute", pb.QueryRouteRequest(topic=pb.Resource(name="t"), endpoints=endpoints)
    )
    assert answer.status.code == pb.OK
    port = int(client.server.grpc_address.rpartition(":")[2])
    for queue in answer.message_queues:
        assert queue.permission == pb.READ_WRITE
        assert queue.broker.id == 0
        assert list(queue.accept_message_types) == [pb.NORMAL, pb.FIFO, pb.DELAY, pb.TRANSACTION]
        assert [(a.host, a.port) for a in queue.broker.endpoints.addresses] == [("127.0.0.1", port)]


async def test_a_typed_topic_takes_only_its_type(client: Any) -> None:
    client.server.broker.topics.put(TopicConfig(topic_name="fifo", attributes={"message.type": "FIFO"}))
    answer = await client.send("fifo")
    assert answer.status.code == pb.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE
    assert (await client.send("fifo", message_group="g1")).status.code == pb.OK


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"body": b""}, pb.MESSAGE_BODY_EMPTY),
        ({"body": bytes(4 * 1024 * 1024 + 1)}, pb.MESSAGE_BODY_TOO_LARGE),
        ({"tag": "a|b"}, pb.ILLEGAL_MESSAGE_TAG),
        ({"tag": "  "}, pb.ILLEGAL_MESSAGE_TAG),
        ({"keys": ["  "]}, pb.ILLEGAL_MESSAGE_KEY),
        ({"message_id": " "}, pb.ILLEGAL_MESSAGE_ID),
        ({"message_group": "x" * 64}, pb.ILLEGAL_MESSAGE_GROUP),
        ({"user": {"TAGS": "x"}}, pb.ILLEGAL_MESSAGE_PROPERTY_KEY),
        ({"user": {"a\x01": "x"}}, pb.ILLEGAL_MESSAGE_PROPERTY_KEY),
        ({"user": {str(i): "x" for i in range(129)}}, pb.MESSAGE_PROPERTIES_TOO_LARGE),
        ({"user": {"big": "x" * 17_000}}, pb.MESSAGE_PROPERTIES_TOO_LARGE),
        ({"body": b"no gzip", "body_encoding": pb.GZIP}, pb.MESSAGE_CORRUPTED),
        ({"body": gzip.compress(bytes(64 << 20)), "body_encoding": pb.GZIP}, pb.MESSAGE_CORRUPTED),
    ],
)
async def test_what_the_api_refuses(client: Any, fields: dict[str, Any], code: int) -> None:
    assert (await client.send("t", **fields)).status.code == code


@pytest.mark.parametrize("topic", ["bad topic", "x" * 128, "SCHEDULE_TOPIC_XXXX"])
async def test_illegal_topics(client: Any, topic: str) -> None:
    assert (await client.send(topic)).status.code == pb.ILLEGAL_TOPIC


async def test_a_message_comes_as_it_was_sent(client: Any) -> None:
    body = b"hello" * 100
    await client.send(
        "t", gzip.compress(body), tag="A", keys=["k1", "k2"], user={"x": "1"}, body_encoding=pb.GZIP
    )
    status, (message,) = await client.receive("t")
    system = message.system_properties
    assert status.code == pb.OK
    assert message.body == body
    assert (system.tag, list(system.keys), dict(message.user_properties)) == ("A", ["k1", "k2"], {"x": "1"})
    assert system.message_id == "01" + "A" * 32
    assert system.body_encoding == pb.IDENTITY
    assert system.body_digest.checksum == hashlib.md5(body, usedforsecurity=False).hexdigest().upper()
    assert system.delivery_attempt == 1
    assert system.message_type == pb.NORMAL


@pytest.mark.seed("S000-13")
async def test_an_acked_message_is_gone_and_a_stale_handle_is_invalid(client: Any) -> None:
    await client.send("t")
    _, (message,) = await client.receive("t")
    handle = message.system_properties.receipt_handle
    answer = await client.ack("t", handle)
    assert answer.status.code == pb.OK
    assert [entry.receipt_handle for entry in answer.entries] == [handle]
    for bad in ("nonsense", "1 2 3 4 0 broker-a 0 0 0", handle.replace("broker-a", "broker-b")):
        assert (await client.ack("t", bad)).entries[0].status.code == pb.INVALID_RECEIPT_HANDLE
    assert client.server.broker.pops.leases.in_flight.messages == 0, "done with, and not only hidden"


@pytest.mark.seed("S000-13")
async def test_changing_the_duration_gives_a_new_handle_and_zero_brings_it_back(client: Any) -> None:
    await client.send("t")
    _, (message,) = await client.receive("t")
    changed = await client.change("t", message.system_properties.receipt_handle, 0)
    assert changed.status.code == pb.OK
    assert changed.receipt_handle != message.system_properties.receipt_handle
    status, (again,) = await client.receive("t")
    assert status.code == pb.OK
    assert again.system_properties.delivery_attempt == 2
    assert again.topic.name == "t"


async def test_filters_by_tag_and_by_sql(client: Any) -> None:
    for i, tag in enumerate("AB"):
        await client.send("t", tag.encode(), tag=tag, user={"n": str(i)}, message_id="01" + str(i) * 32)
    _, found = await client.receive("t", "tags", tags="B")
    assert [m.body for m in found] == [b"B"]
    _, found = await client.receive("t", "sql", sql="n < 1")
    assert [m.body for m in found] == [b"A"]
    for filters in ({"tags": "||"}, {"sql": " "}, {"sql": "a ="}):
        status, _ = await client.receive("t", **filters)
        assert status.code == pb.ILLEGAL_FILTER_EXPRESSION


@pytest.mark.seed("S000-13")
async def test_a_held_receive_is_woken_by_a_send(client: Any) -> None:
    client.server.broker.topics.ensure("t", queues=4)
    waiting = asyncio.ensure_future(client.receive("t", poll_ms=15_000))
    while not client.server.broker.pops.parked.count:  # noqa: ASYNC110 - the request has to cross two sockets
        await asyncio.sleep(0)
    await client.send("t", b"wake")
    _, (message,) = await waiting
    assert message.body == b"wake"


async def test_fifo_messages_of_a_group_share_a_queue_and_block_until_acked(client: Any) -> None:
    client.server.broker.groups.put(GroupConfig(group_name="g", consume_message_orderly=True))
    for i in range(3):
        await client.send("t", b"%d" % i, message_group="user-1", message_id="01" + str(i) * 32)
    _, found = await client.receive("t", batch=2)
    assert [m.body for m in found] == [b"0", b"1"]
    queue = found[0].system_properties.queue_id
    for message in found:
        await client.ack("t", message.system_properties.receipt_handle)
    _, rest = await client.receive("t", queue=queue)
    assert [m.body for m in rest] == [b"2"]


async def test_a_forwarded_message_is_dead(client: Any) -> None:
    await client.send("t", b"poison")
    _, (message,) = await client.receive("t")
    request = pb.ForwardMessageToDeadLetterQueueRequest(
        receipt_handle=message.system_properties.receipt_handle
    )
    request.group.name, request.topic.name = "g", "t"
    answer = await client.call("ForwardMessageToDeadLetterQueue", request)
    assert answer.status.code == pb.OK
    assert client.server.broker.store.max_offset("%DLQ%g", 0) == 1


async def test_settings_are_answered_with_the_brokers_part(client: Any) -> None:
    stream = client.telemetry()
    settings = pb.Settings(client_type=pb.PUSH_CONSUMER)
    settings.subscription.group.name = "g"
    settings.subscription.subscriptions.add().topic.name = "t"
    await stream.write(pb.TelemetryCommand(settings=settings))
    answer = await stream.read()
    assert answer.status.code == pb.OK
    assert answer.settings.backoff_policy.max_attempts == 17
    assert len(answer.settings.backoff_policy.customized_backoff.next) == 18
    assert answer.settings.subscription.HasField("fifo")
    assert answer.settings.subscription.receive_batch_size == 32
    assert client.server.broker.clients.consumer_ids("g") == ["client-1"]
    await client.call(
        "NotifyClientTermination", pb.NotifyClientTerminationRequest(group=pb.Resource(name="g"))
    )
    assert client.server.broker.clients.consumer_ids("g") == []
    stream.cancel()


async def test_settings_of_no_kind_end_the_stream(client: Any) -> None:
    stream = client.telemetry()
    await stream.write(pb.TelemetryCommand(settings=pb.Settings()))
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await stream.read()
    assert raised.value.code() == grpc.StatusCode.INVALID_ARGUMENT


async def test_a_transaction_is_invisible_until_it_is_committed(client: Any) -> None:
    sent = await client.send("t", b"half", message_type=pb.TRANSACTION)
    transaction = sent.entries[0].transaction_id
    assert transaction
    assert client.server.broker.store.max_offset("t", 0) == 0
    request = pb.EndTransactionRequest(message_id="m", transaction_id=transaction, resolution=pb.COMMIT)
    request.topic.name = "t"
    assert (await client.call("EndTransaction", request)).status.code == pb.OK
    _, (message,) = await client.receive("t")
    assert message.body == b"half"
    request.transaction_id = "no such"
    assert (await client.call("EndTransaction", request)).status.code == pb.INVALID_TRANSACTION_ID


async def test_a_delayed_message_can_be_recalled(client: Any) -> None:
    due = client.server.clock.now() + 3_600_000
    sent = await client.send("t", deliver_at=due)
    handle = sent.entries[0].recall_handle
    assert handle
    request = pb.RecallMessageRequest(recall_handle=handle)
    request.topic.name = "t"
    answer = await client.call("RecallMessage", request)
    assert (answer.status.code, answer.message_id) == (pb.OK, "01" + "A" * 32)


async def test_an_ack_that_names_no_topic_or_no_group_is_refused_as_a_whole(client: Any) -> None:
    handle = "0 1700000000000 30000 0 0 broker-a 0 0 0"
    for topic, group, code in (
        ("a b", "g", pb.ILLEGAL_TOPIC),
        ("rmq_sys_wheel_timer", "g", pb.ILLEGAL_TOPIC),
        ("t", "a b", pb.ILLEGAL_CONSUMER_GROUP),
    ):
        answer = await client.ack(topic, handle, group)
        assert (answer.status.code, list(answer.entries)) == (code, []), (topic, group)


async def test_a_broker_that_allows_no_recall_gives_no_handle_for_it(client_of: Any) -> None:
    async with client_of(recall=False) as client:
        due = client.server.clock.now() + 3_600_000
        (entry,) = (await client.send("t", deliver_at=due)).entries
        assert (entry.status.code, entry.recall_handle) == (pb.OK, "")


async def test_reading_by_offset(client: Any) -> None:
    client.server.broker.topics.ensure("t", queues=1)
    for i in range(3):
        await client.send("t", b"%d" % i, message_id="01" + str(i) * 32)
    queue = pb.MessageQueue(topic=pb.Resource(name="t"), id=0)
    answers = await client.stream(
        "PullMessage",
        pb.PullMessageRequest(group=pb.Resource(name="g"), message_queue=queue, offset=1, batch_size=8),
    )
    assert [a.message.body for a in answers if a.WhichOneof("content") == "message"] == [b"1", b"2"]
    assert answers[-1].next_offset == 3
    ask = pb.GetOffsetRequest(group=pb.Resource(name="new"), message_queue=queue)
    assert (await client.call("GetOffset", ask)).offset == 0, "the whole queue is before a new group"
    client.server.broker.store.memory_bytes = 0
    assert (await client.call("GetOffset", ask)).status.code == pb.OFFSET_NOT_FOUND
    update = pb.UpdateOffsetRequest(group=pb.Resource(name="g"), message_queue=queue, offset=2)
    assert (await client.call("UpdateOffset", update)).status.code == pb.OK
    got = await client.call(
        "GetOffset", pb.GetOffsetRequest(group=pb.Resource(name="g"), message_queue=queue)
    )
    assert got.offset == 2
    end = pb.QueryOffsetRequest(message_queue=queue, query_offset_policy=pb.END)
    assert (await client.call("QueryOffset", end)).offset == 3


async def test_tls_and_plain_clients_share_the_port(client: Any) -> None:
    import ssl

    host, _, port = client.server.grpc_address.rpartition(":")
    pem = await asyncio.to_thread(ssl.get_server_certificate, (host, int(port)))
    secure = grpc.ssl_channel_credentials(pem.encode())
    options = (("grpc.ssl_target_name_override", "localhost"),)
    async with grpc.aio.secure_channel(client.server.grpc_address, secure, options=options) as channel:
        call = channel.unary_unary(
            "/apache.rocketmq.v2.MessagingService/Heartbeat",
            request_serializer=pb.HeartbeatRequest.SerializeToString,
            response_deserializer=pb.HeartbeatResponse.FromString,
        )
        answer = await call(pb.HeartbeatRequest(), metadata=client.metadata, timeout=10)
    assert answer.status.code == pb.OK
    assert (await client.call("Heartbeat", pb.HeartbeatRequest())).status.code == pb.OK


@pytest.mark.parametrize(
    "topic", [names.TIMER_TOPIC, names.HALF_TOPIC, names.reply_topic("DefaultCluster"), "rmq_sys_x"]
)
async def test_no_message_reaches_what_only_the_broker_writes(client: Any, topic: str) -> None:
    before = client.server.broker.store.max_offset(topic, 0)
    answer = await client.send(topic)
    assert answer.status.code in (pb.ILLEGAL_TOPIC, pb.FORBIDDEN)
    assert client.server.broker.store.max_offset(topic, 0) == before


async def test_a_message_with_impossible_times_is_received_all_the_same(client: Any) -> None:
    """Other clients of the group must not be kept from their messages by what a remoting producer said."""
    broker = client.server.broker
    for number, due in enumerate(("²", "9" * 5000, "9" * 18)):
        text = props.render({"TIMER_DELIVER_MS": due, "TIMER_OUT_MS": "1", "UNIQ_KEY": f"k{number}"})
        send(Record("orders", b"x", text, 0, born_timestamp=2**62), PlainOrigin(), broker)
    broker.groups.require("g")
    broker.offsets.set("g", "orders", 0, 0)
    status, messages = await client.receive("orders")
    assert status.code == pb.OK
    assert len(messages) == 3


async def test_a_time_that_protobuf_does_not_know_is_refused(client: Any) -> None:
    message = pb.Message(body=b"x")
    message.topic.name = "orders"
    message.system_properties.message_id = "01" + "A" * 32
    message.system_properties.delivery_timestamp.seconds = 1 << 60
    answer = await client.call("SendMessage", pb.SendMessageRequest(messages=[message]))
    assert answer.status.code == pb.BAD_REQUEST


@pytest.mark.parametrize("text", ["²-1-k", "1-²-k", f"{'9' * 5000}-1-k", "1--k", "k"])
async def test_a_transaction_id_that_was_not_given_is_refused(client: Any, text: str) -> None:
    request = pb.EndTransactionRequest(transaction_id=text, resolution=pb.COMMIT)
    request.topic.name = "orders"
    answer = await client.call("EndTransaction", request)
    assert answer.status.code == pb.INVALID_TRANSACTION_ID
