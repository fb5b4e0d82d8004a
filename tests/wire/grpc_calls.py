# SPDX-License-Identifier: Apache-2.0
"""The calls of the gRPC port: messages from the published definition, through a channel, every field of the answers."""

from __future__ import annotations

import base64
import hashlib
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import grpc.aio
from google.protobuf.json_format import MessageToDict, ParseDict

from aerobee import BrokerConfig, ManualClock, Server
from aerobee.broker.operations.admin.figures import group_figures
from aerobee.fronts.grpc.generated import messaging_pb2 as pb
from aerobee.protocol.bodies import GroupConfig, TopicConfig
from aerobee.server import OFF
from tests.wire.scene import NOW, SMALL

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from aerobee import StoreConfig

SERVICE = "/apache.rocketmq.v2.MessagingService/"
OK = {"code": "OK", "message": "OK"}
ID = "01" + "A1" * 16


def moment(ms: int) -> str:
    """A time as protobuf writes it in JSON; all of these are within one minute."""
    seconds, rest = divmod(ms - NOW, 1000)
    fraction = f".{rest:03}" if rest else ""
    return f"2023-11-14T22:13:{20 + seconds:02}{fraction}Z"


def code(name: str, message: str) -> dict[str, str]:
    return {"code": name, "message": message}


@dataclass
class Line:
    """One client's channel."""

    server: Server
    clock: ManualClock
    channel: Any
    client_id: str = "client-1"
    calls: set[str] = field(default_factory=set)

    @property
    def broker(self) -> Any:
        return self.server.broker

    @property
    def port(self) -> int:
        return int(self.server.grpc_address.rpartition(":")[2])

    def metadata(self) -> tuple[tuple[str, str], ...]:
        return (
            ("x-mq-client-id", self.client_id),
            ("x-mq-language", "JAVA"),
            ("x-mq-client-version", "5.0.7"),
        )

    def opened(self, kind: str, name: str) -> Any:
        self.calls.add(name)
        either = name == "Telemetry"
        asked = pb.TelemetryCommand if either else getattr(pb, f"{name}Request")
        answered = pb.TelemetryCommand if either else getattr(pb, f"{name}Response")
        return getattr(self.channel, kind)(
            SERVICE + name,
            request_serializer=asked.SerializeToString,
            response_deserializer=answered.FromString,
        )

    def request(self, name: str, fields: dict[str, Any]) -> Any:
        return ParseDict(fields, getattr(pb, f"{name}Request")())

    async def ask(self, name: str, fields: dict[str, Any]) -> dict[str, Any]:
        call = self.opened("unary_unary", name)
        return told(await call(self.request(name, fields), metadata=self.metadata(), timeout=30))

    def stream(self, name: str, fields: dict[str, Any]) -> Any:
        call = self.opened("unary_stream", name)
        return call(self.request(name, fields), metadata=self.metadata(), timeout=30)

    async def all(self, name: str, fields: dict[str, Any]) -> list[dict[str, Any]]:
        return [told(answer) async for answer in self.stream(name, fields)]

    def telemetry(self) -> Any:
        return self.opened("stream_stream", "Telemetry")(metadata=self.metadata())

    async def send(self, text: str = "x", **system: Any) -> dict[str, Any]:
        fields = message(text, **system)
        answer = await self.ask("SendMessage", {"messages": [fields]})
        assert answer["status"] == OK, answer
        (entry,) = answer["entries"]
        return dict(entry)

    async def receive(self, **more: Any) -> list[dict[str, Any]]:
        """The messages of one receive."""
        answers = await self.all("ReceiveMessage", {**RECEIVE, **more})
        return [answer["message"] for answer in answers if "message" in answer]


def told(answer: Any) -> dict[str, Any]:
    return dict(MessageToDict(answer, preserving_proto_field_name=True))


