# SPDX-License-Identifier: Apache-2.0
"""Reading a store directory without a broker: Aerobee's or the Java broker's, live, stopped, or a backup.

Consume-queue files are read as arrays of 20-byte units; records are then taken from the commit-log files in log order,
which touches every page once however many queues the topic has. Log files are mapped, the one being written too: no
broker makes them shorter while it runs, and what a restart cuts off is the torn last record, which no unit points at.
A live broker's newest messages are visible once their queue units reached the disk (Aerobee: within a second).
"""

from __future__ import annotations

import itertools
import logging
import mmap
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import msgspec
import numpy as np
import pyarrow as pa

from aerobee.errors import AerobeeError, TopicNotFound
from aerobee.protocol.filters import compile_filter
from aerobee.spark.decoding import columns
from aerobee.spark.reading.plan import Bounds, DataLoss, Look, Range
from aerobee.store import platform

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import numpy.typing as npt

    from aerobee.spark.decoding.spans import Ints
    from aerobee.spark.options import Read
    from aerobee.spark.reading.plan import Place

logger = logging.getLogger("aerobee.spark")

UNIT = np.dtype([("position", ">i8"), ("size", ">i4"), ("tag", ">i8")])
_FILLER = 0x7FFFFFFF
UNITS_AHEAD = 200_000  # queue units of a task in memory at a time
UNITS_AT_ONCE = 4_096  # looked at together when searching for the first
SAMPLES = 200_000  # units looked at to cut the log into tasks
BROKER = "store"  # the broker name of rows read from files, unless the store says another


