# SPDX-License-Identifier: Apache-2.0
from collections.abc import Collection
from typing import Any, Protocol

from aerobee.native.answers import Template

class Reader:
    request: Any
    is_plain: bool
    def __init__(
        self,
        request: Any,
        queue_id: int,
        limits: tuple[int, int, int],
        codes: Collection[int] | None,
    ) -> None: ...

class Pulled:
    request: Any
    commit_offset: int
    next_offset: int
    count: int
    size_bytes: int
    end: int
    stored_at: int

class Ask(Protocol):
    """What only Python knows."""
    def plain(self, header: Any) -> Reader | None: ...
    def stretch(self, request: Any, offset: int, count: int) -> tuple[bytes, Any, int, int, Any] | None: ...

class PullLane:
    pulls: list[Pulled]
    def __init__(
        self, headers: Collection[type[Any]], ask: Ask, answers: tuple[Template, Template]
    ) -> None: ...
    def forget(self) -> None: ...
    def take(self, data: bytes, at: int, most: int, most_answered: int, warm_from: int) -> int: ...
    @property
    def answers(self) -> bytes: ...