def message(text: str = "x", topic: str = "orders", **system: Any) -> dict[str, Any]:
    """As the Java client fills it in."""
    body = text.encode()
    return {
        "topic": {"name": topic},
        "user_properties": system.pop("user_properties", {}),
        "body": base64.b64encode(body).decode(),
        "system_properties": {
            "message_id": ID, "message_type": "NORMAL", "body_encoding": "IDENTITY", "queue_id": 0,
            "body_digest": {"type": "CRC32", "checksum": "0"}, "born_timestamp": moment(NOW - 50), "born_host": "shop",
            **system,
        },
    }  # fmt: skip


RECEIVE: dict[str, Any] = {
    "group": {"name": "billing"},
    "message_queue": {"topic": {"name": "orders"}, "id": 0},
    "filter_expression": {"type": "TAG", "expression": "*"},
    "batch_size": 32,
    "invisible_duration": "30s",
    "auto_renew": False,
    "long_polling_timeout": "5s",
}
QUEUE = {"topic": {"name": "orders"}, "id": 0}


# What a client takes unread stays small: it must not depend on its guesses of how fast the line is.
NARROW = (("grpc.http2.bdp_probe", 0), ("grpc.http2.lookahead_bytes", 65_536))


@asynccontextmanager
async def line(store: StoreConfig = SMALL, **settings: Any) -> AsyncIterator[Line]:
    clock = ManualClock(NOW)
    server = Server(
        ephemeral=True,
        namesrv_port=OFF,
        grpc_port=0,
        clock=clock,
        store=store,
        config=BrokerConfig(**settings),
    )
    async with server, grpc.aio.insecure_channel(server.grpc_address, options=NARROW) as channel:
        broker: Any = server.broker
        broker.topics.put(TopicConfig(topic_name="orders", read_queue_nums=1, write_queue_nums=1))
        yield Line(server, clock, channel)


def _broker(at: Line) -> dict[str, Any]:
    endpoints = {"scheme": "IPv4", "addresses": [{"host": "127.0.0.1", "port": at.port}]}
    return {"name": "broker-a", "endpoints": endpoints}


ALL_TYPES = ["NORMAL", "FIFO", "DELAY", "TRANSACTION"]


async def query_route(at: Line) -> None:
    at.broker.topics.put(TopicConfig(topic_name="bills", read_queue_nums=3, write_queue_nums=2))
    endpoints = _broker(at)["endpoints"]
    answer = await at.ask("QueryRoute", {"topic": {"name": "bills"}, "endpoints": endpoints})
    queue = {"topic": {"name": "bills"}, "broker": _broker(at), "accept_message_types": ALL_TYPES}
    assert answer == {
        "status": OK,
        "message_queues": [
            {**queue, "permission": "READ_WRITE"},  # number 0, which protobuf leaves out
            {**queue, "id": 1, "permission": "READ_WRITE"},
            {**queue, "id": 2, "permission": "READ"},
        ],
    }
    assert (await at.ask("QueryRoute", {"topic": {"name": "nowhere"}}))["status"]["code"] == "TOPIC_NOT_FOUND"
    assert (await at.ask("QueryRoute", {"topic": {"name": "bad name"}}))["status"]["code"] == "ILLEGAL_TOPIC"


async def query_assignment(at: Line) -> None:
    asked = {"topic": {"name": "orders"}, "group": {"name": "billing"}, "endpoints": _broker(at)["endpoints"]}
    queue = {
        "topic": {"name": "orders"}, "broker": _broker(at), "permission": "READ_WRITE",
        "accept_message_types": ALL_TYPES,
    }  # fmt: skip
    answer = await at.ask("QueryAssignment", asked)
    assert answer == {"status": OK, "assignments": [{"message_queue": {**queue, "id": -1}}]}
    at.broker.groups.put(GroupConfig(group_name="billing", consume_message_orderly=True))
    answer = await at.ask("QueryAssignment", asked)
    assert answer == {"status": OK, "assignments": [{"message_queue": queue}]}  # queue 0 itself


