# SPDX-License-Identifier: Apache-2.0
"""The lane against its reference: the same frames, cut anywhere, give the same answers, files, figures and wake-ups."""

from __future__ import annotations

import os
from random import Random
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from aerobee.protocol.frames import FrameDecoder
from aerobee.store import appender
from tests.native.bench import SMALL, Bench, settled
from tests.native.frames import cut, frame

if TYPE_CHECKING:
    from pathlib import Path

MOST = int(os.environ.get("AEROBEE_SEEDS", "16"))
SEEDS = [seed if seed < 2 else pytest.param(seed, marks=pytest.mark.slow) for seed in range(MOST)]
FRAMES = 120


def pieces(random: Random, count: int) -> list[tuple[int, bytes]]:
    """What arrives on which of three connections."""
    numbers = iter(range(10**9))
    streams = [
        cut(random, b"".join(frame(random, next(numbers)) for _ in range(count // 3))) for _ in range(3)
    ]
    arriving = []
    while any(streams):
        number = random.choice([n for n in range(3) if streams[n]])
        arriving.append((number, streams[number].pop(0)))
    return arriving


async def driven(bench: Bench, arriving: list[tuple[int, bytes]], pauses: Random) -> list[bytes]:
    remotes = [("127.0.0.1", 40_000), ("10.0.0.7", 50_000), ("::1", 60_000)]
    connections = [bench.connect(remote) for remote in remotes]
    for number, data in arriving:
        if not bench.wires[number].closed:
            connections[number].data_received(data)
        await settled()
        if pauses.random() < 0.1:
            bench.clock.advance(pauses.choice([1, 700, 6_000]))
            await settled()
            bench.broker.parked.tick(bench.clock.now())
            bench.broker.store.tick(bench.clock.wall())
            await settled()
    bench.clock.advance(60_000)
    await settled()
    return [wire.written for wire in bench.wires]


@pytest.mark.parametrize("seed", SEEDS)
async def test_the_lane_does_what_python_does(
    seed: int, tmp_path: Path, same_choices: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    random = Random(seed)
    if seed % 2:  # small files have room for several runs then, not only for one
        monkeypatch.setattr(appender, "RUN_BYTES", 4_000)
        monkeypatch.setattr(appender, "RUN_KEYS", 20)
    config = msgspec.structs.replace(SMALL, record_check=seed % 5 != 4)
    arriving = pieces(random, FRAMES)
    outcomes: list[Any] = []
    for name, lane in (("python", False), ("lane", True)):
        bench = Bench(tmp_path / name, config, lane)
        answers = await driven(bench, arriving, Random(seed))
        figures = bench.figures()
        if lane:
            assert bench.runs > 5, "the lane took next to nothing"
        for wire in bench.wires:
            wire.close()
        bench.broker.parked.stop()
        await settled()
        bench.broker.store.close()
        outcomes.append((answers, figures, bench.files()))
    reference, native = outcomes
    for ours, theirs in zip(native[0], reference[0], strict=True):
        for mine, right in zip(FrameDecoder().feed(ours), FrameDecoder().feed(theirs), strict=True):
            assert mine == right
    assert native[1] == reference[1]
    assert native[2].keys() == reference[2].keys()
    for name, data in reference[2].items():
        assert native[2][name] == data, name
