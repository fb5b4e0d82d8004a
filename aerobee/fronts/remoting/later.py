# SPDX-License-Identifier: Apache-2.0
"""Answers that wait for the disk."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aerobee.broker.delivery.keeping import until_kept

if TYPE_CHECKING:
    from aerobee.broker.broker import Broker
    from aerobee.broker.delivery.keeping import Unkept
    from aerobee.net.connection import Answer


async def kept(unkept: Unkept, answer: Answer, broker: Broker) -> Answer:
    """The answer, once what it tells of is kept."""
    await until_kept(unkept, broker)
    return answer
