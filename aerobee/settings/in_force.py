# SPDX-License-Identifier: Apache-2.0
"""Settings of something that runs: a change replaces the whole struct, so nobody sees half of one.

Whoever uses a setting that may change is given the holder and reads `settings.value.x` each time; whoever keeps a
copy of a field keeps the value of its start, which is right for settings that are not `live` only.
"""

from __future__ import annotations

from typing import Generic, TypeVar

T = TypeVar("T")


class InForce(Generic[T]):
    __slots__ = ("at_start", "value")

    def __init__(self, value: T) -> None:
        self.value = self.at_start = value

    def swap(self, value: T) -> None:
        self.value = value
