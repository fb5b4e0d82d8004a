# SPDX-License-Identifier: Apache-2.0
"""kill -9 with messages in flight: what was not acked comes back in time, what was acked on disk does not.

AEROBEE_KILL_MESSAGES=100000 is the full size; the default keeps the suite short.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, NamedTuple

import pytest

from aerobee.clock import SystemClock
from aerobee.net.pool import Pool
from aerobee.protocol import names
from aerobee.protocol.batch import BatchItem
from aerobee.protocol.batch import encode as encode_batch
from aerobee.protocol.bodies import BatchAck, BatchAckEntry, encode
from aerobee.protocol.command import request
from aerobee.protocol.headers.consume import BatchAckMessage, PopMessage, PopResult, PullMessage
from aerobee.protocol.headers.produce import SendMessageV2
from aerobee.protocol.message import decode_all
from aerobee.protocol.receipt import bits_text, parse_msg_offsets, parse_start_offsets

if TYPE_CHECKING:
    from pathlib import Path

    from aerobee.net.connection import Connection

pytestmark = pytest.mark.slow

MESSAGES = int(os.environ.get("AEROBEE_KILL_MESSAGES", "6000"))
INVISIBLE_MS = 12_000 + MESSAGES // 4
TOPIC, GROUP, QUEUES = "orders", "billing", 4
PORTS = ["--namesrv-port", "0", "--broker-port", "0", "--grpc-port", "-1", "--http-port", "-1"]
clock = SystemClock()


class Leased(NamedTuple):
    """One popped batch of one queue."""

    result: PopResult
    queue_id: int
    start: int
    offsets: list[int]
    bodies: list[str]

    @property
    def due(self) -> int:
        return self.result.pop_time + INVISIBLE_MS


def serve(data: Path) -> tuple[subprocess.Popen[str], str]:
    arguments = [sys.executable, "-m", "aerobee.cli.main", "serve", "--data", str(data), *PORTS]
    process = subprocess.Popen([*arguments, "--log-level", "ERROR"], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    line = process.stdout.readline()
    return process, re.findall(r"broker=(\S+)", line)[0]


def end(process: subprocess.Popen[str], how: signal.Signals) -> None:
    process.send_signal(how)
    process.communicate()


async def send_all(broker: Connection) -> None:
    for first in range(0, MESSAGES, 100):
        items = [BatchItem(0, str(n).encode()) for n in range(first, min(first + 100, MESSAGES))]
        header = SendMessageV2(
            topic=TOPIC, queue_id=first // 100 % QUEUES, default_topic_queue_nums=QUEUES, batch=True
        )
        command = request(header, encode_batch(items))
        command.code = 320
        answer = await broker.call(command, 30_000)
        assert answer.code == 0, answer.remark


async def pop_all(broker: Connection) -> list[Leased]:
    found: list[Leased] = []
    while sum(len(one.offsets) for one in found) < MESSAGES:
        header = PopMessage(
            consumer_group=GROUP, topic=TOPIC, invisible_time=INVISIBLE_MS, born_time=clock.now(), exp="*"
        )
        answer = await broker.call(request(header), 30_000)
        assert answer.code == 0, answer.remark
        result = answer.fields(PopResult)
        bodies = [record.body.decode() for record in decode_all(answer.body)]
        starts = parse_start_offsets(result.start_offset_info)
        for key, offsets in parse_msg_offsets(result.msg_offset_info).items():
            found.append(Leased(result, key[1], starts[key], offsets, bodies[: len(offsets)]))
            del bodies[: len(offsets)]
    return found


async def ack(broker: Connection, batch: Leased) -> None:
    entry = BatchAckEntry(
        consumer_group=GROUP,
        topic=TOPIC,
        start_offset=batch.start,
        queue_id=batch.queue_id,
        revive_queue_id=batch.result.revive_qid,
        pop_time=batch.result.pop_time,
        invisible_time=INVISIBLE_MS,
        bits=bits_text(offset - batch.start for offset in batch.offsets),
    )
    assert (await broker.call(request(BatchAckMessage(), encode(BatchAck(acks=[entry]))), 30_000)).code == 0


async def read_retries(broker: Connection, wanted: int, deadline: int) -> dict[str, int]:
    """Body -> when it was stored in the retry topic, for every copy there; reads until the deadline."""
    stored: dict[str, int] = {}
    offset = 0
    while clock.now() < deadline and len(stored) < wanted:
        header = PullMessage(
            consumer_group="reader",
            topic=names.pop_retry_topic(TOPIC, GROUP),
            queue_id=0,
            queue_offset=offset,
            sys_flag=4,
            max_msg_nums=32,
        )
        answer = await broker.call(request(header), 30_000)
        if answer.code != 0:
            await asyncio.sleep(0.1)
            continue
        for record in decode_all(answer.body):
            body = record.body.decode()
            assert body not in stored, f"{body} came back twice"
            stored[body] = record.store_timestamp
            offset = record.queue_offset + 1
    return stored


@pytest.mark.seed("S000-18")
async def test_after_a_kill_unacked_messages_come_back_in_time_and_acked_ones_do_not(tmp_path):
    process, address = serve(tmp_path)
    try:
        pool = Pool()
        broker = await pool.get(address)
        await send_all(broker)
        batches = await pop_all(broker)
        await asyncio.sleep(3.6)  # until the last of them is in the revive log
        acked = batches[::3]
        for batch in acked:
            await ack(broker, batch)
        end(process, signal.SIGKILL)
        await pool.close()
        killed = clock.now()

        process, address = serve(tmp_path)
        started = clock.now()
        pool = Pool()
        broker = await pool.get(address)
        done = {body for batch in acked for body in batch.bodies}
        due = {body: batch.due for batch in batches if batch not in acked for body in batch.bodies}
        header = PopMessage(
            consumer_group=GROUP,
            topic=TOPIC,
            invisible_time=600_000,
            born_time=clock.now(),
            exp="*",
            queue_id=0,
        )
        early = await broker.call(request(header), 30_000)
        if started < min(due.values()):
            assert early.code == 210, "everything is acked or leased: nothing is to be had"
        await asyncio.sleep(
            max(0, max(due.values()) + 1_000 - clock.now()) / 1000
        )  # reading would slow it down
        back = await read_retries(broker, len(due), max(due.values()) + 60_000)
        await pool.close()
    finally:
        end(process, signal.SIGTERM)
    assert not back.keys() & done, "acked on disk, and yet delivered again"
    assert back.keys() == due.keys()
    late = sorted(at - max(due[body], started) for body, at in back.items())
    assert min(at - due[body] for body, at in back.items()) >= 0, "before its time"
    print(  # noqa: T201 - the figures of the run, with -s
        f"killed with {len(due) + len(done):,} in flight, {len(done):,} acked; down {started - killed} ms; "
        f"redelivered {len(back):,}, late p50 {late[len(late) // 2]} ms, p99 {late[len(late) * 99 // 100]} ms, "
        f"most {late[-1]} ms"
    )
    if "AEROBEE_KILL_MESSAGES" in os.environ:
        assert late[len(late) * 99 // 100] <= 1_000
