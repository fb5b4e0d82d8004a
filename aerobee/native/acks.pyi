# SPDX-License-Identifier: Apache-2.0
from typing import Any, Protocol

from aerobee.native.answers import Template

class Sheaf:
    topic: str
    group: str
    queue_id: int
    start: int
    pop_time: int
    bits: int

class Ask(Protocol):
    def open_bits(self, sheaf: Sheaf) -> int: ...

class AckLane:
    sheaves: list[Sheaf]
    def __init__(
        self, header: type[Any], ask: Ask, answers: tuple[Template, Template], orderly: int
    ) -> None: ...
    def take(self, data: bytes, at: int, most: int) -> int: ...
    @property
    def answers(self) -> bytes: ...
