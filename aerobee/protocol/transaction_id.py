# SPDX-License-Identifier: Apache-2.0
"""What a gRPC client hands back to end its transaction: enough to find the half message, whoever asks."""

from __future__ import annotations

from typing import NamedTuple

from aerobee.protocol.properties import whole_number


class TransactionId(NamedTuple):
    half_offset: int
    physical_offset: int
    unique_key: str

    @property
    def text(self) -> str:
        return f"{self.half_offset}-{self.physical_offset}-{self.unique_key}"

    @classmethod
    def parse(cls, text: str) -> TransactionId | None:
        """None for a text that no broker of ours gave."""
        half, _, rest = text.partition("-")
        physical, _, unique_key = rest.partition("-")
        half_offset, physical_offset = whole_number(half), whole_number(physical)
        if half_offset is None or physical_offset is None or not unique_key:
            return None
        return cls(half_offset, physical_offset, unique_key)
