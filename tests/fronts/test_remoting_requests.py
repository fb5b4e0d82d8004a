# SPDX-License-Identifier: Apache-2.0
"""The binary front, byte by byte: what a client sees of each request of the core."""

from __future__ import annotations

import asyncio
import json
import logging
import struct
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from aerobee.errors import DiskFull
from aerobee.net.routes import Route
from aerobee.protocol import batch, bodies, message, names
from aerobee.protocol.batch import BatchItem
from aerobee.protocol.command import Command, Header, request
from aerobee.protocol.headers import consume, offsets, produce

if TYPE_CHECKING:
    from collections.abc import Callable


class Unknown(Header):
    code = 9999


class Empty(Header):
    code = 310


def ext(command: Command) -> dict[str, str]:
    return command.ext_dict()


async def until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not true():  # noqa: ASYNC110 - the other side has no event to wait for
            await asyncio.sleep(0)


# -- send -------------------------------------------------------------------------------------------------


async def test_send_is_answered_with_ids_and_place(peer: Any, server: Any) -> None:
    answer = await peer.send(queue_id=2, properties="UNIQ_KEY\x01AB12\x02")
    assert (answer.code, answer.remark) == (0, None)
    fields = ext(answer)
    host = server.broker.store.store_host
    assert fields == {
        "MSG_REGION": "DefaultRegion",
        "TRACE_ON": "true",
        "msgId": message.offset_message_id(host, 0),
        "queueId": "2",
        "queueOffset": "0",
        "transactionId": "AB12",
    }
    assert message.parse_offset_message_id(fields["msgId"]) == (host, 0)


async def test_every_form_of_send_is_stored(peer: Any, server: Any) -> None:
    await peer.call(
        produce.SendMessage(topic="orders", queue_id=0, properties="KEYS\x01a\x02"), b"long names"
    )
    await peer.send(body=b"letters")
    binary = await peer.call(produce.SendMessageV2(topic="orders", queue_id=0), b"binary", serialize=1)
    assert (binary.serialize, ext(binary)["queueOffset"]) == (1, "2")
    raw = msgspec.Raw(
        b'{"a":"p","b":"orders","c":"TBW102","d":4,"e":0,"f":0,"g":1,"h":0,"i":"","k":false,"m":false}'
    )
    numbers = await peer.call(Empty(), b"ali-ons", ext=raw)
    assert (numbers.code, ext(numbers)["queueOffset"]) == (0, "3")
    stored = [server.broker.store.record_of("orders", 0, at) for at in range(4)]
    assert [record.body for record in stored] == [b"long names", b"letters", b"binary", b"ali-ons"]
    assert all(message.host_text(record.born_host).startswith("127.0.0.1:") for record in stored)


async def test_odd_unique_key_makes_valid_json(peer: Any) -> None:
    answer = await peer.send(properties='UNIQ_KEY\x01a"b\\c\x02')
    assert ext(answer)["transactionId"] == 'a"b\\c'


async def test_batch_is_answered_with_all_ids(peer: Any, server: Any) -> None:
    items = [BatchItem(n, b"%d" % n, f"KEYS\x01k{n}\x02") for n in range(3)]
    answer = await peer.call(produce.SendBatch(topic="orders", queue_id=1, batch=True), batch.encode(items))
    assert answer.code == 0
    assert len(ext(answer)["msgId"].split(",")) == 3
    assert (ext(answer)["queueOffset"], ext(answer)["queueId"]) == ("0", "1")
    assert [server.broker.store.record_of("orders", 1, n).flag for n in range(3)] == [0, 1, 2]


async def test_broken_and_empty_batches_are_refused(peer: Any) -> None:
    for body in (b"", b"\x00\x00\x00\x09broken"):
        answer = await peer.call(produce.SendBatch(topic="orders", queue_id=1, batch=True), body)
        assert answer.code == (13 if not body else 1)
    assert (await peer.send()).code == 0


async def test_one_way_send_is_stored_and_not_answered(peer: Any, server: Any) -> None:
    peer.connection.send(request(produce.SendMessageV2(topic="orders", queue_id=0), b"quiet"))
    peer.connection.send(request(produce.SendMessageV2(topic="bad name", queue_id=0), b"refused"))
    assert (await peer.send()).code == 0
    assert server.broker.store.max_offset("orders", 0) == 2


