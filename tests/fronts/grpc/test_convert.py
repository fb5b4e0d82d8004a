# SPDX-License-Identifier: Apache-2.0
"""A message of the API and the record that is stored: every field, both ways."""

from __future__ import annotations

import gzip
import hashlib
from typing import Any

import pytest

from aerobee.fronts.grpc import convert
from aerobee.fronts.grpc.generated import messaging_pb2 as pb
from aerobee.fronts.grpc.status import Refused
from aerobee.protocol import properties as props
from aerobee.protocol.compression import decompress
from aerobee.protocol.message import Record, pack_host

NOW = 1_700_000_000_000
HOST = pack_host("10.0.0.1", 5_000)
LAST = 253_402_300_799_999


def sent(**system: Any) -> Any:
    made = pb.Message(body=b"body", user_properties={"colour": "red", "empty": ""})
    made.system_properties.message_id = "m1"
    for name, value in system.items():
        if name == "keys":
            made.system_properties.keys.extend(value)
        elif name in ("delivery_timestamp", "born_timestamp"):
            getattr(made.system_properties, name).FromMilliseconds(value)
        elif name == "recovery":
            made.system_properties.orphaned_transaction_recovery_duration.seconds = value
        else:
            setattr(made.system_properties, name, value)
    return made


PLAIN = {"colour": "red", "UNIQ_KEY": "m1", "WAIT": "true"}


@pytest.mark.parametrize(
    ("system", "added"),
    [
        ({}, {}),
        ({"tag": "A"}, {"TAGS": "A"}),
        ({"tag": ""}, {}),
        ({"keys": ["k1", "k2"]}, {"KEYS": "k1 k2"}),
        ({"message_group": "g"}, {"__SHARDINGKEY": "g"}),
        ({"delivery_timestamp": NOW + 5}, {"TIMER_DELIVER_MS": str(NOW + 5)}),
        ({"trace_context": "00-ab"}, {"TRACE_CONTEXT": "00-ab"}),
        ({"trace_context": ""}, {}),
        ({"message_type": pb.TRANSACTION}, {"TRAN_MSG": "true", "PGROUP": "orders"}),
        (
            {"message_type": pb.TRANSACTION, "recovery": 1},
            {"TRAN_MSG": "true", "PGROUP": "orders", "CHECK_IMMUNITY_TIME_IN_SECONDS": "1"},
        ),
        ({"message_type": pb.NORMAL, "recovery": 1}, {}),
    ],
)
def test_what_is_stored_of_a_message(system: dict[str, Any], added: dict[str, str]) -> None:
    record = convert.to_record(sent(**system), "orders", HOST, NOW)
    assert record.properties == PLAIN | added
    assert (record.topic, record.body, record.queue_id, record.sys_flag) == ("orders", b"body", -1, 0)
    assert (record.born_timestamp, record.born_host) == (NOW, HOST)


def test_a_property_without_a_value_is_left_out() -> None:
    """Remoting clients could not read it back."""
    made = sent()
    made.user_properties["empty"] = ""
    assert convert.to_record(made, "orders", HOST, NOW).properties == PLAIN


def test_a_message_says_itself_when_it_was_born() -> None:
    assert convert.to_record(sent(born_timestamp=77), "orders", HOST, NOW).born_timestamp == 77


def test_gzip_is_stored_so_that_every_client_can_read_it() -> None:
    made = sent(body_encoding=pb.GZIP)
    made.body = gzip.compress(b"plain" * 100)
    record = convert.to_record(made, "orders", HOST, NOW)
    assert record.sys_flag == 0x301
    assert record.body[:1] == b"\x78"  # zlib's
    assert decompress(record.body, record.sys_flag) == b"plain" * 100
    made.body = b"not gzip"
    with pytest.raises(Refused) as refused:
        convert.to_record(made, "orders", HOST, NOW)
    assert refused.value.code == pb.MESSAGE_CORRUPTED


def test_what_gzip_becomes_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(convert, "MAX_BODY", 1_000)
    made = sent(body_encoding=pb.GZIP)
    made.body = gzip.compress(bytes(4_000))
    assert decompress(convert.to_record(made, "orders", HOST, NOW).body, 0x301) == bytes(4_000)
    made.body = gzip.compress(bytes(4_001))
    with pytest.raises(Refused) as refused:
        convert.to_record(made, "orders", HOST, NOW)
    assert refused.value.code == pb.MESSAGE_CORRUPTED


@pytest.mark.parametrize(
    ("system", "kind"),
    [
        ({}, pb.NORMAL),
        ({"message_type": pb.FIFO}, pb.NORMAL),
        ({"message_group": "g"}, pb.FIFO),
        ({"message_group": "g", "delivery_timestamp": NOW}, pb.DELAY),
        ({"message_type": pb.TRANSACTION, "message_group": "g"}, pb.TRANSACTION),
    ],
)
def test_the_type_of_a_message_is_what_it_carries(system: dict[str, Any], kind: int) -> None:
    assert convert.message_type(sent(**system).system_properties) == kind


