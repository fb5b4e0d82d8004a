# SPDX-License-Identifier: Apache-2.0
from typing import Any, Protocol

from aerobee.native.answers import Template

class Ask(Protocol):
    def change(
        self, place: tuple[str, str, int], offset: int, receipt: tuple[int, int, int, int], invisible_ms: int
    ) -> int | None: ...

class ChangeLane:
    calls: int
    def __init__(
        self, header: type[Any], ask: Ask, answers: tuple[Template, Template], orderly: int
    ) -> None: ...
    def take(self, data: bytes, at: int, most: int) -> int: ...
    @property
    def answers(self) -> bytes: ...
