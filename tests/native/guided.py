# SPDX-License-Identifier: Apache-2.0
"""The lane under AddressSanitizer, led by libFuzzer to whatever it has not reached yet: `make fuzz-guided`.

    python -m tests.native.guided [--seconds 300] [--corpus DIR] [--sanitizer address|undefined]

Builds the modules with clang so that they tell which branches they take, and runs atheris (Google's binding of
libFuzzer) on all doors of the lane: the first byte of an input says which. It begins with sound inputs of every kind.
What it finds that leads somewhere new stays in the corpus for the next run; an input that breaks a bound is written to
`crash-...` beside it, and ends the run.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from random import Random

from tests.native.bench import settled
from tests.native.doors import Doors, grpc_ack, grpc_send, header_block
from tests.native.frames import frame, pop, properties, written
from tests.native.fuzz import build, popped

RUNTIMES = {"address": "asan_with_fuzzer.so", "undefined": "ubsan_with_fuzzer.so"}
LONGEST = 4096
SEEDS = 200


def sound_inputs() -> list[bytes]:
    """Some of every kind, each behind the number of its door."""
    import hpack

    random, made = Random(1), []
    for number in range(SEEDS):
        frames = frame(random, number)
        asked = written(random, pop(random, 1_700_000_000_000), number)
        acked = written(random, popped(random, number), number)
        encoder = hpack.Encoder()
        blocks = b"".join(header_block(encoder, huffman=number % 2 == 0) for _ in range(2))
        by_door = (
            (frames, asked, acked),
            (frames, asked, acked),
            (frames, acked),
            (properties(random, number).encode(),),
        )
        for door, inputs in enumerate(by_door):
            made += [bytes([door]) + data for data in inputs]
        made += [
            bytes([4]) + bytes(60) + frames,
            bytes([5]) + grpc_send(),
            bytes([6]) + grpc_ack(),
            bytes([7]) + blocks,
        ]
    return [data for data in made if len(data) <= LONGEST]


def fuzz(arguments: list[str]) -> None:
    """In a process that has the runtime loaded."""
    import atheris

    loop = asyncio.new_event_loop()
    doors = loop.run_until_complete(_opened())
    tried = 0

    def knock(data: bytes) -> None:
        nonlocal tried
        if not data:
            return
        asyncio._set_running_loop(loop)  # a turn of its own for each would be most of the work
        try:
            doors.all[data[0] % len(doors.all)](data[1:])
        finally:
            asyncio._set_running_loop(None)
        tried += 1
        if tried % 1_000 == 0:
            loop.run_until_complete(_cleared(doors))

    atheris.Setup(["guided", *arguments], knock, enable_python_coverage=False)
    atheris.Fuzz()


async def _opened() -> Doors:
    return Doors(Path(tempfile.mkdtemp(prefix="aerobee-guided-store-")))


async def _cleared(doors: Doors) -> None:
    """Of what has piled up behind the port."""
    doors.bench.broker.store.tick(doors.bench.clock.wall())
    doors.bench.clock.advance(1_000)
    await settled()
    doors.new_connection()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=int, default=300)
    parser.add_argument("--corpus", type=Path, default=Path(".fuzz-corpus"))
    parser.add_argument("--sanitizer", choices=sorted(RUNTIMES), default="address")
    parser.add_argument("--here", nargs=argparse.REMAINDER, help="libFuzzer's own arguments, in this process")
    options = parser.parse_args()
    if options.here is not None:
        fuzz(options.here)
        return
    import atheris

    corpus = options.corpus.resolve()
    corpus.mkdir(exist_ok=True)
    for number, data in enumerate(sound_inputs()):
        (corpus / f"sound-{number:05d}").write_bytes(data)
    runtime = Path(atheris.path(), RUNTIMES[options.sanitizer])
    with tempfile.TemporaryDirectory(prefix="aerobee-guided-") as place:
        os.environ.setdefault("CC", "clang")
        build(
            Path(place), (f"-fsanitize={options.sanitizer},fuzzer-no-link", "-fno-omit-frame-pointer", "-O1")
        )
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([place, atheris.path()]),
            "LD_PRELOAD": str(runtime),
            "ASAN_OPTIONS": "detect_leaks=0:allocator_may_return_null=1",
            "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1",
            "PYTHONMALLOC": "malloc",
        }
        command = [
            sys.executable,
            "-m",
            "tests.native.guided",
            "--here",
            f"-max_total_time={options.seconds}",
        ]
        command += [
            f"-max_len={LONGEST}",
            "-timeout=20",
            "-rss_limit_mb=4096",
            f"-artifact_prefix={corpus}/",
            str(corpus),
        ]
        sys.exit(subprocess.run(command, env=environment, cwd=place, check=False).returncode)


if __name__ == "__main__":
    main()
