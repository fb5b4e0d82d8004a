# SPDX-License-Identifier: Apache-2.0
"""CONFIG: a fixed list of queues, whoever else is in the group."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aerobee.client.consume.rebalance.strategy import Strategy

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aerobee.protocol.bodies import MessageQueue


def configured(own: Sequence[MessageQueue]) -> Strategy:
    fixed = list(own)

    def divide(client_id: str, queues: Sequence[MessageQueue], clients: Sequence[str]) -> list[MessageQueue]:
        return list(fixed)

    return Strategy("CONFIG", divide)
