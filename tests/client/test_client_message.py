# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from aerobee.client.message import Message, ReceivedMessage
from aerobee.client.options import Options
from aerobee.client.produce.outgoing import check_batch, prepare, prepare_batch, properties_text, split
from aerobee.protocol import batch, compression
from aerobee.protocol import properties as props


def filled(**more: Any) -> Message:
    message = Message("orders", b"{}", **more)
    message.message_id = "ID"
    return message


@pytest.mark.parametrize(
    ("arguments", "error", "named"),
    [
        ({"topic": "no spaces"}, ValueError, "no spaces"),
        ({"topic": ""}, ValueError, "blank"),
        ({"topic": "x" * 128}, ValueError, "128"),
        ({"body": "text"}, TypeError, "str"),
        ({"body": b""}, ValueError, "empty"),
        ({"body": b"x" * (4 * 1024 * 1024 + 1)}, ValueError, "4194305"),
        ({"tags": "a\x01b"}, ValueError, "0x01"),
        ({"tags": 5}, TypeError, "tags is int"),
        ({"keys": "k"}, TypeError, "give a list"),
        ({"keys": ["a b"]}, ValueError, "'a b'"),
        ({"properties": {"TAGS": "x"}}, ValueError, "reserved"),
        ({"properties": {"a": ""}}, ValueError, "blank"),
        ({"properties": {"a": 1}}, TypeError, "text"),
        ({"properties": {"a\x02": "1"}}, ValueError, "0x01 or 0x02"),
        ({"delay_level": 19}, ValueError, "19"),
        ({"delay_level": -1}, ValueError, "-1"),
        ({"delay_ms": -5}, ValueError, "-5"),
        ({"deliver_at": "tomorrow"}, ValueError, "tomorrow"),
        ({"delay_level": 3, "delay_ms": 5}, ValueError, "not several"),
    ],
)
def test_bad_input_is_refused_naming_the_value(
    arguments: dict[str, Any], error: type[Exception], named: str
) -> None:
    with pytest.raises(error, match=named):
        Message(**{"topic": "orders", "body": b"x", **arguments})


def test_properties_carry_everything_the_broker_needs() -> None:
    message = filled(tags="paid", keys=["a", "b"], sharding_key="u7", properties={"x": "1"})
    assert props.parse(properties_text(message)) == {
        "UNIQ_KEY": "ID", "WAIT": "true", "TAGS": "paid", "KEYS": "a b", "__SHARDINGKEY": "u7", "x": "1"
    }  # fmt: skip


def test_delays_travel_as_rocketmq_names_them() -> None:
    assert props.get(properties_text(filled(delay_level=3)), "DELAY") == "3"
    moment = datetime(2027, 1, 1, tzinfo=UTC)
    expected = str(round(moment.timestamp() * 1000))
    assert props.get(properties_text(filled(deliver_at=moment)), "TIMER_DELIVER_MS") == expected
    assert props.get(properties_text(filled(delay_ms=1500)), "TIMER_DELAY_MS") == "1500"


def test_bodies_from_4096_bytes_on_are_compressed() -> None:
    small = prepare(Message("t", b"x" * 4095, message_id="i"), Options(), 0)
    big = prepare(Message("t", b"x" * 4096, message_id="i"), Options(), 0)
    assert (small.sys_flag, len(small.body)) == (0, 4095)
    assert big.sys_flag == 0x301
    assert compression.decompress(big.body, big.sys_flag) == b"x" * 4096
    for kind, flag in (("lz4", 0x101), ("zstd", 0x201), ("none", 0)):
        sending = prepare(Message("t", b"x" * 4096, message_id="i"), Options(compression=kind), 0)
        assert sending.sys_flag == flag
        assert compression.decompress(sending.body, flag) == b"x" * 4096


@pytest.mark.parametrize("topic", ["SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC", "OFFSET_MOVED_EVENT"])
def test_topics_of_the_broker_are_refused(topic: str) -> None:
    with pytest.raises(ValueError, match=topic):
        prepare(Message(topic, b"x"), Options(), 0)


def test_properties_over_the_limit_are_refused() -> None:
    with pytest.raises(ValueError, match="limit 32767"):
        prepare(filled(properties={"x": "y" * 33_000}), Options(), 0)


def test_batches_are_split_at_the_size_limit_in_order() -> None:
    messages = [Message("t", b"x" * 1000, message_id=f"{n:032}") for n in range(10)]
    parts = split(messages, 4 * 1100)
    assert [len(part) for part in parts] == [3, 3, 3, 1] or [len(part) for part in parts] == [4, 4, 2]
    assert [m for part in parts for m in part] == messages
    assert all(len(prepare_batch(part, 0).body) <= 4 * 1100 for part in parts)


def test_a_batch_is_encoded_as_the_broker_reads_it() -> None:
    sending = prepare_batch(
        [Message("t", b"a", tags="A", message_id="1"), Message("t", b"b", message_id="2")], 5
    )
    items = batch.decode(sending.body)
    assert [item.body for item in items] == [b"a", b"b"]
    assert props.get(items[0].properties_text, "TAGS") == "A"
    assert sending.message_id == "1,2"


def test_messages_that_do_not_go_together_are_no_batch() -> None:
    for messages, named in (
        ([], "empty"),
        ([Message("a", b"x"), Message("b", b"x")], "'b'"),
        ([Message("a", b"x", delay_level=1)], "delayed"),
        ([Message("%RETRY%g", b"x")], "retry"),
    ):
        with pytest.raises(ValueError, match=named):
            check_batch(messages)


async def test_only_leased_messages_can_be_acked() -> None:
    with pytest.raises(TypeError, match="SimpleConsumer"):
        await ReceivedMessage("t", b"x").ack()


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"pull_batch": 0}, "pull_batch is 0"),
        ({"pop_invisible_ms": 4_999}, "5000 to 300000"),
        ({"compression": "rar"}, "rar"),
        ({"rebalance": "sometimes"}, "auto, client, broker"),
        ({"access_key": "a"}, "belong together"),
    ],
)
def test_settings_out_of_range_are_refused(wrong: dict[str, Any], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        Options(**wrong)
