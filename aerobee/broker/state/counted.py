# SPDX-License-Identifier: Apache-2.0
"""Totals since the start that only metrics show: plain additions where something happens, read when somebody asks."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from functools import partial
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from aerobee.clock import MS_NS, perf_counter_ns
from aerobee.store.histogram import Histogram

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator, Sequence
    from types import TracebackType

K = TypeVar("K", bound="Hashable")

KIB, MIB = 1 << 10, 1 << 20
HOUR_S = 3_600
# Upper ends, as RocketMQ's metrics have them.
SIZES = (KIB, 4 * KIB, 512 * KIB, MIB, 2 * MIB, 4 * MIB)
CREATE_MS = (10, 100, 1_000, 3_000, 5_000)
FINISH_S = (5, 60, 600, HOUR_S, 12 * HOUR_S, 24 * HOUR_S)
DELAY_S = (60, 600, HOUR_S, 12 * HOUR_S, 24 * HOUR_S, 72 * HOUR_S)
SCAN_MS = (1, 10, 100, 1_000, 2_000, 3_000)
RPC_MS = (1, 3, 5, 7, 10, 100, 1_000, 2_000, 3_000)
RPC_NS = tuple(end * 1_000_000 for end in RPC_MS)
LATE_MS = (1, 5, 10, 50, 100, 500, 1_000)


class Histograms(Generic[K]):
    def __init__(self, ends: tuple[int, ...]) -> None:
        self._ends = ends
        self._by_key: dict[K, Histogram] = {}

    def add(self, key: K, value: float, times: int = 1) -> None:
        histogram = self._by_key.get(key)
        if histogram is None:
            histogram = self._by_key[key] = Histogram(self._ends)
        histogram.add(value, times)

    def __iter__(self) -> Iterator[tuple[K, Histogram]]:
        return iter(list(self._by_key.items()))

    def remove(self, unwanted: Callable[[K], bool]) -> None:
        for key in [each for each in self._by_key if unwanted(each)]:
            del self._by_key[key]


class Stopwatch:
    """`with Stopwatch(tell): ...` tells the milliseconds, and whether it went well."""

    def __init__(self, tell: Callable[[float, bool], None]) -> None:
        self._tell = tell
        self._began = 0

    def __enter__(self) -> None:
        self._began = perf_counter_ns()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._tell((perf_counter_ns() - self._began) / MS_NS, error is None)


class Came:
    """Messages of producers for one topic that did not go there directly, or are large."""

    __slots__ = ("delayed", "large", "moved_bytes", "moved_count", "transactional")

    def __init__(self) -> None:
        # Of what is counted for the topic, not a producer's: put there by the broker itself.
        self.moved_count = 0
        self.moved_bytes = 0
        self.delayed = Histogram(SIZES)
        self.transactional = Histogram(SIZES)
        self.large = [0] * len(SIZES)  # plain ones beyond the first of the ends, by the next


class RequestTimes:
    """How long requests took, in nanoseconds, by code, the answer's code, and whether they were held. Told of every
    request, so the usual one, answered well, at once and in less than a millisecond, is only two additions, which the
    path of a request makes itself."""

    def __init__(self) -> None:
        self.usual: dict[int, list[int]] = {}  # code -> how many, and their sum
        # By code and the answer's code, which the path of a request adds to as well; and all that is neither.
        self.held: defaultdict[tuple[int, int], Histogram] = defaultdict(partial(Histogram, RPC_NS))
        self._others: defaultdict[tuple[int, int], Histogram] = defaultdict(partial(Histogram, RPC_NS))

    def add_run(self, code: int, took_ns: int, times: int) -> None:
        """Requests that were answered together, well and at once, in so long: each waited for all of them."""
        if took_ns > MS_NS:
            self._others[code, 0].add(took_ns, times)
            return
        usual = self.usual.get(code) or self.usual.setdefault(code, [0, 0])
        usual[0] += times
        usual[1] += took_ns * times

    def add(self, code: int, response: int, took_ns: int) -> None:
        """One that was not held."""
        if response == 0:
            self.add_run(code, took_ns, 1)
        else:
            self._others[code, response].add(took_ns)

    def __iter__(self) -> Iterator[tuple[tuple[int, int, bool], Histogram]]:
        """The quick ones among the others of their code."""
        quick = {(code, 0): usual for code, usual in self.usual.items()}
        for code, response in [*quick, *(each for each in self._others if each not in quick)]:
            histogram, slow = Histogram(RPC_NS), self._others.get((code, response))
            if slow is not None:
                histogram.counts[:], histogram.sum = slow.counts, slow.sum
            count, total = quick.get((code, response), (0, 0))
            histogram.counts[0] += count
            histogram.sum += total
            yield (code, response, False), histogram
        for (code, response), histogram in list(self.held.items()):
            yield (code, response, True), histogram


class WaitingTimers(Protocol):
    """What the part that runs timers can tell."""

    @property
    def pending(self) -> int: ...
    @property
    def not_added(self) -> int: ...
    def by_topic(self) -> Counter[str]: ...
    def changed_at(self, topic: str) -> int: ...
    def within(self, now: int, bounds_s: Sequence[int]) -> Iterator[tuple[int, int]]: ...
    def late_ms(self, now: int) -> int: ...


class Counted:
    def __init__(self) -> None:
        self.came: defaultdict[str, Came] = defaultdict(Came)
        self.dead: Counter[tuple[str, str]] = Counter()  # (group, topic)
        self.committed: Counter[str] = Counter()  # transactions, by topic
        self.rolled_back: Counter[str] = Counter()
        self.finish_s: Histograms[str] = Histograms(FINISH_S)  # from birth to commit
        self.timer_in: Counter[str] = Counter()
        self.timer_out: Counter[str] = Counter()
        self.delay_s: Histograms[str] = Histograms(DELAY_S)  # asked for
        self.revived: Counter[tuple[str, str, int]] = (
            Counter()
        )  # (group, topic, revive queue): checkpoints due
        self.retried: Counter[tuple[str, str]] = Counter()  # (group, topic): messages put to a retry topic
        self.scan_ms = Histogram(SCAN_MS)
        self.topic_create_ms: Histograms[bool] = Histograms(CREATE_MS)  # by success
        self.group_create_ms: Histograms[bool] = Histograms(CREATE_MS)
        self.rpc = RequestTimes()
        self.late_ms = Histogram(LATE_MS)  # turns of the loop
        self.timers: WaitingTimers | None = None

    def large(self, topic: str, count: int, size_bytes: int) -> None:
        """Plain messages, sent together, of more than the smallest size together."""
        if size_bytes > KIB * count:
            size = -(-size_bytes // count)  # rounded up, which changes no bucket
            self.came[topic].large[bisect_left(SIZES, size) - 1] += count

    def large_run(self, topic: str, counts: tuple[int, ...]) -> None:
        """The same of several requests."""
        large = self.came[topic].large
        for place, count in enumerate(counts):
            large[place] += count

    def topic_made(self, took_ms: float, went_well: bool) -> None:  # noqa: FBT001 - told by a stopwatch
        self.topic_create_ms.add(went_well, took_ms)

    def group_made(self, took_ms: float, went_well: bool) -> None:  # noqa: FBT001
        self.group_create_ms.add(went_well, took_ms)

    def remove_topic(self, topic: str) -> None:
        self.came.pop(topic, None)
        for table in (self.committed, self.rolled_back, self.timer_in, self.timer_out):
            table.pop(topic, None)
        for histograms in (self.finish_s, self.delay_s):
            histograms.remove(lambda key: key == topic)
        self._remove(1, topic)

    def remove_group(self, group: str) -> None:
        self._remove(0, group)

    def _remove(self, place: int, name: str) -> None:
        for pairs in (self.dead, self.retried):
            for pair in [key for key in pairs if key[place] == name]:
                del pairs[pair]
        for key in [key for key in self.revived if key[place] == name]:
            del self.revived[key]
