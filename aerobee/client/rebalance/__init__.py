# SPDX-License-Identifier: Apache-2.0
"""Dividing a topic's queues among the clients of a group: RocketMQ's strategies, as pure functions."""

from __future__ import annotations

from aerobee.client.rebalance.average import average
from aerobee.client.rebalance.by_room import machine_room, machine_room_nearby
from aerobee.client.rebalance.circle import circle
from aerobee.client.rebalance.configured import configured
from aerobee.client.rebalance.consistent_hash import consistent_hash
from aerobee.client.rebalance.strategy import Strategy

AVG = Strategy("AVG", average)
AVG_BY_CIRCLE = Strategy("AVG_BY_CIRCLE", circle)
CONSISTENT_HASH = consistent_hash()

BY_NAME = {strategy.name: strategy for strategy in (AVG, AVG_BY_CIRCLE, CONSISTENT_HASH)}

__all__ = [
    "AVG",
    "AVG_BY_CIRCLE",
    "BY_NAME",
    "CONSISTENT_HASH",
    "Strategy",
    "configured",
    "consistent_hash",
    "machine_room",
    "machine_room_nearby",
]
