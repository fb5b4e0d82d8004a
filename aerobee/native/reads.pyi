# SPDX-License-Identifier: Apache-2.0
from collections.abc import Collection
from typing import Any

def collect(
    units: bytes,
    log: Any,
    base: int,
    place: tuple[int, int],
    limits: tuple[int, int],
    codes: Collection[int] | None,
    messages: list[bytes],
    offsets: list[int],
) -> tuple[int, int, int]: ...
