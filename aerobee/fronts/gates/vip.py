# SPDX-License-Identifier: Apache-2.0
"""The second port of Java clients up to 4.4.0: the same requests, but none that reads messages."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aerobee.errors import RequestCodeNotSupported
from aerobee.fronts.gates.call import Port
from aerobee.protocol.codes import RequestCode

if TYPE_CHECKING:
    from aerobee.fronts.gates.call import Call, Gate, Place

_READING = frozenset(
    {
        RequestCode.PULL_MESSAGE,
        RequestCode.LITE_PULL_MESSAGE,
        RequestCode.POP_MESSAGE,
        RequestCode.PEEK_MESSAGE,
        RequestCode.NOTIFICATION,
        RequestCode.POLLING_INFO,
    }
)


def gate(place: Place) -> Gate | None:
    return _refuse if place.port is Port.VIP and place.code in _READING else None


def _refuse(call: Call) -> None:
    raise RequestCodeNotSupported(
        f"request code {call.code} is not served on the VIP port; use the broker's port"
    )
