# SPDX-License-Identifier: Apache-2.0
"""A scrape as text: Prometheus's own format, or OpenMetrics where it is asked for."""

from __future__ import annotations

from enum import Enum
from functools import lru_cache
from typing import TYPE_CHECKING

from aerobee.broker.metrics.family import Distribution, Kind

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aerobee.broker.metrics.family import Family, Labels, Scrape, Value

_POINTS = 50  # written in one step
_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})
_SPECIAL = frozenset('\\"\n')


class Form(Enum):
    PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"
    OPEN_METRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"


def form_of(accept: str) -> Form:
    """What a scraper that says it accepts so much is answered in."""
    return Form.OPEN_METRICS if "application/openmetrics-text" in accept else Form.PROMETHEUS


def lines(scrape: Scrape, labels: Labels, form: Form) -> Iterator[str]:
    """Piece by piece; `labels` are on every sample."""
    before = labels_text(labels)
    for family, points in scrape:
        yield _head(family, form)
        for start in range(0, len(points), _POINTS):
            yield "".join(
                [_sample(family, each, value, before) for each, value in points[start : start + _POINTS]]
            )
    if form is Form.OPEN_METRICS:
        yield "# EOF\n"


def labels_text(labels: Labels) -> str:
    return ",".join([f'{name}="{escaped(value)}"' for name, value in labels])


def escaped(value: str) -> str:
    return value.translate(_ESCAPES) if not _SPECIAL.isdisjoint(value) else value


def _head(family: Family, form: Form) -> str:
    name = family.name
    if form is Form.OPEN_METRICS and family.kind is Kind.COUNTER:
        name = name.removesuffix("_total")
    return f"# HELP {name} {family.help}\n# TYPE {name} {family.kind.value}\n"


def _sample(family: Family, labels: Labels, value: Value, before: str) -> str:
    own = labels_text(labels)
    text = f"{before},{own}" if own and before else own or before
    if not isinstance(value, Distribution):
        return f"{family.name}{{{text}}} {value}\n" if text else f"{family.name} {value}\n"
    return _buckets(family.name, text, value)


def _buckets(name: str, text: str, value: Distribution) -> str:
    head, total, written = f"{name}_bucket{{{text}{',' if text else ''}", 0, []
    for end, count in zip(_ends(tuple(value.ends)), value.counts, strict=True):
        total += count
        written.append(f"{head}{end}{total}\n")
    of = f"{{{text}}}" if text else ""
    written.append(f"{name}_sum{of} {value.sum}\n{name}_count{of} {total}\n")
    return "".join(written)


@lru_cache(maxsize=64)  # there are a dozen
def _ends(ends: tuple[float, ...]) -> list[str]:
    return [f'le="{end}"}} ' for end in (*map(float, ends), "+Inf")]
