# SPDX-License-Identifier: Apache-2.0
from collections.abc import Iterable

class Texts:
    def __init__(self, special: Iterable[str], tags: str, unique: str, keys: str) -> None: ...

def read(texts: Texts, data: bytes) -> tuple[str | None, str | None, str | None, int, bool] | None: ...
