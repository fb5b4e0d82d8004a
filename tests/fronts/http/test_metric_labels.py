# SPDX-License-Identifier: Apache-2.0
"""What stands on every sample, and how a scrape is cut into pieces."""

from __future__ import annotations

from types import SimpleNamespace as Thing
from typing import TYPE_CHECKING, Any

from aerobee.broker.metrics.family import Scrape, gauge
from aerobee.fronts.http import metrics
from aerobee.fronts.http.exposition import Form
from aerobee.settings import BrokerConfig

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import pytest

CONFIG = BrokerConfig(cluster="c", name="b", metrics_label="zone: a ,cluster:of another,x:y:z")


def test_the_settings_add_labels_and_take_no_others_place() -> None:
    own = (("zone", "a"), ("cluster", "c"), ("x", "y:z"), ("node_type", "broker"), ("node_id", "b"))
    assert metrics.node_labels(CONFIG) == own
    assert metrics.common_labels(CONFIG) == (("otel_scope_name", "broker-meter"), *own)


def scraped(points: int, form: Form = Form.PROMETHEUS) -> AsyncIterator[str]:
    found = Scrape()
    for n in range(points):
        found.add(gauge("depth", "Depth."), n, (("topic", f"t{n}"),))

    async def scrape() -> Scrape:
        return found

    return metrics.written(Thing(scrape=scrape), CONFIG, form)  # type: ignore[arg-type]


async def test_a_large_scrape_comes_in_pieces_and_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = "".join([piece async for piece in scraped(300)])
    assert whole.count("\n") == 302, "two lines that say what it is, and one a point"
    monkeypatch.setattr(metrics, "PIECE_CHARS", 1_000)
    pieces = [piece async for piece in scraped(300)]
    assert len(pieces) > 3
    assert "".join(pieces) == whole
    assert all(len(piece) > 1_000 for piece in pieces[:-1])


async def test_who_reads_is_counted_until_it_has_read_all_or_left() -> None:
    reading: set[Any] = set()
    first, second = (metrics._counted(scraped(1), reading) for _ in range(2))
    assert await anext(first)
    assert await anext(second)
    assert len(reading) == 2
    assert [piece async for piece in first] == []
    assert len(reading) == 1
    await second.aclose()  # type: ignore[attr-defined]
    assert reading == set()