async def test_no_form_of_send_reaches_what_only_the_broker_writes(peer: Any, server: Any) -> None:
    """The way out of the data directory that there was: a timed message for a path, then a cleaning of topics."""
    own = (names.TIMER_TOPIC, names.SCHEDULE_TOPIC, names.HALF_TOPIC, names.revive_topic("DefaultCluster"))
    path = "REAL_TOPIC\x01../../../VICTIM\x02REAL_QID\x010\x02TIMER_OUT_MS\x011\x02"
    ends = {topic: server.broker.store.max_offset(topic, 0) for topic in own}
    for topic in own:
        fields: dict[str, Any] = {"topic": topic, "queue_id": 0, "properties": path}
        peer.connection.send(request(produce.SendMessageV2(**fields), b"one-way"))
        for header in (produce.SendMessage(**fields), produce.SendMessageV2(**fields)):
            for serialize in (0, 1):
                assert (await peer.call(header, b"x", serialize=serialize)).code == 16
        items = batch.encode([BatchItem(0, b"x", path)])
        assert (await peer.call(produce.SendBatch(**fields, batch=True), items)).code == 16
        assert (await peer.call(produce.SendMessageV2(**fields, batch=True), items)).code == 16
    assert {topic: server.broker.store.max_offset(topic, 0) for topic in own} == ends


async def test_delayed_send_carries_a_recall_handle(peer: Any) -> None:
    answer = await peer.send(properties="TIMER_DELAY_SEC\x0160\x02")
    assert answer.code == 0
    assert ext(answer)["recallHandle"]


# -- refusals ---------------------------------------------------------------------------------------------


async def test_refusal_has_code_and_remark_and_the_connection_lives(peer: Any) -> None:
    answer = await peer.send("SELF_TEST_TOPIC")
    assert answer.code == 16
    assert "SELF_TEST_TOPIC" in answer.remark
    assert (await peer.send()).code == 0


async def test_missing_field_is_a_system_error(peer: Any) -> None:
    answer = await peer.call(Empty())
    assert answer.code == 1
    assert "missing" in answer.remark


