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

    def choose(self, there: Set[str], top: int, busy: Callable[[str], int]) -> Set[str]:
        """Of all that exist at most `top`; `busy` says how much a name has had to do so far."""
        if len(there) <= top:
            self._chosen = set(there)
            return there
        kept = self._chosen & there
        if len(kept) > top:  # the setting was lowered
            kept = set(heapq.nlargest(top, kept, key=busy))
        elif len(kept) < top:
            kept.update(heapq.nlargest(top - len(kept), there - kept, key=busy))
        self._chosen = kept
        return kept
