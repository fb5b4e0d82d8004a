# SPDX-License-Identifier: Apache-2.0
"""Reading a store directory without a broker: Aerobee's or the Java broker's, live, stopped, or a backup.

Consume-queue files are read as arrays of 20-byte units; records are then taken from the commit-log files in log order,
which touches every page once however many queues the topic has. Sealed log files are mapped; the last one, which a live
broker may still be writing, is read with `pread`, so that a truncation under us is an error and not a SIGBUS.
A live broker's newest messages are visible once their queue units reached the disk (Aerobee: within a second).
"""

from __future__ import annotations

import itertools
import mmap
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pyarrow as pa

from aerobee.errors import TopicNotFound
from aerobee.protocol.filters import compile_filter
from aerobee.spark import columns
from aerobee.spark.plan import DataLoss, Range

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from aerobee.spark.options import Read

UNIT = np.dtype([("position", ">i8"), ("size", ">i4"), ("tag", ">i8")])
_FILLER = 0x7FFFFFFF
BROKER = "store"  # the broker name of rows read from files, unless the store says another


class Queue:
    """One consume queue as files: `units(start, end)` by queue offset."""

    def __init__(self, folder: Path) -> None:
        self._files = sorted(p for p in folder.iterdir() if p.name.isdigit())
        self._sizes = [p.stat().st_size for p in self._files]
        self.low, self.high = self._bounds()

    def _bounds(self) -> tuple[int, int]:
        if not self._files:
            return 0, 0
        first = np.memmap(self._files[0], UNIT, "r") if self._sizes[0] >= 20 else np.empty(0, UNIT)
        start = int(self._files[0].name) // 20
        real = np.flatnonzero((first["size"] > 0) & (first["size"] != _FILLER))
        low = start + (int(real[0]) if len(real) else 0)
        for path, size in reversed(list(zip(self._files, self._sizes, strict=True))):
            if size < 20:
                continue
            used = _used(np.memmap(path, UNIT, "r"))
            if used:
                return low, int(path.name) // 20 + used
        return low, low

    def units(self, start: int, end: int) -> npt.NDArray[Any]:
        parts = []
        for path, size in zip(self._files, self._sizes, strict=True):
            base = int(path.name) // 20
            a, b = max(start - base, 0), min(end - base, size // 20)
            if a < b:
                parts.append(np.fromfile(path, UNIT, b - a, offset=a * 20))
        return np.concatenate(parts) if parts else np.empty(0, UNIT)


def _used(units: npt.NDArray[Any]) -> int:
    """How many units are written: files are preallocated with zeros, so bisect for the first empty one."""
    low, high = 0, len(units)
    while low < high:
        middle = (low + high) // 2
        if units[middle]["size"] > 0:
            low = middle + 1
        else:
            high = middle
    return low


class StoreHeads:
    def __init__(self, root: str, assign: dict[str, dict[str, list[int]]] | None = None) -> None:
        self.root = store_root(root)
        self._assign = assign

    def topics(self) -> list[str]:
        folder = self.root / "consumequeue"
        return sorted(p.name for p in folder.iterdir() if p.is_dir()) if folder.is_dir() else []

    def queues(self, topic: str) -> dict[str, dict[str, tuple[int, int]]]:
        folder = self.root / "consumequeue" / topic
        if not folder.is_dir():
            raise TopicNotFound(
                f"{self.root} holds no topic {topic!r}; it holds: {', '.join(self.topics()[:20])}"
            )
        found = {p.name: Queue(p) for p in folder.iterdir() if p.name.isdigit()}
        wanted = {str(q) for qs in (self._assign or {}).get(topic, {}).values() for q in qs}
        return {BROKER: {n: (q.low, q.high) for n, q in found.items() if not wanted or n in wanted}}

    def offset_at(self, topic: str, broker: str, queue: int, timestamp: int) -> int:
        """The first offset stored at or after `timestamp`, by bisection."""
        cq = Queue(self.root / "consumequeue" / topic / str(queue))
        log = Log(self.root)
        low, high = cq.low, cq.high
        while low < high:
            middle = (low + high) // 2
            unit = cq.units(middle, middle + 1)
            stored = log.store_time(int(unit["position"][0])) if len(unit) else None
            if stored is not None and stored >= timestamp:
                high = middle
            else:
                low = middle + 1
        return low


def store_root(path: str) -> Path:
    """The directory that holds `commitlog`: the store itself, or an Aerobee data directory around it."""
    root = Path(path)
    for candidate in (root, root / "store"):
        if (candidate / "commitlog").is_dir():
            return candidate
    raise FileNotFoundError(f"storePath {path!r} holds no commitlog directory, nor does {path}/store")


class Log:
    """The commit-log files; the bytes of one file at a time."""

    def __init__(self, root: Path) -> None:
        files = sorted(p for p in (root / "commitlog").iterdir() if p.name.isdigit())
        self.starts = np.array([int(p.name) for p in files], np.int64)
        self._files = files
        self._last: tuple[int, pa.Buffer] | None = None

    def store_time(self, position: int) -> int | None:
        index = int(np.searchsorted(self.starts, position, side="right")) - 1
        if index < 0:
            return None
        with self._files[index].open("rb") as file:
            head = os.pread(file.fileno(), 96, position - int(self.starts[index]))
        sys_flag = int.from_bytes(head[36:40], "big")
        at = 68 if sys_flag & 0x10 else 56
        return int.from_bytes(head[at : at + 8], "big") if len(head) >= at + 8 else None

    def bytes(self, index: int, low: int, high: int) -> tuple[pa.Buffer, int]:
        """(buffer, offset of its first byte within the file) covering [low, high) of file `index`."""
        path = self._files[index]
        if index == len(self._files) - 1:
            with path.open("rb") as file:
                return pa.py_buffer(os.pread(file.fileno(), high - low, low)), low
        if self._last is None or self._last[0] != index:
            with path.open("rb") as file:
                self._last = index, pa.py_buffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        return self._last[1], 0


def scan(root: Path, parts: list[Range], names: tuple[str, ...], options: Read) -> Iterator[columns.Decoded]:
    """Record batches of the ranges, in commit-log order, of the options' batch size."""
    codes = compile_filter("TAG", options.tags).codes if options.tags != "*" else None
    units = _gather_units(root, parts, codes)
    log = Log(root)
    file_of = np.searchsorted(log.starts, units["position"], side="right") - 1
    gone = file_of < 0  # older than the oldest file: retention took them
    if gone.any() and options.fail_on_data_loss:
        named = ", ".join(f"{part.topic}/{part.queue} {part.start}..{part.end}" for part in parts[:3])
        raise DataLoss(
            f"{int(gone.sum())} messages of {named} lie before the oldest commit-log file ({int(log.starts[0])})."
            " Set failOnDataLoss=false to go on with what is there"
        )
    units, file_of = units[~gone], file_of[~gone]
    for index in np.unique(file_of):
        inside = units[file_of == index]
        local = inside["position"].astype(np.int64) - log.starts[index]
        ends = local + inside["size"]
        for a, b in _cuts(inside["size"].astype(np.int64), options.batch_rows, options.batch_bytes):
            buffer, base = log.bytes(int(index), int(local[a]), int(ends[b - 1]))
            yield columns.decode(buffer, local[a:b] - base, names, BROKER)


def _gather_units(root: Path, parts: list[Range], tags: frozenset[int] | None) -> npt.NDArray[Any]:
    found = [
        Queue(root / "consumequeue" / part.topic / str(part.queue)).units(part.start, part.end)
        for part in parts
    ]
    units = np.concatenate(found) if found else np.empty(0, UNIT)
    units = units[(units["size"] > 0) & (units["size"] != _FILLER)]
    if tags is not None:
        units = units[np.isin(units["tag"].astype(np.int64), np.array(sorted(tags), np.int64))]
    return np.asarray(units[np.argsort(units["position"], kind="stable")])


def _cuts(sizes: npt.NDArray[np.int64], rows: int, size: int) -> Iterator[tuple[int, int]]:
    """Runs of rows, closed at `rows` rows or when their bytes pass `size`."""
    total = np.cumsum(sizes)
    start, n = 0, len(sizes)
    while start < n:
        before = int(total[start - 1]) if start else 0
        by_size = int(np.searchsorted(total, before + size, side="left")) + 1
        stop = min(n, start + rows, max(by_size, start + 1))
        yield start, stop
        start = stop


def physical_split(root: Path, parts: list[Range], tasks: int) -> list[list[Range]]:
    """The ranges cut at common commit-log positions into `tasks` of equal size: each task reads one stretch of the
    log, for all queues at once."""
    if tasks <= 1 or not parts:
        return [parts] if parts else []
    queues = {part: Queue(root / "consumequeue" / part.topic / str(part.queue)) for part in parts}
    positions = {
        part: queues[part].units(part.start, part.end)["position"].astype(np.int64) for part in parts
    }
    everything = np.sort(np.concatenate(list(positions.values())))
    if not len(everything):
        return []
    edges = everything[np.linspace(0, len(everything), tasks, endpoint=False, dtype=np.int64)[1:]]
    bins: list[list[Range]] = [[] for _ in range(tasks)]
    for part, held in positions.items():
        cuts = [0, *np.searchsorted(held, edges).tolist(), len(held)]
        for i, (a, b) in enumerate(itertools.pairwise(cuts)):
            if a < b:
                bins[i].append(msgspec.structs.replace(part, start=part.start + a, end=part.start + b))
    return [b for b in bins if b]
