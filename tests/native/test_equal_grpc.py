# SPDX-License-Identifier: Apache-2.0
"""What the lane does for the gRPC port, against Python: header blocks, and plain sends and acks."""

from __future__ import annotations

import random
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import hpack
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aerobee import native
from aerobee.broker.broker import assemble
from aerobee.broker.operations.receive import Delivery
from aerobee.clock import ManualClock
from aerobee.errors import ProtocolError
from aerobee.fronts.grpc import convert, limits
from aerobee.fronts.grpc.generated import messaging_pb2 as pb
from aerobee.fronts.grpc.header_reader import header_reader
from aerobee.fronts.grpc.requests import reader
from aerobee.fronts.grpc.service import NAME, Service
from aerobee.fronts.grpc.status import OK
from aerobee.fronts.grpc.telemetry import Peer
from aerobee.protocol import properties as props
from aerobee.protocol.http2.hpack import HeaderBlocks
from aerobee.protocol.message import Record
from aerobee.protocol.receipt import Receipt
from aerobee.settings import BrokerConfig, StoreConfig
from tests.native.bench import SMALL, Bench

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

if native.is_on:
    from aerobee.fronts.grpc import plain_calls, plain_messages
    from aerobee.native import grpc_calls

pytestmark = pytest.mark.skipif(not native.is_on, reason="the lane is not built")

# -- header blocks -----------------------------------------------------------------------------------------

PRINTABLE = st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E), max_size=60)
TEXT = PRINTABLE | st.text(st.characters(max_codepoint=0xFF), max_size=4)
NAME_OF_FIELD = st.sampled_from([":path", "te", "x-mq", "cookie"]) | st.text("abcXYZ-:", max_size=12)
BLOCKS = st.lists(st.lists(st.tuples(NAME_OF_FIELD, TEXT)), max_size=8)


def read(blocks: Any, block: bytes) -> Any:
    try:
        return blocks.read(block)
    except ProtocolError as error:
        return str(error)


@given(BLOCKS, st.booleans(), st.lists(st.sampled_from([0, 64, 300, 4_096])))
def test_blocks_are_read_and_refused_as_python_does(
    blocks: list[list[tuple[str, str]]], packs: bool, sizes: list[int]
) -> None:
    sender, lane, python = hpack.Encoder(), header_reader(1_000), HeaderBlocks(1_000)
    for number, fields in enumerate(blocks):
        if number < len(sizes):
            sender.header_table_size = sizes[number]
        raw = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in fields]
        block = sender.encode(raw, huffman=packs)
        found = read(lane, block)
        assert found == read(python, block)
        if isinstance(found, str):
            return  # and the connection ends


@given(st.lists(st.binary(max_size=40) | st.sampled_from([b"\x40\x01a\x01b", b"\xbe", b"\xbf\x3f\xe1\x1f"])))
def test_garbage_is_read_and_refused_as_python_does(blocks: list[bytes]) -> None:
    lane, python = header_reader(1_000), HeaderBlocks(1_000)
    for block in blocks:
        found = read(lane, block)
        assert found == read(python, block)
        if isinstance(found, str):
            return


# -- requests ----------------------------------------------------------------------------------------------

WORD = st.text("abcXYZ019-_|%. é\x01", max_size=8)
MOMENT = st.builds(
    lambda seconds, nanos: {"seconds": seconds, "nanos": nanos},
    st.sampled_from([0, 1, 1_700_000_000, 253_402_300_799, 253_402_300_800, -1]),
    st.sampled_from([0, 1, 999_999_999, 1_000_000_000, -1]),
)
PLAIN_SYSTEM: dict[str, Any] = {
    "message_id": st.sampled_from(["01AB", "x" * 200]) | WORD,
    "born_host": WORD,
    "queue_id": st.integers(-2, 9),
}
MORE_SYSTEM: dict[str, Any] = {
    "tag": WORD,
    "keys": st.lists(WORD, max_size=3),
    "body_encoding": st.sampled_from([0, 1, 1, 2]),
    "message_type": st.sampled_from([0, 1, 1, 2, 4, 5]),
    "born_timestamp": MOMENT,
    "body_digest": st.just({"type": pb.CRC32, "checksum": "AB12"}),
    "delivery_attempt": st.just(1),
    "message_group": WORD,
    "trace_context": WORD,
    "delivery_timestamp": MOMENT,
    "lite_topic": WORD,
    "priority": st.just(1),
}
MESSAGES = st.builds(
    lambda topic, space, body, user, system: pb.Message(
        topic=pb.Resource(name=topic, resource_namespace=space),
        body=body,
        user_properties=user,
        system_properties=pb.SystemProperties(**system),
    ),
    st.sampled_from(["orders", "orders", "typed", "nowhere", "é", "SCHEDULE_TOPIC_XXXX"]),
    st.sampled_from(["", "", "", "space"]),
    st.sampled_from([b"x", b"body", b"", b"y" * 300, b"z" * 9_000]),
    st.sampled_from([{}, {}, {}, {"a": "b"}]),
    st.fixed_dictionaries(PLAIN_SYSTEM, optional=MORE_SYSTEM),
)
SENDS = st.lists(MESSAGES, min_size=1, max_size=2).map(
    lambda messages: pb.SendMessageRequest(messages=messages).SerializeToString()
)
PLAIN_SEND = pb.SendMessageRequest(
    messages=[
        pb.Message(
            topic=pb.Resource(name="orders"),
            body=b"body",
            system_properties=pb.SystemProperties(
                tag="paid", keys=["a", "b"], message_id="01AB", born_host="here", message_type=pb.NORMAL
            ),
        )
    ]
).SerializeToString()