@pytest.mark.parametrize(
    ("properties", "kind"),
    [
        ({}, pb.NORMAL),
        ({"TRAN_MSG": "true", "DELAY": "1"}, pb.TRANSACTION),
        ({"TRAN_MSG": "false"}, pb.NORMAL),
        ({"DELAY": "1"}, pb.DELAY),
        ({"TIMER_DELIVER_MS": "1", "__SHARDINGKEY": "g"}, pb.DELAY),
        ({"TIMER_DELAY_SEC": "1"}, pb.DELAY),
        ({"__SHARDINGKEY": "g"}, pb.FIFO),
    ],
)
def test_the_type_of_a_record_is_what_it_carries(properties: dict[str, str], kind: int) -> None:
    assert convert.type_of(properties) == kind


def stored(properties: dict[str, str], topic: str = "orders", **more: Any) -> Record:
    fields: dict[str, Any] = {
        "queue_offset": 7,
        "physical_offset": 1_000,
        "born_timestamp": NOW,
        "born_host": HOST,
        "store_timestamp": NOW + 1,
        "store_host": pack_host("10.0.0.2", 10_911),
    }
    return Record(topic, b"body", props.render(properties), 3, **fields | more)


def test_everything_that_a_consumer_is_told() -> None:
    properties = {
        "colour": "red",
        "TAGS": "A",
        "KEYS": "k1 k2",
        "UNIQ_KEY": "m1",
        "WAIT": "true",
        "__SHARDINGKEY": "g",
        "__private": "x",
        "TIMER_DELIVER_MS": "12345",
        "TRACE_CONTEXT": "00-ab",
        "CHECK_IMMUNITY_TIME_IN_SECONDS": "5",
        "INNER_MULTI_DISPATCH": "x",
    }
    got = convert.from_record(stored(properties), "shown", "handle", 2)
    expected = pb.Message(body=b"body", user_properties={"colour": "red"})
    expected.topic.name = "shown"
    system = expected.system_properties
    system.tag, system.message_id, system.message_group = "A", "m1", "g"
    system.keys.extend(["k1", "k2"])
    system.message_type = pb.DELAY
    system.born_timestamp.FromMilliseconds(NOW)
    system.store_timestamp.FromMilliseconds(NOW + 1)
    system.delivery_timestamp.FromMilliseconds(12_345)
    system.born_host, system.store_host = "10.0.0.1:5000", "10.0.0.2:10911"
    system.queue_id, system.queue_offset = 3, 7
    system.trace_context = "00-ab"
    system.body_digest.type = pb.MD5
    system.body_digest.checksum = hashlib.md5(b"body").hexdigest().upper()
    system.body_encoding = pb.IDENTITY
    system.delivery_attempt = 2
    system.receipt_handle = "handle"
    assert got == expected


def test_what_a_plain_record_does_not_have_is_not_told() -> None:
    system = convert.from_record(stored({}), "orders", None, 1).system_properties
    told = {field.name for field, _ in system.ListFields()}
    assert told == {
        "message_id",
        "body_digest",
        "body_encoding",
        "message_type",
        "born_timestamp",
        "born_host",
        "store_timestamp",
        "store_host",
        "queue_id",
        "queue_offset",
        "delivery_attempt",
    }
    assert system.message_id == stored({}).offset_id


@pytest.mark.parametrize(
    ("born", "told"), [(-5, 0), (0, 0), (NOW, NOW), (LAST, LAST), (LAST + 1, LAST), (2**62, LAST)]
)
def test_a_time_that_cannot_be_told_is_the_nearest_that_can(born: int, told: int) -> None:
    system = convert.from_record(stored({}, born_timestamp=born), "orders", None, 1).system_properties
    assert system.born_timestamp.ToMilliseconds() == told


@pytest.mark.parametrize(
    ("due", "told"), [("0", 0), ("12", 12), ("soon", 0), (str(LAST), LAST), (str(LAST + 1), 0), ("-1", 0)]
)
def test_a_delivery_time_that_is_none_is_the_epoch(due: str, told: int) -> None:
    system = convert.from_record(stored({"TIMER_DELIVER_MS": due}), "orders", None, 1).system_properties
    assert system.HasField("delivery_timestamp")
    assert system.delivery_timestamp.ToMilliseconds() == told


@pytest.mark.parametrize(
    ("properties", "topic", "origin"),
    [
        ({"DLQ_ORIGIN_TOPIC": "t", "DLQ_ORIGIN_MESSAGE_ID": "m"}, "orders", ("t", "m")),
        ({"RETRY_TOPIC": "t", "ORIGIN_MESSAGE_ID": "m"}, "%DLQ%g", ("t", "m")),
        (
            {
                "RETRY_TOPIC": "r",
                "ORIGIN_MESSAGE_ID": "o",
                "DLQ_ORIGIN_TOPIC": "t",
                "DLQ_ORIGIN_MESSAGE_ID": "m",
            },
            "%DLQ%g",
            ("t", "m"),
        ),
        ({}, "%DLQ%g", ("", "")),
    ],
)
def test_a_dead_letter_says_where_it_comes_from(
    properties: dict[str, str], topic: str, origin: tuple[str, str]
) -> None:
    system = convert.from_record(stored(properties, topic), "orders", None, 1).system_properties
    assert system.HasField("dead_letter_queue")
    assert (system.dead_letter_queue.topic, system.dead_letter_queue.message_id) == origin


def test_a_body_that_says_it_is_compressed_and_is_not_is_given_as_it_is() -> None:
    assert convert.from_record(stored({}, sys_flag=0x301), "orders", None, 1).body == b"body"
