# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable, Container, Iterable
from typing import Any, TypeVar

from aerobee.native.state import QueueEnd

T = TypeVar("T")

class Draft:
    start: int
    now: int
    queues: list[QueueEnd]
    def __init__(self, find: Callable[[tuple[str, int]], object | None]) -> None: ...
    def begin(
        self,
        start: int,
        limit: int,
        key_room: int,
        now: int,
        store_host: bytes,
        sizes: tuple[int, int, int],
        unloaded: int,
    ) -> None: ...
    def drop(self) -> None: ...
    @property
    def size(self) -> int: ...
    @property
    def key_count(self) -> int: ...
    @property
    def last_key_offset(self) -> int: ...
    def published(self, publish: Callable[[int, memoryview], None]) -> None: ...
    def enter_keys(self, table: Any, slots: int, entries_at: int, number: int, seconds: int) -> int: ...
    def enter_units(self, dirty: dict[Any, None]) -> None: ...
    def awaited(
        self, listeners: Iterable[tuple[T, Callable[[], Container[tuple[str, int]]]]]
    ) -> dict[QueueEnd, list[T]]: ...
    def records_of(self, wanted: Container[QueueEnd]) -> list[tuple[QueueEnd, int, bytes]]: ...
