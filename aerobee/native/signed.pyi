# SPDX-License-Identifier: Apache-2.0
from typing import Any

class SignedRequests:
    size: int
    content: bytes
    signature: bytes
    user: str
    names: tuple[str, ...]
    def __init__(self, header: Any, marks: tuple[str, str], names: tuple[str, ...], never: str) -> None: ...
    def read(self, data: bytes, at: int, most: int) -> bool: ...
