# SPDX-License-Identifier: Apache-2.0
"""Drives the checks of half messages."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aerobee.broker.operations.check_transaction import check_transactions

if TYPE_CHECKING:
    from aerobee.broker.broker import Broker

IDLE_MS = 1_000  # a check comes at most this late


class TransactionCheck:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def tick(self, now: int) -> int:
        """Returns the milliseconds until the next call is wanted."""
        return 0 if check_transactions(now, self._broker) else IDLE_MS