async def test_unknown_code_is_not_supported_and_logged_once_a_minute(
    peer: Any, clock: Any, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            answer = await peer.call(Unknown())
            assert (answer.code, "9999" in answer.remark) == (3, True)
        clock.advance(seconds=60)
        await peer.call(Unknown())
    assert len([r for r in caplog.records if "code=9999" in r.message]) == 2


async def test_full_disk_is_service_not_available(peer: Any, server: Any, monkeypatch: Any) -> None:
    await peer.send()
    with monkeypatch.context() as patch:
        patch.setattr(server.broker.store._appender, "refused", lambda: DiskFull("disk 95 % used"))
        answer = await peer.send()
        assert (answer.code, answer.remark) == (14, "disk 95 % used")
        assert (await peer.start_pull()).code == 0  # reads go on
    assert (await peer.send()).code == 0


async def test_bug_is_answered_and_logged(
    peer: Any, server: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*args: Any) -> None:
        raise ZeroDivisionError("oops")

    monkeypatch.setattr(server.broker.store, "append", fail)
    answer = await peer.send()
    assert (answer.code, answer.remark) == (1, "ZeroDivisionError: oops")
    assert "Traceback" in caplog.text


# -- pull -------------------------------------------------------------------------------------------------


@pytest.mark.seed("S004-76", "S004-87", "S004-59")
async def test_pull_answers_records_and_all_four_offsets(peer: Any, server: Any) -> None:
    for number in range(3):
        await peer.send(body=b"%d" % number)
    answer = await peer.start_pull()
    assert (answer.code, answer.remark) == (0, "FOUND")
    assert ext(answer) == {
        "maxOffset": "3",
        "minOffset": "0",
        "nextBeginOffset": "3",
        "suggestWhichBrokerId": "0",
    }
    assert [record.body for record in message.decode_all(answer.body)] == [b"0", b"1", b"2"]
    store = server.broker.store
    raw = [store.raw_at(store.unit("orders", 0, offset).physical_offset) for offset in range(3)]
    assert bytes(answer.body) == b"".join(bytes(each) for each in raw), "as they lie in the log"


@pytest.mark.seed("S004-78")
async def test_a_store_that_may_not_be_read_is_a_failure_of_the_system(peer: Any, server: Any) -> None:
    await peer.send()
    server.broker.store.readable = False
    answer = await peer.start_pull()
    assert (answer.code, answer.body) == (1, b"")
    server.broker.store.readable = True
    assert (await peer.start_pull()).code == 0


@pytest.mark.seed("S004-76")
async def test_binary_pull_is_answered_in_binary(peer: Any) -> None:
    await peer.send()
    header = consume.PullMessage(
        consumer_group="billing", topic="orders", queue_id=0, queue_offset=0, sys_flag=4, subscription="*"
    )
    answer = await peer.call(header, serialize=1)
    assert (answer.serialize, answer.code, ext(answer)["nextBeginOffset"]) == (1, 0, "1")
    assert answer.body == (await peer.start_pull()).body, "the same records"
    assert answer.body


@pytest.mark.parametrize("serialize", [0, 1])
async def test_a_bulk_reader_gets_the_units_before_the_records(peer: Any, serialize: int) -> None:
    for number in range(3):
        await peer.send(body=b"x" * number * 1000 + b"end")
    header = consume.PullMessage(
        consumer_group="billing", topic="orders", queue_id=0, queue_offset=0, sys_flag=4, subscription="*",
        as_stored=True,
    )  # fmt: skip
    answer = await peer.call(header, serialize=serialize)
    assert (answer.code, ext(answer)["recordCount"], ext(answer)["nextBeginOffset"]) == (0, "3", "3")
    sizes = [size for _, size, _ in struct.iter_unpack(">qiq", answer.body[:60])]
    assert len(answer.body) == 60 + sum(sizes)
    assert [len(record.body) for record in message.decode_all(answer.body[60:])] == [3, 1003, 2003]
    empty = await peer.call(msgspec.structs.replace(header, queue_offset=3), serialize=serialize)
    assert (empty.code, empty.body) == (19, b"")
    assert "recordCount" not in ext(empty)


async def test_only_a_reader_that_says_so_gets_more_than_32_messages(peer: Any) -> None:
    for _ in range(40):
        await peer.send()
    header = consume.PullMessage(
        consumer_group="billing", topic="orders", queue_id=0, queue_offset=0, sys_flag=4, subscription="*",
        max_msg_nums=1000,
    )  # fmt: skip
    assert ext(await peer.call(header))["nextBeginOffset"] == "32"
    for field in ("bulk", "as_stored"):
        bulk = msgspec.structs.replace(header, **{field: True})
        assert ext(await peer.call(bulk))["nextBeginOffset"] == "40"


async def test_lite_pull_is_the_same(peer: Any) -> None:
    await peer.send(body=b"lite")
    header = consume.LitePullMessage(
        consumer_group="billing", topic="orders", queue_id=0, queue_offset=0, sys_flag=20, subscription="*"
    )
    assert b"lite" in (await peer.call(header)).body


@pytest.mark.seed("S002-17", "S002-14", "S004-36")
async def test_held_pull_is_answered_under_its_own_opaque_while_others_go_on(peer: Any) -> None:
    await peer.send()
    held = peer.start_pull(offset=1)
    other = await peer.start_pull(offset=0)
    assert other.code == 0
    assert not held.done()
    await peer.send(body=b"new")
    answer = await held
    assert answer.code == 0
    assert b"new" in answer.body
    assert answer.is_response
    assert answer.opaque == other.opaque - 1, "the number of its request"


async def test_pull_without_data_says_why(peer: Any, clock: Any, server: Any) -> None:
    await peer.send()
    held = peer.start_pull(offset=1)
    await until(lambda: server.broker.parked.count == 1)
    clock.advance(15_000)
    answer = await held
    assert (answer.code, answer.remark, ext(answer)["nextBeginOffset"]) == (19, "OFFSET_OVERFLOW_ONE", "1")
    moved = await peer.start_pull(offset=9)
    assert (moved.code, moved.remark, ext(moved)["nextBeginOffset"]) == (21, "OFFSET_OVERFLOW_BADLY", "1")


@pytest.mark.seed("S002-17")
async def test_held_pulls_go_with_their_connection(
    peer: Any, dial: Any, server: Any, caplog: pytest.LogCaptureFixture
) -> None:
    other = await dial()
    await other.send()
    held = peer.start_pull(offset=1)
    await until(lambda: server.broker.parked.count == 1)
    peer.connection.abort()
    await until(lambda: server.broker.parked.count == 0)
    with pytest.raises(Exception, match="lost"):
        await held
    assert (await other.send()).code == 0
    assert [record for record in caplog.records if record.levelname in ("WARNING", "ERROR")] == []


@pytest.mark.seed("S002-17")
async def test_a_peer_that_goes_in_the_moment_its_pull_is_answered_harms_nobody(
    peer: Any, dial: Any, server: Any, caplog: pytest.LogCaptureFixture
) -> None:
    other = await dial()
    await other.send()
    held, waits = peer.start_pull(offset=1), other.start_pull(offset=1)
    await until(lambda: server.broker.parked.count == 2)
    peer.connection.abort()
    server.broker.store.append(
        message.Record("orders", b"new", "", 0)
    )  # wakes both, before the loss is known
    answer = await waits
    assert (answer.code, b"new" in answer.body) == (0, True)
    with pytest.raises(Exception, match="lost"):
        await held
    assert (await other.send()).code == 0
    assert server.broker.parked.count == 0
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []


async def test_held_pulls_are_answered_when_the_broker_stops(peer: Any, server: Any) -> None:
    await peer.send()
    held = peer.start_pull(offset=1)
    await until(lambda: server.broker.parked.count == 1)
    await server.stop()
    assert (await held).code == 19


# -- offsets, groups, locks ---------------------------------------------------------------------------------


async def test_offsets_over_the_wire(peer: Any) -> None:
    await peer.send()
    name: dict[str, Any] = {"consumer_group": "billing", "topic": "orders", "queue_id": 0}
    unknown = await peer.call(offsets.QueryConsumerOffset(**name, set_zero_if_not_found=False))
    assert unknown.code == 22
    assert ext(await peer.call(offsets.QueryConsumerOffset(**name))) == {"offset": "0"}
    assert (await peer.call(offsets.UpdateConsumerOffset(**name, commit_offset=1))).code == 26
    await peer.start_pull()
    assert (await peer.call(offsets.UpdateConsumerOffset(**name, commit_offset=1))).code == 0
    assert ext(await peer.call(offsets.QueryConsumerOffset(**name))) == {"offset": "1"}
    assert ext(await peer.call(offsets.GetMaxOffset(topic="orders", queue_id=0))) == {"offset": "1"}
    assert ext(await peer.call(offsets.GetMinOffset(topic="orders", queue_id=0))) == {"offset": "0"}
    assert ext(await peer.call(offsets.SearchOffset(topic="orders", queue_id=0, timestamp=0))) == {
        "offset": "0"
    }
    assert "timestamp" in ext(await peer.call(offsets.EarliestStoreTime(topic="orders", queue_id=0)))
    assert b'"orders@billing":{0:1}' in (await peer.call(offsets.AllConsumerOffsets())).body


async def test_reset_over_the_wire(peer: Any) -> None:
    await peer.send()
    await peer.start_pull()
    answer = await peer.call(offsets.ResetOffset(topic="orders", group="billing", timestamp=0))
    assert answer.code == 0
    assert answer.body.startswith(b'{"offsetTable":{{"brokerName":"broker-a","queueId":0,"topic":"orders"}:0')


@pytest.mark.seed("S003-14", "S004-80")
async def test_heartbeats_make_a_group_whose_members_are_told(peer: Any, dial: Any, server: Any) -> None:
    def beat(client: str) -> bytes:
        subscription = bodies.SubscriptionData(topic="orders", sub_version=1)
        data = bodies.ConsumerData(group_name="billing", subscription_data_set=[subscription])
        return bodies.encode(bodies.Heartbeat(client_id=client, consumer_data_set=[data]))

    missing = await peer.call(consume.ConsumerList(consumer_group="billing"))
    assert missing.code == 1
    answer = await peer.call(consume.SendHeartbeat(), beat("one"))
    assert ext(answer) == {"IS_SUPPORT_HEART_BEAT_V2": "true", "IS_SUB_CHANGE": "false"}
    assert answer.version == 479
    other = await dial()
    await other.call(consume.SendHeartbeat(), beat("two"), language="GO", version=317)
    listed = await peer.call(consume.ConsumerList(consumer_group="billing"))
    assert json.loads(listed.body) == {"consumerIdList": ["one", "two"]}
    await until(lambda: len(peer.asked) == 2)
    peer.asked.clear()
    other.connection.abort()
    await until(lambda: bool(peer.asked))
    assert [(c.code, ext(c)) for c in peer.asked] == [(40, {"consumerGroup": "billing"})]
    member = server.broker.clients.find_client("one")
    assert member.language == "PYTHON"
    await peer.call(consume.Unregister(client_id="one", consumer_group="billing"))
    assert server.broker.clients.group("billing") is None


async def test_subscription_is_checked_before_it_is_used(peer: Any) -> None:
    def check(expression: str) -> bytes:
        data = bodies.SubscriptionData(topic="orders", expression_type="SQL92", sub_string=expression)
        return bodies.encode(bodies.CheckClient(client_id="c", group="g", subscription_data=data))

    assert (await peer.call(consume.CheckClientConfig(), check("a = 1"))).code == 0
    assert (await peer.call(consume.CheckClientConfig(), check("a ="))).code == 23


@pytest.mark.seed("S004-11")
async def test_queues_are_locked_and_unlocked(peer: Any) -> None:
    def lock(client: str) -> bytes:
        queues = [bodies.MessageQueue("broker-a", number, "orders") for number in (1, 0)]
        return bodies.encode(bodies.LockBatch(client_id=client, consumer_group="g", mq_set=queues))

    held = await peer.call(consume.LockQueues(), lock("one"))
    assert [queue["queueId"] for queue in json.loads(held.body)["lockOKMQSet"]] == [0, 1]
    refused = await peer.call(consume.LockQueues(), lock("two"))
    assert json.loads(refused.body) == {"lockOKMQSet": []}
    assert (await peer.call(consume.UnlockQueues(), lock("one"))).code == 0
    taken = await peer.call(consume.LockQueues(), lock("two"))
    assert len(json.loads(taken.body)["lockOKMQSet"]) == 2


async def test_send_back_over_the_wire(peer: Any, server: Any) -> None:
    sent = await peer.send()
    _, where = message.parse_offset_message_id(ext(sent)["msgId"])
    answer = await peer.call(
        produce.SendBack(offset=where, group="billing", delay_level=-1, max_reconsume_times=16)
    )
    assert (answer.code, ext(answer)) == (0, {})
    assert server.broker.store.max_offset("%DLQ%billing", 0) == 1
    missing = await peer.call(produce.SendBack(offset=10**9, group="billing"))
    assert missing.code == 1


@pytest.mark.parametrize(
    ("header", "fields"),
    [
        (produce.SendMessage, b'"topic":"orders","queueId":"0","batch"'),
        (produce.SendMessageV2, b'"a":"p","b":"orders","c":"TBW102","d":"4","e":"0","m"'),
    ],
)
async def test_batch_that_the_cpp_client_marks_with_one_is_stored_whole(
    peer: Any, server: Any, header: Any, fields: bytes
) -> None:
    body = batch.encode([BatchItem(0, b"one"), BatchItem(0, b"two")])
    for value, stored in ((b'"1"', 1), (b'"true"', 3), (b"true", 5)):
        raw = msgspec.Raw(b"{" + fields + b":" + value + b"}")
        answer = await peer.call(header(topic="orders"), body, ext=raw)
        assert answer.code == 0
        assert server.broker.store.max_offset("orders", 0) == stored


@pytest.mark.seed("S002-35")
async def test_held_request_that_yields_nothing_writes_nothing(
    peer: Any, server: Any, monkeypatch: Any
) -> None:
    async def nothing() -> None:
        return None

    path = server._listeners[0]._handler.__self__
    monkeypatch.setitem(path._open, 11, Route(consume.PullMessage, lambda request, header, broker: nothing()))
    held = peer.start_pull()
    assert (await peer.send()).code == 0
    assert not held.done()
    held.cancel()


async def test_refusal_of_a_held_request_is_answered(peer: Any, server: Any, monkeypatch: Any) -> None:
    from aerobee.errors import NoPermission

    async def refuse() -> None:
        raise NoPermission("changed while it waited")

    path = server._listeners[0]._handler.__self__
    monkeypatch.setitem(path._open, 11, Route(consume.PullMessage, lambda request, header, broker: refuse()))
    answer = await peer.start_pull()
    assert (answer.code, answer.remark) == (16, "changed while it waited")


@pytest.mark.parametrize("serialize", [0, 1])
async def test_a_bulk_reader_may_ask_for_units_and_for_the_log(peer: Any, serialize: int) -> None:
    for number in range(3):
        await peer.send(body=b"x" * number * 1000 + b"end")
    header = consume.ReadUnits(topic="orders", queue_id=0, offset=1, count=99)
    answer = await peer.call(header, serialize=serialize)
    units = [*struct.iter_unpack(">qiq", answer.body)]
    assert (len(units), ext(answer)) == (2, {"offset": "1"})
    position, size = units[0][0], units[0][1] + units[1][1]
    log = await peer.call(consume.ReadLog(position=position, size=size), serialize=serialize)
    assert [len(record.body) for record in message.decode_all(log.body)] == [1003, 2003]
    assert ext(log) == {"minPosition": "0", "maxPosition": str(position + size)}
    assert log.serialize == serialize
    gone = await peer.call(consume.ReadUnits(topic="nothing", queue_id=0, offset=0, count=1))
    assert gone.code == 17
