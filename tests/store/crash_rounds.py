# SPDX-License-Identifier: Apache-2.0
"""Kill -9 at random moments, again and again, on one store: run by test_store_crash.py in a process of its own.

Each round forks a worker that sends as fast as it can and reports every acknowledged message through a pipe, kills it
after a random number of reports, opens the store and looks for all that was ever acknowledged.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import shutil
import signal
import sys
from pathlib import Path

from aerobee.clock import SystemClock
from aerobee.protocol.message import Record, decode
from aerobee.settings import StoreConfig
from aerobee.store.message_store import MessageStore, ReadLimit

TOPICS, QUEUES, SENDERS = 5, 3, 8


def open_store(root: Path, mode: str) -> MessageStore:
    config = StoreConfig(
        flush=mode, flush_interval_ms=5, commit_log_segment_bytes=1 << 18,
        consume_queue_units=500, index_slots=1000, index_entries=5000, disk_clean_ratio=1.0, disk_full_ratio=1.0,
    )  # fmt: skip
    return MessageStore.open(root, config, SystemClock())


def work(root: Path, mode: str, pipe: int, seed: int) -> None:
    """Send until killed."""
    dice = random.Random(seed)
    store = open_store(root, mode)

    def message(topic: str, queue_id: int) -> Record:
        tag = dice.choice("abc")
        text = (
            f"UNIQ_KEY\x01{dice.getrandbits(128):032X}\x02TAGS\x01{tag}\x02KEYS\x01k{dice.randrange(99)}\x02"
        )
        return Record(topic, dice.randbytes(dice.choice((0, 10, 100, 3000))), text, queue_id)

    async def send() -> None:
        while True:
            topic, queue_id = f"t{dice.randrange(TOPICS)}", dice.randrange(QUEUES)
            records = [message(topic, queue_id) for _ in range(dice.choice((1, 1, 1, 8)))]
            store.append_batch(records) if len(records) > 1 else store.append(records[0])
            await store.durable(records[-1].physical_offset + records[-1].size)
            for r in records:
                os.write(pipe, f"{r.topic} {r.queue_id} {r.queue_offset} {r.body_crc} {r.size}\n".encode())
            await asyncio.sleep(0)

    async def tick() -> None:
        while True:
            store.tick(SystemClock().now())
            if dice.random() < 0.2:
                store._next_checkpoint = 0
            await asyncio.sleep(0.002)

    async def everything() -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(tick())
            for _ in range(SENDERS):
                tasks.create_task(send())

    asyncio.run(everything())


def one_round(root: Path, mode: str, seed: int, acked: dict[tuple[str, int, int], tuple[int, int]]) -> None:
    reader, writer = os.pipe()
    pid = os.fork()
    if not pid:
        os.close(reader)
        try:
            work(root, mode, writer, seed)
        finally:
            os._exit(1)
    os.close(writer)
    wanted, data = random.Random(seed).randrange(1, 300), b""
    while data.count(b"\n") < wanted and (part := os.read(reader, 1 << 16)):
        data += part
    os.kill(pid, signal.SIGKILL)
    while part := os.read(reader, 1 << 16):
        data += part
    os.close(reader)
    _, status = os.waitpid(pid, 0)
    assert os.WIFSIGNALED(status), "the worker died by itself"
    for line in data.decode().split("\n")[:-1]:
        topic, queue_id, offset, crc, size = line.split()
        key = topic, int(queue_id), int(offset)
        assert key not in acked, f"{key} was given twice"
        acked[key] = int(crc), int(size)


def contents(store: MessageStore) -> dict[tuple[str, int, int], tuple[int, int]]:
    found = {}
    for topic in store.topics():
        for queue_id in store.queue_ids(topic):
            offset = 0
            while offset < store.max_offset(topic, queue_id):
                answer = store.read(topic, queue_id, offset, ReadLimit(max_messages=500, max_bytes=1 << 30))
                for at, raw in zip(answer.offsets, answer.messages, strict=True):
                    record = decode(raw)
                    found[topic, queue_id, at] = record.body_crc, record.size
                assert len(answer.messages) == answer.next_offset - offset, "a hole among the messages"
                offset = answer.next_offset
    return found


def index_of(root: Path) -> list[bytes]:
    return [path.read_bytes() for path in sorted((root / "index").iterdir())]


def compare_with_rebuild(root: Path, mode: str, found: object) -> None:
    anew = root.parent / "anew"
    anew.mkdir()
    shutil.copytree(root / "commitlog", anew / "commitlog")
    store = open_store(anew, mode)
    assert contents(store) == found, "queues differ from a rebuild"
    units = {key: store.unit(*key) for key in contents(store)}
    store.close()
    again = open_store(root, mode)
    assert units == {key: again.unit(*key) for key in contents(again)}, "units differ from a rebuild"
    again.close()
    assert index_of(root) == index_of(anew), "index differs from a rebuild"
    shutil.rmtree(anew)


def main() -> None:
    root, mode, rounds, seed = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    acked: dict[tuple[str, int, int], tuple[int, int]] = {}
    torn = unclean = dispatched = 0
    for number in range(rounds):
        one_round(root, mode, seed + number, acked)
        store = open_store(root, mode)
        report = store.recovery
        found = contents(store)
        lost = [key for key, value in acked.items() if found.get(key) != value]
        assert not lost, f"round {number}: lost or changed {lost[:3]} of {len(acked)}"
        assert report.corrupt == 0
        acked.update(found)  # what was stored and not acknowledged is kept from now on, too
        torn += report.truncated_bytes > 0
        unclean += not report.clean
        dispatched += report.dispatched
        store.close()
        if number % 13 == 12 or number == rounds - 1:
            compare_with_rebuild(root, mode, found)
    totals = {
        "rounds": rounds,
        "unclean": unclean,
        "messages": len(acked),
        "torn": torn,
        "redispatched": dispatched,
    }
    sys.stdout.write(json.dumps(totals))


if __name__ == "__main__":
    main()
