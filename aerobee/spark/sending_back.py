# SPDX-License-Identifier: Apache-2.0
"""Row-level retry: failed rows go back to their group's retry topic, with RocketMQ's delay levels and dead letters.

The broker keeps the message; a row only names it (broker, commit-log offset), so a frame to send back needs the columns
`brokerName` and `physicalOffset`, and a `reconsumeTimes` is carried by the broker itself. A stream with the options
`group` and `includeRetries` reads the retried messages again when their delay has passed.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from aerobee.errors import AerobeeError, NetworkError
from aerobee.protocol.headers.produce import SendBack
from aerobee.spark.heads import BrokerHeads
from aerobee.spark.link import Link, link_to
from aerobee.spark.options import for_batch

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pyspark.sql import DataFrame

NEEDED = ("topic", "brokerName", "physicalOffset")


def send_back(
    frame: DataFrame,
    group: str,
    *,
    namesrv: str,
    delay_level: int = 0,
    max_reconsume: int = 16,
    **options: Any,
) -> int:
    """Return every row of `frame` to `group` for another try; the number of rows sent back.

    `delay_level` 0 lets the broker choose by the number of tries so far (10 s, 30 s, 1 min ...), -1 sends straight to
    the dead letters. Rows keep their message, so only `topic`, `brokerName` and `physicalOffset` are needed.

    >>> send_back(failed, "billing", namesrv="127.0.0.1:9876")      # doctest: +SKIP
    """
    missing = [name for name in NEEDED if name not in frame.columns]
    if missing:
        raise ValueError(
            f"send_back needs the columns {', '.join(NEEDED)}; missing: {', '.join(missing)}."
            " Read with option columns including physicalOffset"
        )
    given = {name: str(value) for name, value in options.items()}
    settings = for_batch({"namesrv": namesrv, "subscribe": "any", "group": group, **given})

    def work(rows: Iterable[Any]) -> Iterator[tuple[int]]:
        heads = BrokerHeads(settings)
        links: dict[str, Link] = {}
        count = 0
        try:
            for row in rows:
                _send_one(row, group, delay_level, max_reconsume, (heads, links, settings))
                count += 1
        finally:
            for link in links.values():
                link.close()
        yield (count,)

    counts = frame.select(*NEEDED).rdd.mapPartitions(work).collect()
    return sum(count for (count,) in counts)


def _send_one(
    row: Any, group: str, delay_level: int, max_reconsume: int, through: tuple[Any, dict[str, Link], Any]
) -> None:
    heads, links, settings = through
    header = SendBack(
        offset=row.physicalOffset,
        group=group,
        delay_level=delay_level,
        origin_topic=row.topic,
        max_reconsume_times=max_reconsume,
        broker_name=row.brokerName,
    )
    for attempt in range(settings.retries + 1):
        try:
            if row.brokerName not in links:
                address = heads.masters()[row.brokerName]  # the topic may be gone by now
                links[row.brokerName] = link_to(address, settings)
            links[row.brokerName].call(header)
            return
        except NetworkError:
            links.pop(row.brokerName, None)
            if attempt == settings.retries:
                raise
            time.sleep(settings.retry_ms / 1000)
        except KeyError:
            raise AerobeeError(
                f"broker {row.brokerName!r} of topic {row.topic!r} has left the cluster"
            ) from None
