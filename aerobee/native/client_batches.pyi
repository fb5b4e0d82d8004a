# SPDX-License-Identifier: Apache-2.0
from collections.abc import Sequence
from typing import Protocol

class Member(Protocol):
    body: bytes
    flag: int
    properties_text: str

def merged(messages: Sequence[Member], longest_text: int) -> bytes | None: ...
