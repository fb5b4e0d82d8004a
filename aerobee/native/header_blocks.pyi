# SPDX-License-Identifier: Apache-2.0
from collections.abc import Container

class Tables:
    def __init__(
        self, usual: tuple[tuple[str, str, int], ...], nodes: list[list[int]], ends: Container[int]
    ) -> None: ...

class HeaderBlocks:
    def __init__(
        self, tables: Tables, refused: type[Exception], max_bytes: int, table_bytes: int
    ) -> None: ...
    def read(self, block: bytes) -> dict[str, str]: ...
