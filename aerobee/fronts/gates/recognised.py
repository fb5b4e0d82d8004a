# SPDX-License-Identifier: Apache-2.0
"""Requests that are known again: of a user who was let through with the same names before, and signed with all their
fields. They pass without being decoded; who is not known again is asked by the gates, and refused by nobody else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

from aerobee.errors import BrokerError
from aerobee.fronts.gates import accounts, permissions
from aerobee.fronts.gates.call import Port
from aerobee.fronts.gates.guard import request_name
from aerobee.fronts.gates.remembered import DECIDING
from aerobee.protocol.accounts import is_signed_whole

if TYPE_CHECKING:
    from aerobee.fronts.gates.call import Place
    from aerobee.fronts.gates.guard import Guard


class Signed(Protocol):
    """A request as far as its signature goes."""

    @property
    def user(self) -> str: ...
    @property
    def names(self) -> tuple[str, ...]:
        """What `remembered.py` has of such a request."""
        ...

    @property
    def content(self) -> bytes:
        """What is signed."""
        ...

    @property
    def signature(self) -> bytes: ...


class Recognised(NamedTuple):
    guard: Guard
    route: str
    needs_right: bool

    def admits(self, request: Signed, source: str) -> bool:
        """Whether it would pass the gates; False says nothing."""
        user = request.user
        if self.needs_right and (self.route, user, source, *request.names) not in self.guard.passed:
            return False
        try:
            secret = self.guard.secret_of(user, source)
        except BrokerError:
            return False
        return secret is not None and is_signed_whole(secret, request.content, request.signature)


def recognised_at(place: Place) -> Recognised | None:
    """None where a request may pass in another way than by its own signature and rights."""
    guard: Guard | None = place.parts.guard
    if guard is None or place.port not in (Port.BROKER, Port.VIP) or place.code not in DECIDING:
        return None
    if accounts.gate(place) is None or not guard.needs_signature(request_name(place)):
        return None
    return Recognised(guard, place.route, permissions.gate(place) is not None)
