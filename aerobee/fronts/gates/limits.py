# SPDX-License-Identifier: Apache-2.0
"""How much one request may hold, where the work grows with it and its frame's bound is no bound of the work."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aerobee.errors import InvalidParameter
from aerobee.fronts.gates.call import Port

if TYPE_CHECKING:
    from aerobee.fronts.gates.call import Call, Gate, Place

MAX_SETTINGS_BYTES = 64 * 1024
MAX_ENTRIES = 1_000

_SETTINGS = frozenset({"UpdateBrokerConfig", "UpdateNamesrvConfig"})
# gRPC's: the list of the request, and what its entries are to those who are refused.
_ENTRIES = {"SendMessage": ("messages", "messages"), "AckMessage": ("entries", "receipts")}


def gate(place: Place) -> Gate | None:
    if place.route in _SETTINGS:
        return _settings
    if place.port is Port.GRPC and place.route in _ENTRIES:
        return _entries
    return None


def _settings(call: Call) -> None:
    if len(call.body) > MAX_SETTINGS_BYTES:
        raise InvalidParameter(f"settings of {len(call.body)} bytes, limit {MAX_SETTINGS_BYTES}")


def _entries(call: Call) -> None:
    name, what = _ENTRIES[call.route]
    count = len(getattr(call.asked, name))
    if count > MAX_ENTRIES:
        raise InvalidParameter(f"{count} {what} in one request, limit {MAX_ENTRIES}; send several")
