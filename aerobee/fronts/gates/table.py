# SPDX-License-Identifier: Apache-2.0
"""All gates, in the order requests pass them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aerobee.fronts.gates import accounts, audit, limits, permissions, vip

if TYPE_CHECKING:
    from aerobee.fronts.gates.call import Gate, MakeGate, Place

GATES: tuple[MakeGate, ...] = (audit.gate, accounts.gate, permissions.gate, vip.gate, limits.gate)


def gates_at(place: Place) -> tuple[Gate, ...]:
    return tuple(gate for make in GATES if (gate := make(place)) is not None)
