# SPDX-License-Identifier: Apache-2.0
"""All gates, in the order requests pass them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aerobee.fronts.gates import accounts, audit, limits, permissions, vip

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aerobee.fronts.gates.call import Gate, MakeGate, Place

GATES: tuple[MakeGate, ...] = (audit.gate, accounts.gate, permissions.gate, vip.gate, limits.gate)


# Who asks what may ask it: these only let through or refuse, and `audit` has business with refusals alone.
CHECKS: tuple[MakeGate, ...] = (accounts.gate, permissions.gate)
# Ahead of the gates, where whoever is refused comes to them all the same.
_AHEAD: dict[MakeGate, MakeGate] = {accounts.gate: accounts.check}


def gates_at(place: Place) -> tuple[Gate, ...]:
    return _made(GATES, place)


def checks_at(place: Place) -> tuple[Gate, ...]:
    """The gates of access control where nothing else stands, so that passing them is all a request needs."""
    others = [make for make in GATES if make not in (*CHECKS, audit.gate)]
    if _made(others, place) or place.code in audit.CHANGES:
        return ()
    return _made([_AHEAD.get(make, make) for make in CHECKS], place)


def _made(makers: Iterable[MakeGate], place: Place) -> tuple[Gate, ...]:
    return tuple(gate for make in makers if (gate := make(place)) is not None)
