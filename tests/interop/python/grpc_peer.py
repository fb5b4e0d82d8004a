# SPDX-License-Identifier: Apache-2.0
"""Drives PyPI `rocketmq-python-client` 5.1.2 (gRPC). Runs in its own venv."""

from __future__ import annotations

import itertools
import math
import time
from typing import Any

import link
from rocketmq import (
    ClientConfiguration,
    ConsumeResult,
    Credentials,
    FilterExpression,
    Message,
    MessageListener,
    Producer,
    PushConsumer,
    SimpleConsumer,
    TransactionChecker,
    TransactionResolution,
)
from rocketmq.grpc_protocol import FilterType

RESOLUTIONS = {
    "commit": TransactionResolution.COMMIT,
    "rollback": TransactionResolution.ROLLBACK,
    "unknown": TransactionResolution.TRANSACTION_RESOLUTION_UNSPECIFIED,
}

opened: dict[str, Any] = {}
seen: dict[str, list[link.Request]] = {}
handles: dict[int, Any] = {}
numbers = itertools.count(1)


def configuration(request: link.Request) -> ClientConfiguration:
    account = (
        Credentials(request["accessKey"], request["secretKey"]) if "accessKey" in request else Credentials()
    )
    return ClientConfiguration(request["namesrv"], account, request_timeout=10)


class Checker(TransactionChecker):  # type: ignore[misc]
    def __init__(self, word: str) -> None:
        self.word = word

    def check(self, message: Message) -> Any:
        return RESOLUTIONS[self.word]


def start_producer(request: link.Request) -> None:
    checker = Checker(request["check"]) if "check" in request else None
    made = Producer(configuration(request), request["topics"], checker)
    made.startup()
    opened[request["name"]] = made


def message(spec: link.Request) -> Message:
    made = Message()
    made.topic = spec["topic"]
    made.body = link.body(spec)
    if "tags" in spec:
        made.tag = spec["tags"]
    if "keys" in spec:
        Message.keys.fset(made, *spec["keys"].split(" "))  # the setter is variadic: assignment takes one key
    if "shardingKey" in spec:
        made.message_group = spec["shardingKey"]
    if "delayMs" in spec:
        made.delivery_timestamp = math.ceil(time.time() + spec["delayMs"] / 1000)
    for key, value in spec.get("properties", {}).items():
        made.add_property(key, str(value))
    return made


def send(request: link.Request) -> list[link.Request]:
    producer = opened[request["producer"]]
    rows = []
    for spec in request["messages"]:
        if "local" in spec:
            transaction = producer.begin_transaction()
            receipt = producer.send(message(spec), transaction)
            if spec["local"] == "commit":
                transaction.commit()
            elif spec["local"] == "rollback":
                transaction.rollback()
        else:
            receipt = producer.send(message(spec))
        rows.append({"msgId": receipt.message_id, "recall": receipt.recall_handle})
    return rows


def recall(request: link.Request) -> Any:
    return str(opened[request["producer"]].recall_message(request["topic"], request["recall"]))


def row(received: Message) -> link.Request:
    return link.put_body(
        {
            "topic": received.topic,
            "msgId": received.message_id,
            "tags": received.tag,
            "keys": " ".join(received.keys or ()),
            "messageGroup": received.message_group,
            "attempt": received.delivery_attempt,
            "properties": dict(received.properties or {}),
            "at": int(time.time() * 1000),
        },
        received.body,
    )


class Listener(MessageListener):  # type: ignore[misc]
    def __init__(self, rows: list[link.Request], fail_times: int) -> None:
        self.rows = rows
        self.fail_times = fail_times

    def consume(self, message: Message) -> Any:
        self.rows.append(row(message))
        return ConsumeResult.FAILURE if message.delivery_attempt <= self.fail_times else ConsumeResult.SUCCESS


def start_consumer(request: link.Request) -> None:
    subscriptions = {
        each["topic"]: FilterExpression(
            each["expression"], FilterType.SQL if each["type"] == "SQL92" else FilterType.TAG
        )
        for each in request["subscriptions"]
    }
    if request["kind"] == "simple":
        made = SimpleConsumer(configuration(request), request["group"], subscriptions, 5)
    else:
        rows = seen.setdefault(request["name"], [])
        listener = Listener(rows, request.get("failTimes", 0))
        made = PushConsumer(configuration(request), request["group"], listener, subscriptions)
    made.startup()
    opened[request["name"]] = made


def received(request: link.Request) -> list[link.Request]:
    return seen[request["name"]][request["from"] :]


def receive(request: link.Request) -> list[link.Request]:
    rows = []
    for each in opened[request["name"]].receive(request["max"], request["invisibleMs"] // 1000) or []:
        handle = next(numbers)
        handles[handle] = each
        rows.append({**row(each), "handle": handle})
    return rows


def ack(request: link.Request) -> None:
    opened[request["name"]].ack(handles[request["handle"]])


def change(request: link.Request) -> None:
    opened[request["name"]].change_invisible_duration(
        handles[request["handle"]], request["invisibleMs"] // 1000
    )


def close(request: link.Request) -> None:
    made = opened.pop(request["name"], None)
    if made is not None:
        made.shutdown()


link.serve(
    {
        "producer": start_producer,
        "send": send,
        "recall": recall,
        "consumer": start_consumer,
        "received": received,
        "receive": receive,
        "ack": ack,
        "change": change,
        "close": close,
    }
)
