# SPDX-License-Identifier: Apache-2.0
"""What pages with long lists share: search by name, order, and one page of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence
    from typing import Any

    from aerobee.console.visit import Visit

T = TypeVar("T")

PAGE_SIZE = 50
SORTED_BY_FIGURES = 500  # names at most, for all of them have to be asked about
BY_NAME = "name"


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


async def page_with_figures(
    visit: Visit,
    names: list[str],
    rows_of: Callable[[list[str]], Awaitable[list[T]]],
    sorts: Mapping[str, Callable[[T], Any]],
) -> Listing[T]:
    """One page of names with what is asked about each: by name, or by a figure while they are not too many."""
    sort = visit.query("sort", BY_NAME)
    if sort in sorts and not too_many(visit, names):
        return page_of(visit, sorted(await rows_of(names), key=sorts[sort]), sort)
    page = page_of(visit, names, BY_NAME)
    rows = await rows_of(list(page.rows))
    return Listing(rows, page.total, page.page, page.pages, page.sought, page.sort)


def too_many(visit: Visit, names: list[str]) -> bool:
    """Whether they were to be sorted by a figure and cannot be."""
    return visit.query("sort", BY_NAME) != BY_NAME and len(names) > SORTED_BY_FIGURES