async def heartbeat(at: Line) -> None:
    fields = {"group": {"name": "billing"}, "client_type": "SIMPLE_CONSUMER"}
    assert await at.ask("Heartbeat", fields) == {"status": OK}
    await _settle(at, SUBSCRIPTION)
    at.clock.advance(5_000)
    assert await at.ask("Heartbeat", fields) == {"status": OK}
    assert at.broker.clients.group("billing").members["client-1"].last_seen == NOW + 5_000


async def goodbye(at: Line) -> None:
    await _settle(at, SUBSCRIPTION)
    assert sorted(at.broker.clients.group("billing").members) == ["client-1"]
    assert await at.ask("NotifyClientTermination", {"group": {"name": "billing"}}) == {"status": OK}
    assert at.broker.clients.group("billing") is None


async def send(at: Line) -> None:
    one = message("one", tag="red", keys=["k1", "k2"], user_properties={"colour": "blue"})
    two = message("two", message_id="01" + "B2" * 16)
    answer = await at.ask("SendMessage", {"messages": [one, two]})
    assert answer == {
        "status": OK,
        "entries": [
            {"status": OK, "message_id": ID},  # offset 0
            {"status": OK, "message_id": "01" + "B2" * 16, "offset": "1"},
        ],
    }
    first = at.broker.store.record_of("orders", 0, 0)
    kept = {name: first.properties[name] for name in ("UNIQ_KEY", "TAGS", "KEYS", "colour", "WAIT")}
    assert kept == {"UNIQ_KEY": ID, "TAGS": "red", "KEYS": "k1 k2", "colour": "blue", "WAIT": "true"}
    assert (first.body, first.born_timestamp) == (b"one", NOW - 50)
    refused = await at.ask("SendMessage", {"messages": [message("")]})
    assert refused == {"status": code("MESSAGE_BODY_EMPTY", "the message has no body")}


TRANSACTION = {"message_type": "TRANSACTION", "orphaned_transaction_recovery_duration": "60s"}


async def end_transaction(at: Line) -> None:
    kept, dropped = [await at.send(text, **TRANSACTION) for text in ("commit", "rollback")]
    fields = {
        "topic": {"name": "orders"}, "message_id": ID, "source": "SOURCE_CLIENT", "trace_context": "",
    }  # fmt: skip
    for entry, resolution in ((kept, "COMMIT"), (dropped, "ROLLBACK")):
        half = int(entry.get("offset", "0"))
        assert entry["transaction_id"].split("-")[0] == str(half)
        ended = {**fields, "transaction_id": entry["transaction_id"], "resolution": resolution}
        assert await at.ask("EndTransaction", ended) == {"status": OK}
    assert at.broker.store.max_offset("orders", 0) == 1
    assert at.broker.store.record_of("orders", 0, 0).body == b"commit"
    # Once the time to decide is over, only the answer to a check ends it.
    entry = await at.send("late", **TRANSACTION)
    at.clock.advance(60_001)
    late = {**fields, "transaction_id": entry["transaction_id"], "resolution": "COMMIT"}
    assert (await at.ask("EndTransaction", late))["status"]["code"] != "OK"
    assert await at.ask("EndTransaction", {**late, "source": "SOURCE_SERVER_CHECK"}) == {"status": OK}
    assert at.broker.store.max_offset("orders", 0) == 2
    odd = await at.ask("EndTransaction", {**fields, "transaction_id": "odd", "resolution": "COMMIT"})
    assert odd["status"]["code"] == "INVALID_TRANSACTION_ID"


