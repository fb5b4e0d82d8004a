# SPDX-License-Identifier: Apache-2.0
from typing import Any

from aerobee.native.answers import Template
from aerobee.protocol.receipt import Taken

class ReceiptLane:
    calls: int
    def __init__(
        self, header: type[Any], ask: Any, answers: tuple[Template, Template], orderly: int
    ) -> None: ...
    def take(self, data: bytes, at: int, most: int) -> int: ...
    @property
    def answers(self) -> bytes: ...

class PopAnswers:
    def __init__(self, answers: tuple[Template, Template]) -> None: ...
    def frame(
        self,
        opaque: int,
        serialize: int,
        numbers: tuple[int, int, int, int],
        taken: list[Taken],
        messages: list[bytes],
    ) -> bytes: ...
