# SPDX-License-Identifier: Apache-2.0
"""No client writes where only the broker does, and nothing the log says leads out of what a client may name."""

from __future__ import annotations

from typing import Any

import pytest

from aerobee.broker.background.schedule import Schedule
from aerobee.broker.background.timers import Timers
from aerobee.broker.delivery.destination import to_half
from aerobee.broker.operations.admin.topics import clean_unused_topics
from aerobee.broker.operations.end_transaction import EndTransaction, end_transaction
from aerobee.broker.operations.recall import Recall, recall
from aerobee.broker.operations.reply import reply
from aerobee.broker.operations.send import PlainOrigin, send_batch
from aerobee.broker.state.half_messages import Outcome
from aerobee.broker.state.topics import Topics
from aerobee.errors import InvalidParameter, NoPermission, SystemFailure
from aerobee.protocol import batch, names
from aerobee.protocol import properties as props
from aerobee.protocol.batch import Batch, BatchItem
from aerobee.protocol.bodies import TopicConfig
from aerobee.protocol.message import Record
from aerobee.protocol.recall_handle import recall_handle

OWN = [
    names.TIMER_TOPIC,
    names.SCHEDULE_TOPIC,
    names.HALF_TOPIC,
    names.OP_TOPIC,
    names.CHECK_MAX_TOPIC,
    names.revive_topic("DefaultCluster"),
    names.revive_topic("elsewhere"),
    names.broker_member_topic("broker-a"),
    "rmq_sys_anything",
]
ESCAPING = ["../../VICTIM", "..", ".", "a/b", "/VICTIM", "", "a\0b", "x" * 300, "%RETRY%../../../VICTIM"]


@pytest.mark.parametrize("topic", OWN)
class TestNoClientWritesTheBrokersOwnTopics:
    @pytest.mark.parametrize("special", [{}, {"KEYS": "k"}, {"DELAY": "1"}, {"TRAN_MSG": "true"}])
    def test_by_a_send_of_any_kind(self, bench: Any, topic: str, special: dict[str, str]) -> None:
        before = bench.broker.store.log_max
        with pytest.raises(NoPermission, match="broker's own"):
            bench.send(topic, properties=special)
        assert bench.broker.store.log_max == before

    def test_by_a_batch(self, bench: Any, topic: str) -> None:
        columns = batch.columns(batch.encode([BatchItem(0, b"one", ""), BatchItem(0, b"two", "")]))
        with pytest.raises(NoPermission, match="broker's own"):
            send_batch(Batch(topic, 0, columns), PlainOrigin(), bench.broker)

    def test_by_a_recall(self, bench: Any, clock: Any, topic: str) -> None:
        bench.broker.topics.ensure(topic)
        handle = recall_handle(topic, "broker-a", clock.now() + 5_000, "key")
        with pytest.raises(NoPermission, match="broker's own"):
            recall(Recall(topic, handle), bench.broker)

    async def test_by_a_reply(self, bench: Any, topic: str) -> None:
        with pytest.raises(NoPermission, match="broker's own"):
            await reply(Record(topic, b"answer"), PlainOrigin(), bench.broker)


@pytest.mark.parametrize(
    "topic", ["RMQ_SYS_TRACE_TOPIC", "rmq_sys_TRACE_DATA_cn-hangzhou", "TBW102", "DefaultCluster"]
)
def test_clients_may_send_traces_and_to_what_is_no_ones(bench: Any, topic: str) -> None:
    bench.send(topic, body=b"fine")
    assert [record.body for record in bench.records(topic)] == [b"fine"]


def test_the_reply_topic_takes_replies_only(bench: Any) -> None:
    with pytest.raises(NoPermission, match="broker's own"):
        bench.send(names.reply_topic("DefaultCluster"))


async def test_a_reply_goes_to_the_reply_topic(bench: Any) -> None:
    topic = names.reply_topic("DefaultCluster")
    with pytest.raises(SystemFailure, match="REPLY_TO_CLIENT"):
        await reply(Record(topic, b"answer"), PlainOrigin(), bench.broker)
    assert [record.body for record in bench.records(topic)] == [b"answer"]


