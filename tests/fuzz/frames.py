# SPDX-License-Identifier: Apache-2.0
"""Frames for the remoting port: sound ones of every request, then changed; odd names; odd properties."""

from __future__ import annotations

import json
import struct
from typing import TYPE_CHECKING, Any

from aerobee.protocol import batch, bodies, command, names
from aerobee.protocol import properties as props
from aerobee.protocol.batch import BatchItem
from aerobee.protocol.codes import RequestCode
from aerobee.protocol.command import Header, request
from aerobee.protocol.headers import cluster, consume, groups, offsets, produce, topics, transaction

if TYPE_CHECKING:
    from random import Random

CODES = [int(code) for code in RequestCode]
MODULES = (cluster, consume, groups, offsets, produce, topics, transaction)
HEADERS: list[type[Header]] = [
    found
    for module in MODULES
    for found in vars(module).values()
    if isinstance(found, type) and issubclass(found, Header) and isinstance(getattr(found, "code", None), int)
]
ODD = [
    "", "-1", "0", "1", "9" * 30, "9" * 5000, "²", "null", "true", "x y", "x" * 300, "\0\1\2", str(-(2**63)),
    str(2**31), str(2**63), "1 2 3 4 5 6 7 8", "0 1700000000000 60000 0 0 broker-a 0 0", "{", "a&b;c=d", "fuzz",
]  # fmt: skip
RAW: list[Any] = [*ODD, None, True, [], {}, 1e308, -(2**63), 2**70]
NAMES = [
    "fuzz", "..", ".", "../../x", "a/b", "%RETRY%fuzz", "%RETRY%../x", "%DLQ%fuzz", "%RETRY%fuzz+fuzz", "a\0b",
    "ü", "x" * 127, "x" * 128, "%RETRY%" + "x" * 248, "%", "|", "a b", "\udcff", "TBW102", "DefaultCluster",
    names.TIMER_TOPIC, names.SCHEDULE_TOPIC, names.HALF_TOPIC, names.OP_TOPIC, names.CHECK_MAX_TOPIC,
    names.TRACE_TOPIC, "rmq_sys_x", names.revive_topic("DefaultCluster"), names.reply_topic("DefaultCluster"),
]  # fmt: skip
BODIES = [
    b"",
    b"{}",
    b"[]",
    b"{" * 200,
    b'{"offsetTable":{{',
    b"x",
    b"a=1\nb=2",
    b"[{}]",
    b'{"topic":"../x"}',
]
STAMPS = sorted(props.RESERVED)


class Frames:
    def __init__(self, chance: Random) -> None:
        self._chance = chance
        self._corpus = corpus()

    # -- any request ---------------------------------------------------------------------------------------

    def any(self) -> bytes:
        make = self._chance.choice((self._flipped, self._spliced, self._filled, self._filled, self._noise))
        return make()

    def _sound(self) -> bytes:
        return self._chance.choice(self._corpus)

    def _flipped(self) -> bytes:
        """Some bytes changed; the length mostly left alone, so that what is behind it is reached."""
        data = bytearray(self._sound())
        first = 0 if self._chance.random() < 0.1 else 8
        for _ in range(self._chance.randint(1, 6)):
            data[self._chance.randrange(first, len(data))] = self._chance.randrange(256)
        return bytes(data)

    def _spliced(self) -> bytes:
        """Shortened, lengthened or joined with another, with a length that fits again."""
        a, b = self._sound()[4:], self._sound()[4:]
        data = a[: self._chance.randrange(len(a))] + b[self._chance.randrange(len(b)) :]
        return struct.pack(">I", len(data)) + data

    def _filled(self) -> bytes:
        """The fields of some request with values of other types and sizes, under its code or another's."""
        header, choice = self._chance.choice(HEADERS), self._chance.choice
        code = header.code if self._chance.random() < 0.9 else choice(CODES)
        fields = {
            name: choice(RAW if self._chance.random() < 0.1 else ODD)
            for name in header.__struct_encode_fields__
        }
        for name in list(fields):
            if name in ("topic", "group", "consumerGroup", "producerGroup", "a", "b", "parentTopic"):
                fields[name] = choice(NAMES[:12]) if self._chance.random() < 0.7 else choice(ODD)
            elif self._chance.random() < 0.5:
                fields[name] = choice(["0", "1", "3"])
        head = {"code": code, "opaque": 1, "flag": choice([0, 0, 0, 2]), "extFields": fields}
        return framed(json.dumps(head).encode(), choice(BODIES))

    def _noise(self) -> bytes:
        data = self._chance.randbytes(self._chance.randint(1, 200))
        return data if self._chance.random() < 0.2 else struct.pack(">I", len(data)) + data

    # -- names and properties ------------------------------------------------------------------------------

    def odd_name(self) -> bytes:
        """Wherever a request names a topic or a group."""
        chance = self._chance
        name = chance.choice(NAMES) if chance.random() < 0.8 else odd_text(chance)
        make = chance.choice(
            [
                lambda: request(produce.SendMessageV2(topic=name, producer_group=name), b"x"),
                lambda: request(produce.SendMessage(topic=name, default_topic=name), b"x"),
                lambda: request(
                    produce.SendBatch(topic=name, batch=True), batch.encode([BatchItem(0, b"x", "")])
                ),
                lambda: request(produce.SendBack(offset=chance.randrange(5000), group=name)),
                lambda: request(consume.PullMessage(**pull(name, name), sys_flag=4)),
                lambda: request(consume.PopMessage(consumer_group=name, topic=name, invisible_time=1000)),
                lambda: request(
                    topics.CreateTopic(topic=name, read_queue_nums=4, write_queue_nums=4, perm=6)
                ),
                lambda: request(topics.DeleteTopic(topic=name)),
                lambda: request(
                    offsets.UpdateConsumerOffset(consumer_group=name, topic=name, queue_id=0, commit_offset=1)
                ),
                lambda: request(consume.SendHeartbeat(), bodies.encode(heartbeat(name))),
            ]
        )
        return _encoded(make)

    def odd_properties(self) -> bytes:
        """A send with what only the broker writes, and with numbers that are none."""
        chance = self._chance
        found = {chance.choice(STAMPS): self._value() for _ in range(chance.randint(1, 5))}
        text = props.render({name: value for name, value in found.items() if value})
        sys_flag = chance.choice([0, 0, 4, 8, 12])
        topic = "fuzz" if chance.random() < 0.9 else chance.choice(NAMES)
        if chance.random() < 0.2:
            items = [BatchItem(0, b"x", text), BatchItem(0, b"y", "")]
            return _encoded(lambda: request(produce.SendBatch(topic=topic, batch=True), batch.encode(items)))
        born = chance.choice([0, 1_700_000_000_000, 2**62, -(2**63), 2**63])
        header = produce.SendMessageV2(
            topic=topic, queue_id=0, properties=text, sys_flag=sys_flag, born_timestamp=born
        )
        return _encoded(lambda: request(header, b"odd"))

    def _value(self) -> str:
        chance = self._chance
        return chance.choice(
            [chance.choice(ODD), chance.choice(NAMES), "true", str(chance.randrange(20)), odd_text(chance)]
        )


