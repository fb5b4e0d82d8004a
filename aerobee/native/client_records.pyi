# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable
from typing import Any

def take(
    data: bytes, at: int, make: Callable[..., Any], origin: Any, special: int, found: list[Any]
) -> int: ...
