# SPDX-License-Identifier: Apache-2.0
"""A load on one connection to a broker of its own process, and what it costs the broker in CPU per message.

    python benchmarks/wire_load.py [--messages 100000] [--size 128] [--outstanding 64] [--batch 1]

Prints the send rate, the broker's CPU time per message, and the same for pulling everything back.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from pathlib import Path

import psutil

sys.path.insert(0, str(Path(__file__).parent))

from latency import served

from aerobee.net.pool import Pool
from aerobee.protocol import batch
from aerobee.protocol.batch import BatchItem
from aerobee.protocol.command import Command, encode, request
from aerobee.protocol.headers.consume import PullMessage, PullResult
from aerobee.protocol.headers.produce import SendBatch, SendMessageV2

QUEUES = 4
PROPERTIES = "KEYS\x01k{0}\x02UNIQ_KEY\x017F0000010F2A18B4AAC2{0:012X}\x02WAIT\x01true\x02TAGS\x01TagA\x02"


class Load(asyncio.Protocol):
    """Keeps `outstanding` requests under way; counts answers by their frames, decoding none."""

    def __init__(self, frames: list[bytes], outstanding: int) -> None:
        self._frames = iter(frames)
        self._left = len(frames)
        self._outstanding = outstanding
        self._buffer = b""
        self.done = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self._write(self._outstanding)

    def _write(self, count: int) -> None:
        frames = [frame for _, frame in zip(range(count), self._frames, strict=False)]
        if frames:
            self._transport.write(b"".join(frames))  # type: ignore[attr-defined]

    def data_received(self, data: bytes) -> None:
        buffer, at, answered = self._buffer + data, 0, 0
        while len(buffer) - at >= 4 and len(buffer) - at >= (size := int.from_bytes(buffer[at : at + 4]) + 4):
            if b'"code":0' not in buffer[at + 8 : at + 40]:
                self.done.set_exception(RuntimeError(buffer[at + 8 : at + size].decode(errors="replace")))
                return
            at += size
            answered += 1
        self._buffer = buffer[at:]
        self._left -= answered
        if self._left == 0:
            self.done.set_result(None)
        elif answered:
            self._write(answered)


def send_frames(options: argparse.Namespace) -> list[bytes]:
    body, now = b"x" * options.size, 1_700_000_000_000
    frames = []
    for number in range(0, options.messages, options.batch):
        place = {"topic": "load", "queue_id": number // options.batch % QUEUES, "born_timestamp": now}
        if options.batch == 1:
            header = SendMessageV2(
                producer_group="load", properties=PROPERTIES.format(number), reconsume_times=0, **place
            )
            command = request(header, body)
        else:
            items = [BatchItem(0, body, PROPERTIES.format(number + n)) for n in range(options.batch)]
            command = request(SendBatch(producer_group="load", batch=True, **place), batch.encode(items))
        command.opaque = number
        frames.append(encode(command))
    return frames


def cpu_seconds(pid: int) -> float:
    times = psutil.Process(pid).cpu_times()
    return float(times.user + times.system)


async def measure_send(address: str, pid: int, options: argparse.Namespace) -> None:
    frames = send_frames(options)
    host, _, port = address.rpartition(":")
    began, cpu = time.perf_counter(), cpu_seconds(pid)
    transport, load = await asyncio.get_running_loop().create_connection(
        lambda: Load(frames, options.outstanding), host, int(port)
    )
    await load.done
    took, cpu = time.perf_counter() - began, cpu_seconds(pid) - cpu
    transport.close()
    rate, cost = options.messages / took, cpu / options.messages * 1e6
    print(f"send size={options.size} batch={options.batch} rate={rate:.0f}/s broker_cpu_us={cost:.1f}")


async def measure_pull(address: str, pid: int, options: argparse.Namespace) -> None:
    pool = Pool()
    connection = await pool.get(address)
    began, cpu, count = time.perf_counter(), cpu_seconds(pid), 0
    for queue_id in range(QUEUES):
        offset = 0
        while True:
            answer = await _pull(connection.start_call, queue_id, offset)
            if answer.code != 0:
                break
            offset_after = answer.fields(PullResult).next_begin_offset
            count += offset_after - offset
            offset = offset_after
    took, cpu = time.perf_counter() - began, cpu_seconds(pid) - cpu
    assert count == options.messages, f"{count} of {options.messages} came back"
    print(f"pull by 32 rate={count / took:.0f}/s broker_cpu_us={cpu / count * 1e6:.1f}")
    await pool.close()


async def _pull(call: object, queue_id: int, offset: int) -> Command:
    header = PullMessage(
        consumer_group="load",
        topic="load",
        queue_id=queue_id,
        queue_offset=offset,
        sys_flag=4,
        subscription="*",
    )
    return await call(request(header))  # type: ignore[operator, no-any-return]


async def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--size", type=int, default=128)
    parser.add_argument("--outstanding", type=int, default=64)
    parser.add_argument("--batch", type=int, default=1)
    options = parser.parse_args()
    async with served() as (address, pid):
        await measure_send(address, pid, options)
        await measure_pull(address, pid, options)


if __name__ == "__main__":
    asyncio.run(main())
