# SPDX-License-Identifier: Apache-2.0
from typing import Any

class Fields:
    attributes: list[str]
    def __init__(self, header: type[Any]) -> None: ...

def read(
    fields: Fields, data: bytes, most: int = ...
) -> tuple[int, int, int, dict[str, str | int], bytes] | None: ...