def held_against_python(data: bytes) -> None:
    """What the lane understands is what protobuf reads, and nothing that would be refused."""
    found = grpc_calls.sending(data)
    if found is None:
        return
    topic, body, message_id, tag, keys, born = found
    (message,) = reader(pb.SendMessageRequest)(data).messages
    limits.check_message(message, len(body))
    limits.check_no_lite_topic(message.system_properties)
    record = convert.to_record(message, limits.resolved(message.topic), b"", 7)
    assert (topic, body, 7 if born < 0 else born) == (record.topic, record.body, record.born_timestamp)
    assert record.sys_flag == 0
    assert record.properties == {
        props.UNIQ_KEY: message_id,
        props.WAIT: "true",
        **({props.TAGS: tag} if tag else {}),
        **({props.KEYS: keys} if keys else {}),
    }


@given(SENDS)
def test_a_send_that_the_lane_understands_is_the_one_that_protobuf_reads(data: bytes) -> None:
    held_against_python(data)


@given(st.integers(0, len(PLAIN_SEND) - 1), st.integers(0, 255), st.integers(0, len(PLAIN_SEND)))
def test_bytes_that_are_spoilt_are_not_understood_otherwise_than_by_protobuf(
    place: int, byte: int, cut: int
) -> None:
    held_against_python(PLAIN_SEND[:place] + bytes((byte,)) + PLAIN_SEND[place + 1 :])
    held_against_python(PLAIN_SEND[:cut])
    held_against_python(PLAIN_SEND[:cut] + bytes((byte,)) + PLAIN_SEND[cut:])


def test_a_plain_send_is_understood() -> None:
    assert grpc_calls.sending(PLAIN_SEND) == ("orders", b"body", "01AB", "paid", "a b", -1)


@given(
    st.text("0123456789ABCDEF", min_size=1, max_size=255),
    st.integers(0, (1 << 63) - 1) | st.sampled_from([0, 127, 128]),
)
def test_the_answer_to_a_send_is_the_one_protobuf_writes(message_id: str, offset: int) -> None:
    entry = pb.SendResultEntry(status=OK, message_id=message_id, offset=offset)
    expected = pb.SendMessageResponse(status=OK, entries=[entry]).SerializeToString()
    assert grpc_calls.sent(OK.SerializeToString(), message_id, offset) == expected


@given(st.text("0AB", min_size=1, max_size=255), st.text("0 1-b", min_size=1, max_size=300))
def test_the_answer_to_an_ack_is_the_one_protobuf_writes(message_id: str, receipt: str) -> None:
    entry = pb.AckMessageResultEntry(status=OK, message_id=message_id, receipt_handle=receipt)
    expected = pb.AckMessageResponse(status=OK, entries=[entry]).SerializeToString()
    assert grpc_calls.acked(OK.SerializeToString(), message_id, receipt) == expected


@given(WORD, WORD, st.lists(st.tuples(WORD, WORD), max_size=2), st.sampled_from(["", "", "space"]))
def test_an_ack_that_the_lane_understands_is_the_one_that_protobuf_reads(
    group: str, topic: str, entries: list[tuple[str, str]], space: str
) -> None:
    made = [pb.AckMessageEntry(message_id=each[0], receipt_handle=each[1]) for each in entries]
    request = pb.AckMessageRequest(entries=made)
    request.group.name, request.topic.name, request.topic.resource_namespace = group, topic, space
    found = grpc_calls.acking(request.SerializeToString())
    if found is not None:
        assert found == (group, topic, *entries[0])
        assert len(entries) == 1
        assert not space