def test_a_producer_cannot_pass_its_half_message_off_as_a_copy_of_another(bench: Any) -> None:
    bench.send(properties={"TRAN_MSG": "true", "PGROUP": "shop"}, body=b"victim")
    forged = {props.TRAN_PREPARED_QUEUE_OFFSET: "0", props.TRANSACTION_CHECK_TIMES: "99"}
    bench.send(properties={"TRAN_MSG": "true", "PGROUP": "evil", **forged})
    stored = bench.records(names.HALF_TOPIC)[1].properties
    assert not forged.keys() & stored.keys()


# -- what the log says -------------------------------------------------------------------------------


def plant(bench: Any, topic: str, queue_id: int = 0, body: bytes = b"bad", **properties: str) -> Record:
    """As another broker, or an older version, may have written it."""
    record = Record(topic, body, props.render(properties), queue_id)
    bench.broker.store.append(record)
    return record


@pytest.mark.parametrize("topic", ESCAPING)
def test_a_waiting_message_cannot_name_a_path(bench: Any, clock: Any, topic: str) -> None:
    victim = bench.directory / "VICTIM"
    victim.mkdir()
    (victim / "precious").touch()
    due = str(clock.now())
    plant(bench, names.TIMER_TOPIC, REAL_TOPIC=topic, REAL_QID="0", TIMER_OUT_MS=due)
    plant(bench, names.SCHEDULE_TOPIC, REAL_TOPIC=topic, REAL_QID="0", DELAY="1")
    timers, schedule = (
        Timers(bench.broker.store, bench.broker.stats, clock),
        Schedule(bench.broker.store, bench.broker.stats),
    )
    clock.advance(10_000)
    for _ in range(5):
        timers.tick(clock.now())
        schedule.tick(clock.now())
    bench.broker.store.flush()
    clean_unused_topics(bench.broker)
    timers.close()
    assert [path.name for path in victim.iterdir()] == ["precious"]
    assert topic not in bench.broker.store.topics()


def test_a_commit_goes_only_where_a_client_may_send(bench: Any) -> None:
    for topic in [*ESCAPING, names.TIMER_TOPIC, names.HALF_TOPIC, names.OP_TOPIC]:
        half = plant(bench, names.HALF_TOPIC, REAL_TOPIC=topic, REAL_QID="0", PGROUP="shop", UNIQ_KEY="k")
        request = EndTransaction("shop", half.queue_offset, half.physical_offset, Outcome.COMMIT)
        with pytest.raises(SystemFailure, match="may not go"):
            end_transaction(request, bench.broker)


@pytest.mark.parametrize(
    "queue_id", ["²", "9" * 5000, "99999999999", "-1", "2147483648", "70000", "1_0", " 1", ""]
)
def test_a_commit_goes_only_to_a_queue_there_can_be(bench: Any, queue_id: str) -> None:
    bench.send()
    half = plant(bench, names.HALF_TOPIC, REAL_TOPIC="orders", REAL_QID=queue_id, PGROUP="shop", UNIQ_KEY="k")
    request = EndTransaction("shop", half.queue_offset, half.physical_offset, Outcome.COMMIT)
    with pytest.raises(SystemFailure, match="may not go"):
        end_transaction(request, bench.broker)


def test_a_topic_of_the_settings_file_with_an_impossible_name_is_left_out(bench: Any) -> None:
    bench.send("orders")
    bench.broker.topics.ensure("XXXVICTIM")
    bench.broker.topics.save()
    path = bench.directory / "store" / "config" / "topics.json"
    text = path.read_text().replace("XXXVICTIM", "../VICTIM")
    bench.restart()
    path.write_text(text)
    topics = Topics(path.parent, bench.clock).all()
    assert "orders" in topics
    assert "../VICTIM" not in topics


def test_no_topic_gets_an_impossible_name(bench: Any) -> None:
    for topic in ESCAPING:
        with pytest.raises(InvalidParameter):
            bench.broker.topics.put(TopicConfig(topic_name=topic))
        with pytest.raises(InvalidParameter):
            bench.send(topic)
    with pytest.raises(InvalidParameter):
        bench.send("%RETRY%group+topic")


def test_half_messages_keep_their_way_through_the_half_topic() -> None:
    record, properties = Record("orders", b"x", queue_id=3), {props.UNIQ_KEY: "k"}
    to_half(record, properties)
    assert (record.topic, properties[props.REAL_TOPIC], properties[props.REAL_QID]) == (
        names.HALF_TOPIC,
        "orders",
        "3",
    )
