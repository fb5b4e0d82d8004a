# SPDX-License-Identifier: Apache-2.0
"""Drives PyPI `rocketmq` 0.4.4: the C++ client behind a thin Python face. Runs in its own venv."""

from __future__ import annotations

import threading
import time
import zlib
from typing import Any

import link
from rocketmq.client import Message, Producer, PushConsumer, RecvMessage
from rocketmq.ffi import MessageModel, dll

CONSUMED, LATER = 0, 1

producers: dict[str, Producer] = {}
consumers: dict[str, PushConsumer] = {}
seen: dict[str, list[link.Request]] = {}


def text(value: bytes | None) -> str | None:
    return None if value is None else value.decode()


def start_producer(request: link.Request) -> None:
    made = Producer(request["group"], timeout=10_000, max_message_size=16 * 1024 * 1024)
    made.set_namesrv_addr(request["namesrv"])
    if "accessKey" in request:
        made.set_session_credentials(request["accessKey"], request["secretKey"], "")
    dll.SetProducerInstanceName(made._handle, request["name"].encode())
    made.start()
    producers[request["name"]] = made


def message(spec: link.Request) -> Message:
    made = Message(spec["topic"])
    made.set_body(link.body(spec))
    if "tags" in spec:
        made.set_tags(spec["tags"])
    if "keys" in spec:
        made.set_keys(spec["keys"])
    if "delayLevel" in spec:
        made.set_delay_time_level(spec["delayLevel"])
    for key, value in spec.get("properties", {}).items():
        made.set_property(key, str(value))
    return made


def row(result: Any) -> link.Request:
    status = "SEND_OK" if result.status == 0 else result.status.name
    return {"status": status, "msgId": result.msg_id, "offset": result.offset}


def send(request: link.Request) -> list[link.Request]:
    producer = producers[request["producer"]]
    mode = request["mode"]
    if mode == "batch":
        return [row(producer.send_batch([message(spec) for spec in request["messages"]]))]
    rows = []
    for spec in request["messages"]:
        if mode == "oneway":
            producer.send_oneway(message(spec))
        elif mode == "async":
            rows.append(send_async(producer, spec))
        elif "shardingKey" in spec:
            shard = zlib.crc32(spec["shardingKey"].encode()) & 0xFFFF
            rows.append(row(producer.send_orderly(message(spec), shard)))
        else:
            rows.append(row(producer.send_sync(message(spec))))
    return rows


def send_async(producer: Producer, spec: link.Request) -> link.Request:
    done = threading.Event()
    outcome: list[Any] = []

    def finish(value: object) -> None:
        outcome.append(value)
        done.set()

    kept = message(spec)  # the library keeps only the handle
    producer.send_async(kept, finish, finish)
    if not done.wait(20):
        raise TimeoutError("no callback within 20 s")
    if isinstance(outcome[0], Exception):
        raise outcome[0]
    return row(outcome[0])


def start_consumer(request: link.Request) -> None:
    rows = seen.setdefault(request["name"], [])
    model = MessageModel.BROADCASTING if request["kind"] == "broadcast" else MessageModel.CLUSTERING
    made = PushConsumer(request["group"], orderly=request["kind"] == "orderly", message_model=model)
    made.set_namesrv_addr(request["namesrv"])
    made.set_instance_name(request["name"])
    made.set_thread_count(4)
    if "accessKey" in request:
        made.set_session_credentials(request["accessKey"], request["secretKey"], "")

    def on_message(_consumer: int, handle: int) -> int:
        """The wheel's own wrapper cannot ask for a retry: it raises through the C callback."""
        received = RecvMessage(handle)
        rows.append(
            link.put_body(
                {
                    "topic": received.topic,
                    "msgId": received.id,
                    "tags": text(received.tags),
                    "keys": text(received.keys),
                    "queueId": received.queue_id,
                    "offset": received.queue_offset,
                    "attempt": received.reconsume_times + 1,
                    "at": int(time.time() * 1000),
                },
                received.body,
            )
        )
        return LATER if received.reconsume_times < request.get("failTimes", 0) else CONSUMED

    for each in request["subscriptions"]:
        code = dll.Subscribe(made._handle, each["topic"].encode(), each["expression"].encode())
        if code:
            raise RuntimeError(f"Subscribe answered {code}")
    made._register_callback(on_message)
    made.start()
    consumers[request["name"]] = made


def received(request: link.Request) -> list[link.Request]:
    return seen[request["name"]][request["from"] :]


def close(request: link.Request) -> None:
    for table in (producers, consumers):
        made = table.get(request["name"])
        if made is not None:
            made.shutdown()


link.serve(
    {
        "producer": start_producer,
        "send": send,
        "consumer": start_consumer,
        "received": received,
        "close": close,
    }
)
