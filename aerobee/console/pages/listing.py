# SPDX-License-Identifier: Apache-2.0
"""What pages with long lists share: search by name, order, and one page of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aerobee.console.visit import Visit

T = TypeVar("T")

PAGE_SIZE = 50


@dataclass(frozen=True)
class Listing(Generic[T]):
    """One page of a list."""

    rows: Sequence[T]
    total: int
    page: int
    pages: int
    sought: str
    sort: str


def sought(names: Sequence[str], text: str) -> list[str]:
    """Those with every word of the text in them, in any case; what begins with it comes first."""
    if not text:
        return list(names)
    words = text.lower().split()
    found = [name for name in names if all(word in name.lower() for word in words)]
    return sorted(found, key=lambda name: not name.lower().startswith(text.lower()))


def page_of(visit: Visit, rows: Sequence[T], sort: str = "", size: int = PAGE_SIZE) -> Listing[T]:
    pages = max(1, -(-len(rows) // size))
    page = min(max(1, visit.number("page", 1)), pages)
    start = (page - 1) * size
    return Listing(rows[start : start + size], len(rows), page, pages, visit.query("q"), sort)