async def recall(at: Line) -> None:
    entry = await at.send(delivery_timestamp=moment(NOW + 30_000), message_type="DELAY")
    expected = base64.urlsafe_b64encode(f"v1 orders broker-a {NOW + 29_001} {ID}".encode()).decode()
    assert entry == {"status": OK, "message_id": ID, "recall_handle": expected}
    fields = {"topic": {"name": "orders"}, "recall_handle": expected}
    assert await at.ask("RecallMessage", fields) == {"status": OK, "message_id": ID}
    odd = await at.ask("RecallMessage", {**fields, "recall_handle": "x"})
    assert (odd["status"]["code"], "message_id" in odd) == ("BAD_REQUEST", False)


async def receive(at: Line) -> None:
    at.broker.topics.put(TopicConfig(topic_name="bills", read_queue_nums=5, write_queue_nums=5))
    for text in ("zero", "one"):
        fields = message(
            text, "bills", tag="red", keys=["k1", "k2"], user_properties={"colour": "blue"}, trace_context="trace",
            message_group="user-7",
        )  # fmt: skip
        assert (await at.ask("SendMessage", {"messages": [fields]}))["status"] == OK
    at.clock.advance(1_000)
    asked = {**RECEIVE, "message_queue": {"topic": {"name": "bills"}, "id": 0}, "batch_size": 1}
    assert len(await at.all("ReceiveMessage", asked)) == 3
    status, found, delivered = await at.all("ReceiveMessage", asked)
    assert status == {"status": OK}
    assert delivered == {"delivery_timestamp": moment(NOW + 1_000)}
    system = found["message"]["system_properties"]
    assert system.pop("born_host").startswith("127.0.0.1:")
    place = at.broker.store.record_of("bills", 4, 1).physical_offset
    assert found == {
        "message": {
            "topic": {"name": "bills"},
            "user_properties": {"colour": "blue"},
            "body": base64.b64encode(b"one").decode(),
            "system_properties": {
                "tag": "red", "keys": ["k1", "k2"], "message_id": ID, "message_type": "FIFO",
                "message_group": "user-7", "body_encoding": "IDENTITY",
                "body_digest": {"type": "MD5", "checksum": hashlib.md5(b"one").hexdigest().upper()},
                "born_timestamp": moment(NOW - 50), "store_timestamp": moment(NOW),
                "store_host": at.server.broker_address, "queue_id": 4, "queue_offset": "1", "delivery_attempt": 1,
                "receipt_handle": f"1 {NOW + 1_000} 30000 2 0 broker-a 4 1 {place}", "trace_context": "trace",
            },
        }
    }  # fmt: skip
    short = await at.all("ReceiveMessage", {**RECEIVE, "invisible_duration": "9s"})
    assert short == [
        {"status": code("ILLEGAL_INVISIBLE_TIME", "the invisibleTime is too small. min is 10000")}
    ]


async def received(at: Line, *texts: str) -> list[str]:
    """The handles of messages that were just received."""
    for text in texts:
        await at.send(text)
    return [each["system_properties"]["receipt_handle"] for each in await at.receive()]


def in_flight(at: Line) -> int:
    return group_figures("billing", "orders", at.broker).in_flight


async def ack(at: Line) -> None:
    handles = await received(at, "one", "two", "three")
    entries = [{"message_id": f"m{n}", "receipt_handle": handle} for n, handle in enumerate(handles[:2])]
    fields = {"group": {"name": "billing"}, "topic": {"name": "orders"}, "entries": entries}
    assert await at.ask("AckMessage", fields) == {
        "status": OK, "entries": [{**entry, "status": OK} for entry in entries],
    }  # fmt: skip
    assert in_flight(at) == 1
    mixed = [
        {"message_id": "m2", "receipt_handle": handles[2]},
        {"message_id": "m3", "receipt_handle": "odd"},
    ]
    answer = await at.ask("AckMessage", {**fields, "entries": mixed})
    assert answer["status"]["code"] == "MULTIPLE_RESULTS"
    assert [entry["status"]["code"] for entry in answer["entries"]] == ["OK", "INVALID_RECEIPT_HANDLE"]
    assert in_flight(at) == 0


