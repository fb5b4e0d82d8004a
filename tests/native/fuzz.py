# SPDX-License-Identifier: Apache-2.0
"""The lane under AddressSanitizer and UBSan, fed with broken frames: `make fuzz-native`.

    python -m tests.native.fuzz [--cases 1000000] [--seed 1]

Builds the modules with both sanitizers into a copy of the package, and runs itself in a process that has them loaded.
Frames are those of the equality test with bytes flipped, dropped, doubled, and lengths that lie; records, units and
properties likewise. Whatever reads or writes a byte outside its buffer, or overflows, ends the run.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from random import Random
from typing import Any

import hpack

from aerobee.protocol import bodies
from aerobee.protocol.bodies import BatchAck, BatchAckEntry
from aerobee.protocol.command import Command, request
from aerobee.protocol.headers.consume import AckMessage, BatchAckMessage, ChangeInvisible
from tests.native.bench import settled
from tests.native.doors import RECEIPTS, UNITS, Doors, grpc_ack, grpc_send, header_block
from tests.native.frames import frame, pop, properties, written

ROOT = Path(__file__).parents[2]
FLAGS = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer", "-O1")


def build(place: Path, flags: tuple[str, ...]) -> None:
    """A package with modules built so, below `place`."""
    sys.path.insert(0, str(ROOT))
    from hatch_build import compiled

    package = place / "aerobee"
    package.mkdir()
    for entry in (ROOT / "aerobee").iterdir():
        if entry.name != "native":
            (package / entry.name).symlink_to(entry)
    modules = compiled(ROOT, place / "build", flags)
    shutil.copytree(
        ROOT / "aerobee" / "native",
        package / "native",
        ignore=shutil.ignore_patterns("*.so", "*.p[xy][xd]", "*.h"),
    )
    for module in modules:
        shutil.copy(module, package / "native")
    (place / "tests").symlink_to(ROOT / "tests")


def sanitized(place: Path) -> dict[str, str]:
    """The environment to run it in."""
    build(place, FLAGS)
    runtimes = [
        subprocess.check_output([os.environ.get("CC", "cc"), f"-print-file-name={name}"], text=True).strip()
        for name in ("libasan.so", "libubsan.so")
    ]
    return {
        **os.environ,
        "PYTHONPATH": str(place),
        "LD_PRELOAD": " ".join(runtimes),
        "ASAN_OPTIONS": "detect_leaks=0",  # the interpreter itself leaves some
        "UBSAN_OPTIONS": "print_stacktrace=1",
        "PYTHONMALLOC": "malloc",  # so that every object has its own block to step out of
    }


def broken(random: Random, data: bytes) -> bytes:
    made = bytearray(data)
    for _ in range(random.choice([0, 1, 1, 2, 5])):
        if not made:
            break
        at = random.randrange(len(made))
        way = random.randrange(7)
        if way == 0:
            made[at] = random.randrange(256)
        elif way == 1:
            del made[at : at + random.choice([1, 4, 50])]
        elif way == 2:
            made[at:at] = made[at : at + random.choice([1, 4, 50])]
        elif way == 3:
            made[at : at + 4] = random.choice(
                [b"\xff\xff\xff\xff", b"\0\0\0\0", b"\x7f\xff\xff\xff", b"\x80\0\0\0"]
            )
        elif way == 4:
            made[at:at] = random.choice(
                [b'"', b"\\", b"\\u00", b"{", b"}", b"\x01", b"\x02", b"\xf0\x9f", b"99999999999999999999"]
            )
        elif way == 5:
            made[:4] = (len(made) + random.choice([-5, -4, -3, 0, 9])).to_bytes(4, "big", signed=True)
        else:
            made[5:8] = random.randrange(len(made) + 9).to_bytes(3, "big")
    return bytes(made)


def popped(random: Random, number: int) -> Command:
    """Of what goes with POP: most of it of messages that nobody popped."""
    place: dict[str, Any] = {
        "consumer_group": random.choice(["billing", "g"]),
        "topic": "orders",
        "queue_id": random.choice([0, 1, -1, 2**40]),
        "offset": number % 40,
        "extra_info": random.choice(RECEIPTS),
    }
    kind = random.randrange(4)
    if kind == 0:
        return request(AckMessage(**place))
    if kind == 1:
        return request(ChangeInvisible(**place, invisible_time=random.choice([0, -5, 9_000, 2**50])))
    if kind == 2:
        entry = BatchAckEntry(
            consumer_group="g", topic="orders", pop_time=number, bits=random.choice(["AQ==", "x"])
        )
        return request(BatchAckMessage(), bodies.encode(BatchAck(acks=[entry])))
    return pop(random, 1_700_000_000_000)


async def run(cases: int, seed: int) -> None:
    random = Random(seed)
    with tempfile.TemporaryDirectory() as directory:
        doors = Doors(Path(directory))
        send, ack, bench = grpc_send(), grpc_ack(), doors.bench
        for number in range(cases):
            data = b"".join(broken(random, frame(random, number)) for _ in range(random.choice([1, 1, 3])))
            if random.random() < 0.3:
                data = broken(random, written(random, popped(random, number), number)) + data
            doors.port(data)
            doors.request(data)
            doors.signature(data)
            doors.properties(broken(random, properties(random, number).encode()))
            units = broken(random, random.randbytes(8).rjust(8, b"\0") + (40).to_bytes(4) + bytes(8)) * 3
            doors.records(units[:UNITS].ljust(UNITS, b"\0") + data)
            doors.grpc_send(broken(random, send))
            doors.grpc_ack(broken(random, ack))
            encoder = hpack.Encoder()
            blocks = [header_block(encoder, huffman=random.random() < 0.7) for _ in range(2)]
            doors.grpc_headers(b"".join(broken(random, block) for block in blocks))
            if number % 997 == 0:
                bench.broker.store.tick(bench.clock.wall())
                bench.clock.advance(1_000)
                await settled()
                doors.new_connection()
        doors.close()
    print(f"{cases} cases, seed {seed}: nothing found")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cases", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--here", action="store_true", help="without building: the modules that are loaded")
    options = parser.parse_args()
    if options.here:
        asyncio.run(run(options.cases, options.seed))
        return
    with tempfile.TemporaryDirectory(prefix="aerobee-fuzz-") as place:
        environment = sanitized(Path(place))
        arguments = ["--here", "--cases", str(options.cases), "--seed", str(options.seed)]
        command = [sys.executable, "-m", "tests.native.fuzz", *arguments]
        sys.exit(subprocess.run(command, env=environment, cwd=place, check=False).returncode)


if __name__ == "__main__":
    main()