def corpus() -> list[bytes]:
    """Sound frames of many kinds, for mutation."""
    queue = bodies.MessageQueue("broker-a", 0, "fuzz")
    lock = bodies.LockBatch(client_id="fuzz", consumer_group="fuzz", mq_set=[queue])
    items = [BatchItem(0, b"one", "KEYS\x01a\x02"), BatchItem(0, b"two", "")]
    receipt = "0 1700000000000 60000 0 0 broker-a 0 0"
    place: dict[str, Any] = {"consumer_group": "fuzz", "topic": "fuzz", "queue_id": 0}
    requests = [
        request(produce.SendMessageV2(topic="fuzz", properties="TAGS\x01a\x02KEYS\x01k\x02"), b"body" * 10),
        request(produce.SendMessage(topic="fuzz", properties="DELAY\x011\x02"), b"delayed"),
        request(produce.SendMessageV2(topic="fuzz", properties="TIMER_DELAY_MS\x01500\x02"), b"timer"),
        request(produce.SendMessageV2(topic="fuzz", sys_flag=4, properties="TRAN_MSG\x01true\x02"), b"half"),
        request(produce.SendBatch(topic="fuzz", batch=True), batch.encode(items)),
        request(produce.SendBack(offset=0, group="fuzz")),
        request(consume.PullMessage(**pull("fuzz", "fuzz"), sys_flag=4)),
        request(consume.PullMessage(**pull("fuzz", "fuzz"), sys_flag=6, suspend_timeout_millis=200)),
        request(consume.PopMessage(consumer_group="fuzz", topic="fuzz", invisible_time=1000, poll_time=100)),
        request(consume.AckMessage(**place, extra_info=receipt, offset=0)),
        request(consume.SendHeartbeat(), bodies.encode(heartbeat("fuzz"))),
        request(consume.LockQueues(), bodies.encode(lock)),
        request(consume.ConsumerList(consumer_group="fuzz")),
        request(consume.Unregister(client_id="fuzz", consumer_group="fuzz")),
        request(offsets.QueryConsumerOffset(**place)),
        request(offsets.UpdateConsumerOffset(**place, commit_offset=1)),
        request(offsets.SearchOffset(topic="fuzz", queue_id=0, timestamp=1)),
        request(offsets.ViewMessage(offset=0)),
        request(offsets.QueryMessage(topic="fuzz", key="k")),
        request(topics.CreateTopic(topic="fuzz", read_queue_nums=4, write_queue_nums=4, perm=6)),
    ]
    for number, one in enumerate(requests):
        one.opaque = number
        one.serialize = number % 2 if one.code < 32768 else 0
    return [command.encode(one) for one in requests]


def pull(topic: str, group: str, offset: int = 0) -> dict[str, Any]:
    place: dict[str, Any] = {"consumer_group": group, "topic": topic, "queue_id": 0}
    return {**place, "queue_offset": offset, "subscription": "*"}


def heartbeat(group: str) -> bodies.Heartbeat:
    subscription = bodies.SubscriptionData(topic="fuzz", sub_version=1)
    data = bodies.ConsumerData(group_name=group, subscription_data_set=[subscription])
    producer = bodies.ProducerData(group_name=group)
    return bodies.Heartbeat(client_id="fuzz", consumer_data_set=[data], producer_data_set=[producer])


def odd_text(chance: Random) -> str:
    alphabet = "aZ09%|_-+./\\ \t\n\0\x01\x02\x7fäß²٣🐝$"
    return "".join(chance.choice(alphabet) for _ in range(chance.randint(0, 12)))


def framed(head: bytes, body: bytes) -> bytes:
    return struct.pack(">II", 4 + len(head) + len(body), len(head)) + head + body


def _encoded(make: object) -> bytes:
    """What cannot even be written (a lone surrogate) is sent as JSON writes it."""
    try:
        return command.encode(make())  # type: ignore[operator]
    except UnicodeEncodeError:
        fields = {"topic": "\udcff", "consumerGroup": "\udcff", "b": "\udcff"}
        return framed(json.dumps({"code": 310, "opaque": 1, "flag": 0, "extFields": fields}).encode(), b"x")
