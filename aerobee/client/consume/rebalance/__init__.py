# SPDX-License-Identifier: Apache-2.0
"""Dividing a topic's queues among the clients of a group: RocketMQ's strategies, as pure functions."""

from __future__ import annotations

from aerobee.client.consume.rebalance.by_room import machine_room, machine_room_nearby
from aerobee.client.consume.rebalance.configured import configured
from aerobee.client.consume.rebalance.consistent_hash import consistent_hash
from aerobee.client.consume.rebalance.strategy import Strategy, checked
from aerobee.protocol.allocation import STRATEGIES

AVG, AVG_BY_CIRCLE = (Strategy(name, checked(divide)) for name, divide in STRATEGIES.items())
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
