# SPDX-License-Identifier: Apache-2.0
"""What the broker asks of clients: replies to take, questions of operators to answer; and recalls."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

import pytest

from aerobee.broker.operations.admin import ask_client
from aerobee.broker.operations.admin.settings import change_settings
from aerobee.broker.operations.recall import Recall, kept_elsewhere, recall
from aerobee.broker.operations.reply import reply
from aerobee.broker.operations.send import PlainOrigin
from aerobee.broker.state.routes import Host
from aerobee.errors import (
    ConsumeTimeout,
    IllegalOperation,
    NetworkError,
    NoPermission,
    RequestTimeout,
    SystemFailure,
    TopicNotFound,
    UnknownResponse,
)
from aerobee.protocol import bodies, message, names
from aerobee.protocol.bodies import ConsumerData, Heartbeat, MessageQueue, ProducerData, SubscriptionData
from aerobee.protocol.codes import RequestCode
from aerobee.protocol.command import Command
from aerobee.protocol.headers.consume import ConsumeDirectly
from aerobee.protocol.headers.groups import RunningInfo
from aerobee.protocol.headers.produce import PushReply
from aerobee.protocol.message import Record
from aerobee.protocol.recall_handle import parse_handle, recall_handle

if TYPE_CHECKING:
    from collections.abc import Callable


class Link:
    """A client that answers what the test says."""

    remote_text, is_open = "10.0.0.9:50001", True

    def __init__(self, answer: Command | Exception | None = None, version: int = 479) -> None:
        self.attributes: dict[str, Any] = {"language": "JAVA", "version": version}
        self.asked: list[tuple[Command, int]] = []
        self.answer = answer or Command(0)

    async def call(self, command: Command, timeout_ms: int = 3000) -> Command:
        self.asked.append((command, timeout_ms))
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    def send(self, command: Command) -> None: ...


def connect(bench: Any, link: Link, client_id: str = "c1") -> Link:
    data = ConsumerData(group_name="billing", subscription_data_set=[SubscriptionData(topic="orders")])
    beat = Heartbeat(
        client_id=client_id, consumer_data_set=[data], producer_data_set=[ProducerData(group_name="shop")]
    )
    bench.broker.clients.heartbeat(link, beat, bench.clock.now())
    return link


async def test_a_client_whose_connection_is_closing_is_not_connected(bench: Any) -> None:
    link = connect(bench, Link())
    link.is_open = False
    with pytest.raises(SystemFailure, match="is not connected to this broker"):
        await reply(reply_record(), PlainOrigin("responders"), bench.broker)
    assert not link.asked


# -- request and reply ---------------------------------------------------------------------------------------

REPLY_TOPIC = "DefaultCluster_REPLY_TOPIC"


def reply_record(client_id: str | None = "c1") -> Record:
    named = {"MSG_TYPE": "reply", "CORRELATION_ID": "77", "TTL": "3000"}
    if client_id:
        named["REPLY_TO_CLIENT"] = client_id
    return Record(
        REPLY_TOPIC, b"answer", "".join(f"{k}\x01{v}\x02" for k, v in named.items()), 0, born_timestamp=5
    )


async def test_a_reply_is_pushed_to_who_asked_and_stored(bench: Any) -> None:
    link = connect(bench, Link())
    await reply(reply_record(), PlainOrigin("responders"), bench.broker)
    ((command, timeout_ms),) = link.asked
    assert (command.code, timeout_ms) == (RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, 10_000)
    header = command.fields(PushReply)
    assert (header.topic, header.producer_group, header.born_timestamp) == (REPLY_TOPIC, "responders", 5)
    assert header.store_timestamp == bench.clock.now()
    assert "CORRELATION_ID\x0177\x02" in (header.properties or "")
    assert f"PUSH_REPLY_TIME\x01{bench.clock.now()}\x02" in (header.properties or "")
    assert header.store_host == "127.0.0.1:0"
    assert command.body == b"answer"
    assert [record.body for record in bench.records(REPLY_TOPIC)] == [b"answer"]


@pytest.mark.parametrize(
    ("client_id", "answer", "remark"),
    [
        (None, None, "no REPLY_TO_CLIENT"),
        ("gone", None, "not connected"),
        ("c1", NetworkError("lost"), "did not reach"),
        ("c1", RequestTimeout("late"), "did not reach"),
        ("c1", Command(1, remark="no such request"), "refused the reply: no such request"),
    ],
)
async def test_a_reply_nobody_takes_is_an_error_to_its_sender(
    bench: Any, client_id: str | None, answer: Any, remark: str
) -> None:
    connect(bench, Link(answer))
    with pytest.raises(SystemFailure, match=remark):
        await reply(reply_record(client_id), PlainOrigin(), bench.broker)
    assert len(bench.records(REPLY_TOPIC)) == 1


# -- questions of operators ----------------------------------------------------------------------------------


async def test_running_info_is_asked_of_the_client(bench: Any) -> None:
    link = connect(bench, Link(Command(0, body=b'{"properties":{}}')))
    answer = await ask_client.running_info("billing", "c1", bench.broker, jstack=True)
    assert answer == b'{"properties":{}}'
    ((command, timeout_ms),) = link.asked
    header = command.fields(RunningInfo)
    assert (header.consumer_group, header.client_id, header.jstack_enable, timeout_ms) == (
        "billing",
        "c1",
        True,
        10_000,
    )


async def test_a_message_is_consumed_directly(bench: Any) -> None:
    sent = bench.send(body=b"paid")
    link = connect(bench, Link(Command(0, body=b'{"consumeResult":"CR_SUCCESS"}')))
    message_id = message.offset_message_id(bench.broker.store.store_host, sent.physical_offset)
    await ask_client.consume_directly("billing", "c1", message_id, "orders", bench.broker)
    ((command, _),) = link.asked
    header = command.fields(ConsumeDirectly)
    assert (header.broker_name, header.msg_id, header.topic) == ("broker-a", message_id, "orders")
    assert message.decode(command.body).body == b"paid"
    for wrong in ("zz", message.offset_message_id(b"\x7f\0\0\1\0\0\0\0", 10**9)):
        with pytest.raises(SystemFailure):
            await ask_client.consume_directly("billing", "c1", wrong, "orders", bench.broker)


async def test_a_client_that_is_silent_absent_or_too_old(bench: Any) -> None:
    connect(bench, Link(RequestTimeout("no answer within 10000 ms")))
    with pytest.raises(ConsumeTimeout, match="no answer"):
        await ask_client.running_info("billing", "c1", bench.broker, jstack=False)
    with pytest.raises(SystemFailure, match="not online"):
        await ask_client.running_info("billing", "other", bench.broker, jstack=False)
    connect(bench, Link(version=10), "old")
    with pytest.raises(SystemFailure, match="too old"):
        await ask_client.running_info("billing", "old", bench.broker, jstack=False)
    connect(bench, Link(NetworkError("lost")), "lost")
    with pytest.raises(SystemFailure, match="could not be asked"):
        await ask_client.running_info("billing", "lost", bench.broker, jstack=False)
    connect(bench, Link(Command(77, remark="odd")), "odd")
    with pytest.raises(UnknownResponse, match="odd"):
        await ask_client.running_info("billing", "odd", bench.broker, jstack=False)


@pytest.mark.parametrize(
    ("version", "runs", "status"), [(27, False, False), (28, False, True), (62, True, True)]
)
async def test_a_client_is_asked_what_it_understands_from_its_version_on(
    bench: Any, version: int, runs: bool, status: bool
) -> None:
    link = connect(bench, Link(Command(0, body=b"{}"), version))
    for asked, understood in (
        (ask_client.running_info("billing", "c1", bench.broker, jstack=False), runs),
        (ask_client.consumer_status("billing", "orders", "c1", bench.broker), status),
    ):
        if understood:
            await asked
        else:
            with pytest.raises(SystemFailure, match=f"'c1' is too old \\(version {version}\\) to be asked"):
                await asked
    assert [timeout_ms for _, timeout_ms in link.asked] == [10_000] * runs + [5_000] * status


async def test_the_status_of_a_group_is_asked_of_all_its_clients(bench: Any) -> None:
    with pytest.raises(SystemFailure, match="no such consumer"):
        await ask_client.consumer_status("billing", "orders", None, bench.broker)
    queue = MessageQueue("broker-a", 0, "orders")
    for client_id, offset in (("c1", 3), ("c2", 5)):
        body = bodies.encode(bodies.QueueOffsets(message_queue_table={queue: offset}))
        connect(bench, Link(Command(0, body=body)), client_id)
    found = await ask_client.consumer_status("billing", "orders", None, bench.broker)
    assert found.consumer_table == {"c1": {queue: 3}, "c2": {queue: 5}}
    found = await ask_client.consumer_status("billing", "orders", "c2", bench.broker)
    assert list(found.consumer_table) == ["c2"]


# -- recall --------------------------------------------------------------------------------------------------


def delayed(bench: Any) -> tuple[str, Any]:
    due = bench.clock.now() + 60_500
    sent = bench.send(properties={"TIMER_DELIVER_MS": str(due)})
    return recall_handle("orders", "broker-a", sent.timer_out, sent.unique_key), sent


def test_a_handle_names_topic_broker_time_and_message() -> None:
    handle = recall_handle("orders", "broker-a", 1_700_000_060_000, "AB12")
    assert base64.urlsafe_b64decode(handle) == b"v1 orders broker-a 1700000060001 AB12"
    assert parse_handle(handle) == ("orders", "broker-a", 1_700_000_060_001, "AB12")


def test_a_recall_lands_in_the_slot_of_its_message(bench: Any) -> None:
    handle, sent = delayed(bench)
    unique_key, _ = recall(Recall("orders", handle, "shop"), bench.broker)
    assert unique_key == sent.unique_key
    original, taken_back = bench.records(names.TIMER_TOPIC)
    assert taken_back.properties["TIMER_OUT_MS"] == original.properties["TIMER_OUT_MS"]
    assert taken_back.properties["TIMER_DEL_UNIQKEY"] == f"orders+{unique_key}"
    assert taken_back.properties["REAL_TOPIC"] == "orders"


def test_a_recall_says_when_and_by_whom_it_was_made(bench: Any) -> None:
    handle, _ = delayed(bench)
    bench.clock.advance(2_000)
    recall(Recall("orders", handle, "shop", b"\x0a\0\0\x09\0\0\x10\0"), bench.broker)
    taken_back = bench.records(names.TIMER_TOPIC)[-1]
    assert taken_back.born_host == b"\x0a\0\0\x09\0\0\x10\0"
    assert taken_back.born_timestamp == bench.clock.wall()
    told = taken_back.properties
    assert (told["BORN_TIMESTAMP"], told["PGROUP"]) == (str(bench.clock.wall()), "shop")


def test_nothing_is_recalled_at_a_broker_that_may_not_be_written(bench: Any) -> None:
    handle, _ = delayed(bench)
    change_settings("brokerPermission=4", bench.broker)
    with pytest.raises(NoPermission, match="may not be written"):
        recall(Recall("orders", handle), bench.broker)
    assert len(bench.records(names.TIMER_TOPIC)) == 1


def test_a_recall_of_what_would_wait_longer_than_any_may_is_refused(bench: Any) -> None:
    bench.send()
    longest = bench.broker.store.config.timer_max_delay_ms
    for ahead, is_refused in ((longest - 2, False), (longest - 1, True), (longest, True)):
        handle = recall_handle("orders", "broker-a", bench.clock.wall() + ahead, "k")
        try:
            recall(Recall("orders", handle), bench.broker)
        except IllegalOperation:
            assert is_refused, ahead
        else:
            assert not is_refused, ahead


@pytest.mark.parametrize("address", ["10.0.0.2:10911", ""])
async def test_a_recall_is_passed_on_to_the_broker_that_keeps_the_message_if_it_can_be_asked(
    bench: Any, monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    far = Host("broker-b", 6, 4, 4, address, "10.0.0.2:8081")
    near = Host("broker-a", 6, 4, 4)

    async def hosts(topic: str, broker: Any) -> list[Host]:
        return [near, far]

    monkeypatch.setattr("aerobee.broker.operations.recall.hosts_of", hosts)
    there = Recall("orders", recall_handle("orders", "broker-b", 1, "k"))
    assert await kept_elsewhere(there, bench.broker) == (far if address else None)
    here = Recall("orders", recall_handle("orders", "broker-a", 1, "k"))
    assert await kept_elsewhere(here, bench.broker) is None
    nowhere = Recall("orders", recall_handle("orders", "broker-c", 1, "k"))
    assert await kept_elsewhere(nowhere, bench.broker) is None


def test_a_recall_can_be_turned_off(make_bench: Callable[..., Any]) -> None:
    bench = make_bench(recall=False)
    with pytest.raises(NoPermission):
        recall(Recall("orders", "x"), bench.broker)


@pytest.mark.parametrize(
    ("topic", "handle", "error"),
    [
        ("nowhere", "x", TopicNotFound),
        ("orders", "no base64!", IllegalOperation),
        ("orders", base64.urlsafe_b64encode(b"v2 orders broker-a 1 k").decode(), IllegalOperation),
        ("orders", base64.urlsafe_b64encode(b"v1 orders broker-a x k").decode(), IllegalOperation),
        ("orders", recall_handle("bills", "broker-a", 1, "k"), IllegalOperation),
        ("orders", recall_handle("orders", "broker-b", 1, "k"), IllegalOperation),
        ("orders", recall_handle("orders", "broker-a", 1, "k"), IllegalOperation),  # long past
        ("orders", recall_handle("orders", "broker-a", 10**15, "k"), IllegalOperation),
    ],
)
def test_a_wrong_recall_is_refused(bench: Any, topic: str, handle: str, error: type[Exception]) -> None:
    bench.send("orders")
    with pytest.raises(error):
        recall(Recall(topic, handle), bench.broker)
