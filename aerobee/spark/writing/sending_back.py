# SPDX-License-Identifier: Apache-2.0
"""Row-level retry: failed rows go back to their group's retry topic, with RocketMQ's delay levels and dead letters.

The broker keeps the message; a row only names it (broker, commit-log offset), so a frame to send back needs the columns
`brokerName` and `physicalOffset`, and a `reconsumeTimes` is carried by the broker itself. A stream with the options
`group` and `includeRetries` reads the retried messages again when their delay has passed.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, NamedTuple

from aerobee.errors import AerobeeError, NetworkError
from aerobee.protocol.failure_text import one_line
from aerobee.protocol.headers.produce import SendBack
from aerobee.spark.cluster import Cluster
from aerobee.spark.options import for_batch

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa
    from pyspark.sql import DataFrame

    from aerobee.spark.options import Read

NEEDED = ("topic", "brokerName", "physicalOffset")


def send_back(
    frame: DataFrame,
    group: str,
    *,
    namesrv: str,
    delay_level: int = 0,
    max_reconsume: int = 16,
    reason: str | None = None,
    **options: Any,
) -> int:
    """Return every row of `frame` to `group` for another try; the number of rows sent back.

    `delay_level` 0 lets the broker choose by the number of tries so far (10 s, 30 s, 1 min ...), -1 sends straight to
    the dead letters. Rows keep their message, so only `topic`, `brokerName` and `physicalOffset` are needed. `reason`
    names a column that says why a row failed: a line of up to 1,000 characters that goes with the message and stands
    beside its dead letter.

    >>> send_back(failed, "billing", namesrv="127.0.0.1:9876", reason="error")      # doctest: +SKIP
    """
    wanted = NEEDED if reason is None else (*NEEDED, reason)
    missing = [name for name in wanted if name not in frame.columns]
    if missing:
        raise ValueError(
            f"send_back needs the columns {', '.join(wanted)}; missing: {', '.join(missing)}."
            " Read with option columns including physicalOffset"
        )
    given = {name: str(value) for name, value in options.items()}
    settings = for_batch({"namesrv": namesrv, "subscribe": "any", "group": group, **given})

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        returning = _Returning(settings, delay_level, max_reconsume)
        try:
            for batch in batches:
                sent = sum(returning.send(_Row(*row.values())) for row in batch.to_pylist())
                yield pa.RecordBatch.from_pydict({"sent": [sent]})
        finally:
            returning.close()

    counts = frame.select(*wanted).mapInArrow(work, "sent BIGINT").collect()
    return sum(row.sent for row in counts)


class _Row(NamedTuple):
    topic: str
    brokerName: str
    physicalOffset: int
    reason: str | None = None


class _Returning:
    """One task's rows, each to the broker that holds its message."""

    def __init__(self, options: Read, delay_level: int, max_reconsume: int) -> None:
        self._options = options
        self._delay_level = delay_level
        self._max_reconsume = max_reconsume
        self._cluster = Cluster(options)
        self._masters: dict[str, str] = {}  # of brokers, not of topics: the topic may be gone by now

    def send(self, row: _Row) -> int:
        """1, when the broker has taken it."""
        header = SendBack(
            offset=row.physicalOffset,
            group=self._options.group,
            delay_level=self._delay_level,
            origin_topic=row.topic,
            max_reconsume_times=self._max_reconsume,
            broker_name=row.brokerName,
            failure=one_line(str(row.reason)) if row.reason else None,
        )
        for left in reversed(range(self._options.retries + 1)):
            try:
                self._cluster.link(self._address(row)).call(header)
                return 1
            except NetworkError:
                self._masters.clear()
                if not left:
                    raise
                time.sleep(self._options.retry_ms / 1000)
        raise AssertionError("unreachable")

    def _address(self, row: _Row) -> str:
        if not self._masters:
            self._masters = self._cluster.masters()
        if row.brokerName not in self._masters:
            raise AerobeeError(f"broker {row.brokerName!r} of topic {row.topic!r} has left the cluster")
        return self._masters[row.brokerName]

    def close(self) -> None:
        self._cluster.close()