async def change(at: Line) -> None:
    """Of one message out of a batch of several: its new handle is its own, start and all."""
    handles = await received(at, "one", "two", "three")
    at.clock.advance(2_000)
    fields = {
        "group": {"name": "billing"}, "topic": {"name": "orders"}, "receipt_handle": handles[1],
        "invisible_duration": "50s", "message_id": ID,
    }  # fmt: skip
    answer = await at.ask("ChangeInvisibleDuration", fields)
    place = at.broker.store.record_of("orders", 0, 1).physical_offset
    handle = f"1 {NOW + 2_000} 50000 1 0 broker-a 0 1 {place}"
    assert answer == {"status": OK, "receipt_handle": handle}
    assert await at.ask("AckMessage", {
        "group": {"name": "billing"}, "topic": {"name": "orders"},
        "entries": [{"message_id": ID, "receipt_handle": handle}],
    }) == {"status": OK, "entries": [{"status": OK, "message_id": ID, "receipt_handle": handle}]}  # fmt: skip
    assert in_flight(at) == 2
    odd = await at.ask("ChangeInvisibleDuration", {**fields, "receipt_handle": "odd"})
    assert (odd["status"]["code"], "receipt_handle" in odd) == ("INVALID_RECEIPT_HANDLE", False)


async def dead_letter(at: Line) -> None:
    (handle,) = await received(at, "poison")
    fields = {
        "group": {"name": "billing"}, "topic": {"name": "orders"}, "receipt_handle": handle, "message_id": ID,
        "delivery_attempt": 1, "max_delivery_attempts": 1,
    }  # fmt: skip
    assert await at.ask("ForwardMessageToDeadLetterQueue", fields) == {"status": OK}
    assert at.broker.store.record_of("%DLQ%billing", 0, 0).body == b"poison"
    assert in_flight(at) == 0
    odd = await at.ask("ForwardMessageToDeadLetterQueue", {**fields, "receipt_handle": "odd"})
    assert odd["status"]["code"] == "INVALID_RECEIPT_HANDLE"


async def pull(at: Line) -> None:
    for text in ("one", "two", "three"):
        await at.send(text)
    fields = {
        "group": {"name": "billing"}, "message_queue": QUEUE, "offset": 1, "batch_size": 1,
        "filter_expression": {"type": "TAG", "expression": "*"}, "long_polling_timeout": "0s",
    }  # fmt: skip
    status, found, end = await at.all("PullMessage", fields)
    assert (status, end) == ({"status": OK}, {"next_offset": "2"})
    system = found["message"]["system_properties"]
    assert (base64.b64decode(found["message"]["body"]), system["queue_offset"]) == (b"two", "1")
    assert "receipt_handle" not in system
    nothing = await at.all("PullMessage", {**fields, "offset": 3})
    assert nothing == [{"status": code("MESSAGE_NOT_FOUND", "OFFSET_OVERFLOW_ONE")}, {"next_offset": "3"}]
    past = await at.all("PullMessage", {**fields, "offset": 9})
    assert past == [{"status": code("ILLEGAL_OFFSET", "OFFSET_OVERFLOW_BADLY")}, {"next_offset": "3"}]


async def update_offset(at: Line) -> None:
    await received(at, "one", "two")  # the group is known from here on
    fields = {"group": {"name": "billing"}, "message_queue": QUEUE, "offset": 2}
    assert await at.ask("UpdateOffset", fields) == {"status": OK}
    assert at.broker.offsets.get("billing", "orders", 0) == 2
    assert (await at.ask("UpdateOffset", {**fields, "offset": -1}))["status"]["code"] == "ILLEGAL_OFFSET"


async def get_offset(at: Line) -> None:
    await received(at, "one", "two")
    fields = {"group": {"name": "billing"}, "message_queue": QUEUE}
    await at.ask("UpdateOffset", {**fields, "offset": 2})
    assert await at.ask("GetOffset", fields) == {"status": OK, "offset": "2"}
    assert await at.ask("GetOffset", {**fields, "group": {"name": "new"}}) == {"status": OK}  # 0: young