# -- the whole way -------------------------------------------------------------------------------------------


class Answered:
    """An exchange that keeps its answer."""

    remaining_ms = 3_000

    def __init__(self, fields: dict[str, str], save: Callable[[], object]) -> None:
        self.fields = fields
        self._save = save
        self.connection = self
        self.remote, self.remote_text = ("127.0.0.1", 40_000), "127.0.0.1:40000"
        self.said = b""

    def answer(self, message: bytes) -> None:
        self.said = message

    def hold(self, work: Any) -> None:
        """What waits for its topic's settings to be saved."""
        self._save()
        with pytest.raises(StopIteration):
            work.send(None)


@contextmanager
def python_only() -> Iterator[None]:
    native.is_on = False
    try:
        yield
    finally:
        native.is_on = True


class Side:
    def __init__(self, data: Path) -> None:
        self.broker = assemble(BrokerConfig(), StoreConfig(max_message_bytes=8_000), data, ManualClock())
        self.broker.topics.ensure("orders", 4)
        self.broker.topics.ensure("typed", 1).attributes["message.type"] = "FIFO"
        self.broker.topics.save()
        self.service = Service(self.broker)

    @property
    def end(self) -> int:
        """Of the log."""
        return self.broker.store._log.end

    def call(self, name: str, data: bytes, fields: dict[str, str]) -> bytes:
        exchange: Any = Answered(fields, self.broker.topics.save)
        random.seed(1)
        self.service.method(f"/{NAME}/{name}").heard(exchange, data)
        return exchange.said


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Side, Side]]:
    lane = Side(tmp_path_factory.mktemp("lane"))
    with python_only():
        python = Side(tmp_path_factory.mktemp("python"))
    yield lane, python
    for side in (lane, python):
        side.broker.store.close()


@given(SENDS | st.just(PLAIN_SEND), st.sampled_from([{"x-mq-client-id": "c"}] * 4 + [{}]))
def test_sends_are_stored_and_answered_as_python_does(
    sides: tuple[Side, Side], data: bytes, fields: dict[str, str]
) -> None:
    lane, python = sides
    before = [side.end for side in sides]
    for name in ("SendMessage", "AckMessage"):  # what is no ack is told so by both
        assert lane.call(name, data, fields) == python.call(name, data, fields)
    assert lane.end == python.end
    if lane.end > before[0]:
        assert lane.broker.store.raw_at(before[0]) == python.broker.store.raw_at(before[1])


@pytest.mark.parametrize("handle", ["0 1 2", "no receipt", "0 1 60000 0 0 broker-a 0 0", "0 1 1 0 0 b 9 9"])
def test_acks_are_refused_as_python_does(sides: tuple[Side, Side], handle: str) -> None:
    request = pb.AckMessageRequest(entries=[pb.AckMessageEntry(message_id="01", receipt_handle=handle)])
    request.group.name, request.topic.name = "billing", "orders"
    data, fields = request.SerializeToString(), {"x-mq-client-id": "c"}
    assert grpc_calls.acking(data) is not None
    found = sides[0].call("AckMessage", data, fields)
    assert found == sides[1].call("AckMessage", data, fields)
    assert pb.AckMessageResponse.FromString(found).status.code != pb.OK


@pytest.mark.parametrize(
    ("group", "topic", "code"),
    [("no group!", "orders", pb.ILLEGAL_CONSUMER_GROUP), ("billing", "no topic!", pb.ILLEGAL_TOPIC)],
)
def test_names_that_nothing_can_have_are_refused_as_python_does(
    sides: tuple[Side, Side], group: str, topic: str, code: int
) -> None:
    entry = pb.AckMessageEntry(message_id="01", receipt_handle="0 1 60000 0 0 broker-a 0 0")
    request = pb.AckMessageRequest(entries=[entry])
    request.group.name, request.topic.name = group, topic
    data, fields = request.SerializeToString(), {"x-mq-client-id": "c"}
    found = sides[0].call("AckMessage", data, fields)
    assert found == sides[1].call("AckMessage", data, fields)
    assert pb.AckMessageResponse.FromString(found).status.code == code


# -- deliveries ----------------------------------------------------------------------------------------------

