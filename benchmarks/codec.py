# SPDX-License-Identifier: Apache-2.0
"""Codecs: messages a second and CPU microseconds a message. `python benchmarks/codec.py`"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from aerobee.protocol import command as wire
from aerobee.protocol import message
from aerobee.protocol.bodies import BrokerData, Dialect, QueueData, TopicRoute
from aerobee.protocol.bodies import encode as encode_body
from aerobee.protocol.frames import FrameDecoder
from aerobee.protocol.headers.consume import PullMessage, PullResult
from aerobee.protocol.headers.produce import SendMessageV2, SendResult
from aerobee.protocol.message import Record
from aerobee.protocol.receipt import Receipt

if TYPE_CHECKING:
    from collections.abc import Callable

PROPERTIES = (
    "UNIQ_KEY\x017F000001007BDDC64FCB4CD05F690000\x02TAGS\x01TagA\x02KEYS\x01order-17\x02WAIT\x01true\x02"
)
SECONDS = 0.5


def send_frame(size: int) -> bytes:
    header = SendMessageV2(
        producer_group="bench",
        topic="BenchmarkTest",
        queue_id=3,
        born_timestamp=1_700_000_000_000,
        properties=PROPERTIES,
        reconsume_times=0,
        unit_mode=False,
        batch=False,
        broker_name="broker-a",
    )
    return wire.encode(wire.request(header, b"x" * size))


def record(size: int) -> Record:
    return Record("BenchmarkTest", b"x" * size, PROPERTIES, 3, 17, 4711, born_timestamp=1, store_timestamp=2)


def one_checked(one: Record) -> bytes:
    """The record with its check, as the store writes it."""
    text = one.properties_text + "__CRC32#\x01" + "0" * 10 + "\x02"
    data = message.encode(Record(one.topic, one.body, text, one.queue_id))[: -message.RECORD_CHECK_SIZE]
    return data + message.record_check(data)


def decode_batch(data: bytes) -> None:
    for _ in message.decode_all(data):
        pass


def cases() -> list[tuple[str, int, Callable[[], object]]]:
    """(name, messages a call, call)."""
    found: list[tuple[str, int, Callable[[], object]]] = []
    for size in (128, 1024):
        frame = send_frame(size)
        one = record(size)
        raw = one_checked(one)
        many = raw * 32
        stream = frame * 16
        found += [
            (
                f"send: frame cut, decode, fields, {size} B",
                16,
                lambda s=stream: [  # type: ignore[misc]
                    wire.decode(f).fields(SendMessageV2) for f in FrameDecoder().feed(s)
                ],
            ),
            (f"send: header to frame, {size} B", 1, lambda s=size: send_frame(s)),  # type: ignore[misc]
            (f"record encode, {size} B", 1, lambda r=one: message.encode(r)),  # type: ignore[misc]
            (f"record decode, {size} B", 32, lambda b=many: decode_batch(b)),  # type: ignore[misc]
            (f"record verify, {size} B", 1, lambda b=raw: message.verify(b)),  # type: ignore[misc]
        ]
    return found + small_cases()


def small_cases() -> list[tuple[str, int, Callable[[], object]]]:
    pull = wire.encode(
        wire.request(PullMessage(consumer_group="g", topic="T", queue_id=1, queue_offset=5, sub_version=1))
    )[4:]
    sent = SendResult(
        msg_id="7F000001000000000000000000000000", queue_id=1, queue_offset=5, transaction_id="x" * 32
    )
    found = PullResult(next_begin_offset=5, min_offset=0, max_offset=9)
    route = TopicRoute(
        broker_datas=[BrokerData(broker_addrs={0: "10.0.0.1:10911"}, broker_name="a", cluster="c")],
        queue_datas=[QueueData(broker_name="a", read_queue_nums=8, write_queue_nums=8)],
    )
    handle = Receipt(1024, 1_700_000_000_000, 60_000, 3, "0", "broker-a", 2, 1030)
    text = handle.text
    return [
        ("pull: decode, fields", 1, lambda: wire.decode(pull).fields(PullMessage)),
        ("send reply: encode", 1, lambda: wire.encode(wire.Command(0, ext=wire.header_fields(sent)))),
        ("pull reply: encode", 1, lambda: wire.encode(wire.Command(0, ext=wire.header_fields(found)))),
        ("route body, bare keys", 1, lambda: encode_body(route)),
        ("route body, quoted keys", 1, lambda: encode_body(route, Dialect.STANDARD)),
        ("receipt text", 1, lambda: handle.text),
        ("receipt parse", 1, lambda: Receipt.parse(text)),
    ]


def measure(call: Callable[[], object], messages: int) -> tuple[float, float]:
    """Messages a second of wall time and CPU microseconds a message, over at least SECONDS."""
    call()
    count, begin, begin_cpu = 0, time.perf_counter(), time.process_time()
    while (took := time.perf_counter() - begin) < SECONDS:
        for _ in range(100):
            call()
        count += 100 * messages
    return count / took, (time.process_time() - begin_cpu) / count * 1e6


def main() -> None:
    print(f"{'codec':<46}{'messages/s':>14}{'CPU us/message':>18}")
    for name, messages, call in cases():
        rate, cpu = measure(call, messages)
        print(f"{name:<46}{rate:>14,.0f}{cpu:>18.2f}")


if __name__ == "__main__":
    main()