async def query_offset(at: Line) -> None:
    for _ in range(3):
        await at.send()
        at.clock.advance(1_000)
    fields = {"message_queue": QUEUE}
    assert await at.ask("QueryOffset", {**fields, "query_offset_policy": "BEGINNING"}) == {"status": OK}
    assert await at.ask("QueryOffset", {**fields, "query_offset_policy": "END"}) == {
        "status": OK,
        "offset": "3",
    }
    at_time = {**fields, "query_offset_policy": "TIMESTAMP", "timestamp": moment(NOW + 1_000)}
    assert await at.ask("QueryOffset", at_time) == {"status": OK, "offset": "1"}
    missing = await at.ask("QueryOffset", {**fields, "query_offset_policy": "TIMESTAMP"})
    assert missing == {"status": code("BAD_REQUEST", "policy TIMESTAMP needs a timestamp")}


SUBSCRIPTION = {
    "client_type": "SIMPLE_CONSUMER",
    "request_timeout": "3s",
    "subscription": {
        "group": {"name": "billing"},
        "subscriptions": [{"topic": {"name": "orders"}, "expression": {"type": "TAG", "expression": "red"}}],
    },
}
PUBLISHING = {
    "client_type": "PRODUCER",
    "request_timeout": "3s",
    "publishing": {"topics": [{"name": "orders"}], "validate_message_type": False},
}


async def _settle(at: Line, settings: dict[str, Any]) -> dict[str, Any]:
    stream = at.telemetry()
    await stream.write(ParseDict({"settings": settings}, pb.TelemetryCommand()))
    answer = told(await stream.read())
    await stream.done_writing()
    return answer


LEVELS = (1, 5, 10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200)


async def telemetry(at: Line) -> None:
    at.broker.groups.put(GroupConfig(group_name="billing", retry_max_times=4))
    metric: dict[str, Any] = {"metric": {}}
    subscription: Any = SUBSCRIPTION["subscription"]
    assert await _settle(at, SUBSCRIPTION) == {
        "status": OK,
        "settings": {
            **SUBSCRIPTION, **metric,
            "subscription": {
                **subscription, "fifo": False, "receive_batch_size": 32,
                "long_polling_timeout": "20s",
            },
            "backoff_policy": {
                "max_attempts": 5, "customized_backoff": {"next": [f"{level}s" for level in LEVELS]},
            },
        },
    }  # fmt: skip
    (subscribed,) = at.broker.clients.group("billing").subscriptions.values()
    assert (subscribed.topic, subscribed.sub_string, subscribed.tags_set) == ("orders", "red", ["red"])
    assert await _settle(at, PUBLISHING) == {
        "status": OK,
        "settings": {
            **PUBLISHING, **metric,
            "publishing": {
                "topics": [{"name": "orders"}], "max_body_size": 4 << 20, "validate_message_type": True,
            },
            "backoff_policy": {
                "max_attempts": 3, "exponential_backoff": {"initial": "0.010s", "max": "1s", "multiplier": 2.0},
            },
        },
    }  # fmt: skip


EXCHANGES = {
    "QueryRoute": query_route,
    "QueryAssignment": query_assignment,
    "Heartbeat": heartbeat,
    "NotifyClientTermination": goodbye,
    "SendMessage": send,
    "EndTransaction": end_transaction,
    "RecallMessage": recall,
    "ReceiveMessage": receive,
    "AckMessage": ack,
    "ChangeInvisibleDuration": change,
    "ForwardMessageToDeadLetterQueue": dead_letter,
    "PullMessage": pull,
    "UpdateOffset": update_offset,
    "GetOffset": get_offset,
    "QueryOffset": query_offset,
    "Telemetry": telemetry,
}