class Queue:
    """One consume queue as files: `units(start, end)` by queue offset."""

    def __init__(self, folder: Path) -> None:
        self._files: list[Path] = []
        self._sizes: list[int] = []
        with suppress(FileNotFoundError):  # its topic is being deleted under us: a queue of nothing
            files = sorted(p for p in folder.iterdir() if p.name.isdigit())
            self._files, self._sizes = files, [p.stat().st_size for p in files]

    @cached_property
    def bounds(self) -> tuple[int, int]:
        """The first offset there is a message for, and the one behind the last."""
        try:
            return self._bounds()
        except FileNotFoundError:  # deleted meanwhile
            return 0, 0

    def _bounds(self) -> tuple[int, int]:
        if not self._files:
            return 0, 0
        low = int(self._files[0].name) // 20 + self._first_real(self._files[0], self._sizes[0])
        for path, size in reversed(list(zip(self._files, self._sizes, strict=True))):
            if size < 20:
                continue
            used = _used(np.memmap(path, UNIT, "r"))
            if used:
                return low, int(path.name) // 20 + used
        return low, low

    @staticmethod
    def _first_real(path: Path, size: int) -> int:
        """The first unit of a file that stands for a message: the first of all, but for what fills a gap."""
        units = np.memmap(path, UNIT, "r") if size >= 20 else np.empty(0, UNIT)
        for at in range(0, len(units), UNITS_AT_ONCE):
            real = np.flatnonzero(_is_real(units["size"][at : at + UNITS_AT_ONCE]))
            if len(real):
                return at + int(real[0])
        return 0

    def units(self, start: int, end: int) -> npt.NDArray[Any]:
        parts = []
        for path, size in zip(self._files, self._sizes, strict=True):
            base = int(path.name) // 20
            a, b = max(start - base, 0), min(end - base, size // 20)
            if a < b:
                with suppress(FileNotFoundError):  # the caller counts what is missing
                    parts.append(np.fromfile(path, UNIT, b - a, offset=a * 20))
        if len(parts) == 1:
            return parts[0]
        return np.concatenate(parts) if parts else np.empty(0, UNIT)

    def positions(self, start: int, end: int, step: int) -> npt.NDArray[np.int64]:
        """Log positions of every `step`th unit: enough to cut a large range without loading it."""
        parts = [np.empty(0, np.int64)]
        for path, size in zip(self._files, self._sizes, strict=True):
            base = int(path.name) // 20
            a, b = max(start - base, 0), min(end - base, size // 20)
            if a < b:
                with suppress(FileNotFoundError):
                    parts.append(np.memmap(path, UNIT, "r")[a:b:step]["position"].astype(np.int64))
        return np.concatenate(parts)

    def first_at(self, position: int, low: int, high: int) -> int:
        """The first offset of [low, high) whose record lies at or behind a log position, else `high`."""
        while low < high:
            middle = (low + high) // 2
            unit = self.units(middle, middle + 1)
            if len(unit) and int(unit["position"][0]) >= position:
                high = middle
            else:
                low = middle + 1
        return low


def real_units(units: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Without what was never written and what fills a gap."""
    real = _is_real(units["size"])
    return units if real.all() else np.asarray(units[real])


def _is_real(sizes: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    return np.asarray((sizes > 0) & (sizes != _FILLER), np.bool_)


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


class StoreQueues:
    def __init__(self, root: str, assign: dict[str, dict[str, list[int]]] | None = None) -> None:
        self.root = store_root(root)
        self._assign = assign

    def topics(self) -> list[str]:
        folder = self.root / "consumequeue"
        return sorted(p.name for p in folder.iterdir() if p.is_dir()) if folder.is_dir() else []

    def existing(self, topics: Sequence[str]) -> list[str]:
        known = set(self.topics())
        return [topic for topic in topics if topic in known]

    def forget_routes(self) -> None:
        """Files have none."""

    def queues(self, topic: str) -> dict[str, dict[str, tuple[int, int]]]:
        folder = self.root / "consumequeue" / topic
        if not folder.is_dir():
            raise TopicNotFound(
                f"{self.root} holds no topic {topic!r}; it holds: {', '.join(self.topics()[:20])}"
            )
        found = {p.name: Queue(p) for p in folder.iterdir() if p.name.isdigit()}
        wanted = {str(q) for qs in (self._assign or {}).get(topic, {}).values() for q in qs}
        return {BROKER: {n: q.bounds for n, q in found.items() if not wanted or n in wanted}}

    def look(self, topics: Iterable[str], carried: frozenset[tuple[str, str]] = frozenset()) -> Look:
        bounds: Bounds = {}
        failed: dict[str, AerobeeError] = {}
        for topic in topics:
            try:
                bounds[topic] = self.queues(topic)
            except AerobeeError as error:
                failed[topic] = error
        gone = frozenset((topic, broker) for topic, broker in carried if topic not in bounds)
        return Look(bounds, failed, {}, frozenset({BROKER}), gone)

    def offsets_at(self, places: Sequence[Place], timestamps: Sequence[int]) -> list[int]:
        return [
            self.offset_at(*place, timestamp) for place, timestamp in zip(places, timestamps, strict=True)
        ]

    def offset_at(self, topic: str, broker: str, queue: int, timestamp: int) -> int:
        """The first offset stored at or after `timestamp`, by bisection."""
        cq = Queue(self.root / "consumequeue" / topic / str(queue))
        log = Log(self.root)
        low, high = cq.bounds
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
            head = platform.pread(file.fileno(), 96, position - int(self.starts[index]))
        sys_flag = int.from_bytes(head[36:40], "big")
        at = 68 if sys_flag & 0x10 else 56
        return int.from_bytes(head[at : at + 8], "big") if len(head) >= at + 8 else None

    def bytes(self, index: int) -> pa.Buffer:
        """File `index`, mapped."""
        if self._last is None or self._last[0] != index:
            with self._files[index].open("rb") as file:
                self._last = index, pa.py_buffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        return self._last[1]


def scan(root: Path, parts: list[Range], names: tuple[str, ...], options: Read) -> Iterator[columns.Decoded]:
    """Record batches of the ranges, in commit-log order, of the options' batch size."""
    for buffer, positions in stretches(root, parts, options):
        yield columns.decode(buffer, positions, names, BROKER)


def stretches(root: Path, parts: list[Range], options: Read) -> Iterator[tuple[pa.Buffer, Ints]]:
    """Pieces of the log and where in them the records of the ranges are, one batch's worth each."""
    codes = compile_filter("TAG", options.tags).codes if options.tags != "*" else None
    log = Log(root)
    queues = [Queue(root / "consumequeue" / part.topic / str(part.queue)) for part in parts]
    for units in in_log_order(queues, parts, codes, options):
        edges = np.searchsorted(units.position, log.starts).tolist()
        gone = edges[0] if edges else len(units.position)  # older than the oldest file: retention took them
        report_lost(gone, parts, "lie before the oldest commit-log file", options)
        for index, (first, last) in enumerate(itertools.pairwise([*edges, len(units.position)])):
            for a, b in _cuts(units.size[first:last], options.batch_rows, options.batch_bytes):
                try:
                    buffer = log.bytes(index)
                except FileNotFoundError as error:
                    report_lost(
                        b - a, parts, f"lay in {error.filename}, which was deleted meanwhile", options
                    )
                    continue
                yield buffer, units.position[first + a : first + b] - log.starts[index]


def report_lost(count: int, parts: list[Range], how: str, options: Read) -> None:
    if not count:
        return
    named = ", ".join(f"{part.topic}/{part.queue} {part.start}..{part.end}" for part in parts[:3])
    if options.fail_on_data_loss:
        raise DataLoss(
            f"{count} messages of {named} {how}. Set failOnDataLoss=false to go on with what is there"
        )
    logger.warning("%d messages of %s %s", count, named, how)


class RecordPlaces(NamedTuple):
    """Records in the log, by ascending position."""

    position: Ints
    size: Ints

    def upto(self, cut: int) -> RecordPlaces:
        return RecordPlaces(self.position[:cut], self.size[:cut])

    def after(self, cut: int) -> RecordPlaces:
        return RecordPlaces(self.position[cut:], self.size[cut:])

    def joined(self, more: RecordPlaces) -> RecordPlaces:
        return RecordPlaces(
            np.concatenate((self.position, more.position)), np.concatenate((self.size, more.size))
        )


_NOWHERE = RecordPlaces(np.empty(0, np.int64), np.empty(0, np.int64))


class Units(Protocol):
    """A queue's units by offset; fewer than asked for where some are gone."""

    def units(self, start: int, end: int) -> npt.NDArray[Any]: ...


def in_log_order(
    queues: Sequence[Units], parts: list[Range], codes: frozenset[int] | None, options: Read
) -> Iterator[RecordPlaces]:
    """The records of all ranges merged by position, some at a time: memory does not grow with the ranges."""
    reached = [part.start for part in parts]
    held = [_NOWHERE for _ in parts]
    ahead = max(1000, UNITS_AHEAD // max(1, len(parts)))
    while True:
        frontier = 1 << 62  # whatever a queue shows next lies behind its last unit so far
        for i, part in enumerate(parts):
            # Well before its last: of queues that end near each other each would give the next few rows by itself.
            while len(held[i].position) <= ahead // 2 and reached[i] < part.end:
                stop = min(part.end, reached[i] + ahead)
                units = queues[i].units(reached[i], stop)
                missing = stop - reached[i] - len(units)
                report_lost(missing, [part], "were in queue files that are gone", options)
                held[i], reached[i] = held[i].joined(_places(units, codes)), stop
            if reached[i] < part.end:
                frontier = min(frontier, int(held[i].position[-1]))
        cuts = [int(np.searchsorted(places.position, frontier, side="right")) for places in held]
        ready = _merged([places.upto(cut) for places, cut in zip(held, cuts, strict=True)])
        held = [places.after(cut) for places, cut in zip(held, cuts, strict=True)]
        if not len(ready.position):
            return
        yield ready


def _places(units: npt.NDArray[Any], codes: frozenset[int] | None) -> RecordPlaces:
    units = real_units(units)
    if codes is not None:
        units = units[np.isin(units["tag"].astype(np.int64), np.array(sorted(codes), np.int64))]
    return RecordPlaces(units["position"].astype(np.int64), units["size"].astype(np.int64))


def _merged(parts: list[RecordPlaces]) -> RecordPlaces:
    position = np.concatenate([part.position for part in parts])
    size = np.concatenate([part.size for part in parts])
    order = np.argsort(position, kind="stable")  # which merges runs that are in order already
    return RecordPlaces(position[order], size[order])


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
    """The ranges cut at common commit-log positions into `tasks` of about equal size: each task reads one stretch of
    the log, for all queues at once."""
    if tasks <= 1 or not parts:
        return [parts] if parts else []
    queues = {part: Queue(root / "consumequeue" / part.topic / str(part.queue)) for part in parts}
    step = max(1, sum(map(len, parts)) // SAMPLES)
    sampled = np.sort(np.concatenate([queues[p].positions(p.start, p.end, step) for p in parts]))
    if not len(sampled):  # deleted since the plan was made: whoever reads them tells what is missing
        return [parts]
    edges = sampled[np.linspace(0, len(sampled), tasks, endpoint=False, dtype=np.int64)[1:]].tolist()
    bins: list[list[Range]] = [[] for _ in range(tasks)]
    for part, queue in queues.items():
        cuts = [part.start, *(queue.first_at(edge, part.start, part.end) for edge in edges), part.end]
        for i, (a, b) in enumerate(itertools.pairwise(cuts)):
            if a < b:
                bins[i].append(msgspec.structs.replace(part, start=a, end=b))
    return [b for b in bins if b]