HOST = st.sampled_from([b"\x7f\0\0\1\0\0\x2a\x9f", b"\x0a\0\0\2\0\0\0\1", bytes(20)])
LONG = st.integers(0, 2**63 - 1) | st.sampled_from([0, 999, 1_000, 1_700_000_000_123])
NAMED = st.dictionaries(
    st.sampled_from([props.UNIQ_KEY, props.TAGS, props.KEYS, props.WAIT, props.CLUSTER, "mine"]),
    st.text("ab é", min_size=1, max_size=200),
)
DELIVERIES = st.builds(
    lambda record, attempt: Delivery(record, Receipt(1, 2, 3, 0, "0", "broker-a", 1, 7, 99), attempt),
    st.builds(
        Record,
        topic=st.sampled_from(["orders", "%RETRY%billing", "%DLQ%billing"]),
        body=st.sampled_from([b"", b"body", b"y" * 20_000]),
        properties_text=NAMED.map(props.render),
        queue_id=st.integers(0, 2**31 - 1),
        queue_offset=LONG,
        physical_offset=LONG,
        sys_flag=st.sampled_from([0, 0, 0, 1, 8]),
        born_timestamp=LONG | st.just(-1),
        born_host=HOST,
        store_timestamp=LONG,
        store_host=HOST,
    ),
    st.integers(1, 2**31 - 1),
)


@given(DELIVERIES)
def test_a_message_is_brought_as_protobuf_writes_it(delivery: Delivery) -> None:
    found = plain_messages.delivered(delivery, "orders")
    if found is not None:
        message = convert.from_record(delivery.record, "orders", delivery.receipt.text, delivery.attempt)
        assert found == pb.ReceiveMessageResponse(message=message).SerializeToString()
    names_told = delivery.record.properties.keys()
    is_plain = "mine" not in names_told and delivery.record.sys_flag != 1
    assert (found is not None) == (is_plain and not delivery.record.topic.startswith("%DLQ%"))


# -- what is plain --------------------------------------------------------------------------------------------


def a_send(topic: str = "orders", body: bytes = b"x") -> bytes:
    sent = pb.Message(topic=pb.Resource(name=topic), body=body)
    sent.system_properties.message_id = "0" * 32
    return pb.SendMessageRequest(messages=[sent]).SerializeToString()


def an_ack(topic: str = "orders", group: str = "billing") -> bytes:
    acked = pb.AckMessageRequest(group=pb.Resource(name=group), topic=pb.Resource(name=topic))
    acked.entries.add(message_id="0" * 32, receipt_handle="0 1 2 3 0 broker-a 0 0")
    return acked.SerializeToString()


def test_a_send_that_needs_a_question_is_not_plain(tmp_path: Path) -> None:
    """Each is left to Python, which asks it; nothing has happened yet."""
    bench, asked = Bench(tmp_path, SMALL, lane=True), list[str]()
    broker = bench.broker

    def peer() -> Any:
        asked.append("who")
        return Peer("c", "JAVA", "5", ("10.0.0.1", 7))

    assert plain_calls.send_plain(a_send(), peer, broker) is not None
    stored = broker.store.log_max
    asked.clear()
    most = broker.store.config.max_message_bytes
    assert plain_calls.send_plain(a_send(body=bytes(most + 1)), peer, broker) is None
    broker.topics.ensure("rmq_sys_TRACE_DATA_x", 1)
    broker.topics.save()
    for name in ("rmq_sys_TRACE_DATA_x", "nowhere"):
        assert plain_calls.send_plain(a_send(name), peer, broker) is None, name
    broker.topics.unsaved["orders"] = 1
    assert plain_calls.send_plain(a_send(), peer, broker) is None, "its answer waits until the topic is kept"
    broker.topics.unsaved.clear()
    settings = broker.store.settings
    settings.swap(msgspec.structs.replace(settings.value, flush="sync"))
    assert plain_calls.send_plain(a_send(), peer, broker) is None, "its answer waits for the disk"
    assert (asked, broker.store.log_max) == ([], stored)
    settings.swap(msgspec.structs.replace(settings.value, flush="async"))
    assert plain_calls.send_plain(a_send(body=bytes(most)), peer, broker) is not None
    broker.store.close()


def test_an_ack_of_what_no_client_may_name_is_not_plain_and_every_other_says_who_it_is(
    tmp_path: Path,
) -> None:
    bench, asked = Bench(tmp_path, SMALL, lane=True), list[str]()

    def peer() -> Any:
        asked.append("who")

    for topic, group in (
        ("rmq_sys_TRACE_DATA_x", "billing"),
        ("orders", "CID_RMQ_SYS_x"),
        ("a b", "billing"),
    ):
        assert plain_calls.acknowledge_plain(an_ack(topic, group), peer, bench.broker) is None
    assert asked == []
    assert plain_calls.acknowledge_plain(an_ack(), peer, bench.broker) is not None
    assert asked == ["who"]
    bench.broker.store.close()
