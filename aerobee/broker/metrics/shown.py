# SPDX-License-Identifier: Apache-2.0
"""Which names have metrics of their own, where there are more than somebody wants to pay for.

The busiest are chosen, and keep their place as long as they exist: a total that went from `other` to a name of its own
and back would look like traffic to whoever watches it. The rest is summed under `other`.
"""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Set

OTHER = "other"


class Shown:
    def __init__(self) -> None:
        self._chosen: set[str] = set()

    def choose(self, there: Set[str], top: int, busy: Callable[[], Callable[[str], int]]) -> Set[str]:
        """Of all that exist at most `top`; `busy` makes what says how much a name has had to do so far."""
        if len(there) <= top:
            self._chosen.clear()
            return there
        kept = {name for name in self._chosen if name in there}
        if len(kept) > top:  # the setting was lowered
            kept = set(heapq.nlargest(top, kept, key=busy()))
        elif len(kept) < top:
            others = [name for name in there if name not in kept]
            others.sort(key=busy(), reverse=True)
            kept.update(others[: top - len(kept)])
        self._chosen = kept
        return kept
