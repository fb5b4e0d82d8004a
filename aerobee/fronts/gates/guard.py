# SPDX-License-Identifier: Apache-2.0
"""What the gates of access control ask: `broker/access` answers, by RocketMQ 5's users and policies or by a list of
RocketMQ 4. Gates stand in front of the name server too, so they know it by what it can do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aerobee.errors import BrokerError
    from aerobee.fronts.gates.call import Place
    from aerobee.protocol.access import Need


class LookUp(Protocol):
    """What a request only points at."""

    def topic_at(self, physical_offset: int) -> str | None:
        """The topic of the message at a place of the log, or that it waits for; None when there is none."""

    def is_group(self, name: str) -> bool: ...
    def is_topic(self, name: str) -> bool: ...


class AuditLog(Protocol):
    """Lines of facts; refusals of one address are bounded."""

    def changed(self, now: int, facts: dict[str, Any]) -> None: ...
    def refused(self, now: int, source: str, facts: dict[str, Any]) -> None: ...


class Guard(Protocol):
    refused_logins: int

    @property
    def audit(self) -> AuditLog | None: ...
    @property
    def cluster(self) -> str: ...
    @property
    def checks_rights(self) -> bool: ...
    @property
    def look_up(self) -> LookUp: ...
    @property
    def passed(self) -> set[tuple[str, ...]]:
        """Requests let through so far, by what decides about them; empty again when anything changes."""

    def needs_signature(self, request: str) -> bool:
        """Of remoting's code as text, or gRPC's full name of the request."""

    def needs_right(self, request: str) -> bool: ...

    def secret_of(self, user: str, source: str) -> str | None:
        """What the request must be signed with; None for who is let in by the address alone. Raises for others."""

    def badly_signed(self, user: str) -> BrokerError: ...

    def may_everything(self, user: str) -> bool: ...

    def check(self, user: str, needs: Sequence[Need] | None, source: str, code: int | None) -> None:
        """Raises when a need is not met; None stands for a request that nobody listed."""

    def unreadable(self, user: str) -> BrokerError:
        """Of a request whose needs cannot be told."""


def request_name(place: Place) -> str:
    """What the white lists call a request."""
    if place.code is not None:
        return str(int(place.code))
    return f"apache.rocketmq.v2.{place.route}Request" if place.route else ""
