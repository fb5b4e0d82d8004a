# SPDX-License-Identifier: Apache-2.0
"""How a consumer is doing, per topic, over the last minute: what an operator sees in its running info. Told now."""

from __future__ import annotations

from collections import defaultdict, deque

import msgspec

from aerobee.protocol import bodies

BUCKET_MS = 10_000
BUCKETS = 6


class _Bucket(msgspec.Struct):
    began: int
    pulls: int = 0
    pulled: int = 0
    pull_ms: int = 0
    good: int = 0
    failed: int = 0
    consume_ms: int = 0


class Figures:
    """Counts in buckets of ten seconds; six of them are the last minute."""

    def __init__(self) -> None:
        self._topics: dict[str, deque[_Bucket]] = defaultdict(lambda: deque(maxlen=BUCKETS))

    def _bucket(self, topic: str, now: int) -> _Bucket:
        buckets = self._topics[topic]
        began = now - now % BUCKET_MS
        if not buckets or buckets[-1].began != began:
            buckets.append(_Bucket(began))
        return buckets[-1]

    def pulled(self, topic: str, messages: int, took_ms: int, now: int) -> None:
        """An answer with messages: from the request, its checks passed, to here."""
        bucket = self._bucket(topic, now)
        bucket.pulls += 1
        bucket.pulled += messages
        bucket.pull_ms += took_ms

    def consumed(self, topic: str, good: int, failed: int, took_ms: int, now: int) -> None:
        bucket = self._bucket(topic, now)
        bucket.good += good
        bucket.failed += failed
        bucket.consume_ms += took_ms * (good + failed)

    def status(self, topic: str, now: int) -> bodies.ConsumeStatus:
        recent = [bucket for bucket in self._topics[topic] if bucket.began > now - BUCKETS * BUCKET_MS]
        if not recent:
            return bodies.ConsumeStatus()
        seconds = max(1.0, (now - recent[0].began) / 1000)
        pulls, done = sum(b.pulls for b in recent), sum(b.good + b.failed for b in recent)
        failed = sum(b.failed for b in recent)
        return bodies.ConsumeStatus(
            pull_rt=sum(b.pull_ms for b in recent) / max(1, pulls),
            pull_tps=sum(b.pulled for b in recent) / seconds,
            consume_rt=sum(b.consume_ms for b in recent) / max(1, done),
            consume_ok_tps=(done - failed) / seconds,
            consume_failed_tps=failed / seconds,
            consume_failed_msgs=failed,
        )
