# SPDX-License-Identifier: Apache-2.0
"""Who is this: a request must be signed with the secret of the user it names. What passes knows its user by `call.user`.

Nothing else that a peer says of itself counts: no header names a user, a source address or a channel.
"""

from __future__ import annotations

import hmac
from functools import partial
from typing import TYPE_CHECKING

from aerobee.errors import AccessDenied, BrokerError
from aerobee.fronts.gates.call import Port
from aerobee.fronts.gates.guard import request_name
from aerobee.protocol import accounts

if TYPE_CHECKING:
    from collections.abc import Callable

    from aerobee.fronts.gates.call import Call, Gate, Place
    from aerobee.fronts.gates.guard import Guard

# Clients ask for routes before they have anything to do with a broker, old ones without a signature.
_OPEN_AT_NAMESRV = frozenset({"GetRoute", "GetClusterInfo"})


def gate(place: Place) -> Gate | None:
    guard, identify = place.parts.guard, check(place)
    if identify is None or not guard.needs_signature(request_name(place)):
        return identify
    return partial(_counted, guard, identify)


def check(place: Place) -> Gate | None:
    """The same, uncounted: for who looks ahead of the gates, where whoever is refused comes to them all the same."""
    guard: Guard | None = place.parts.guard
    if guard is None or is_open(place):
        return None
    ways = {Port.GRPC: _by_metadata, Port.HTTP: _by_secret}
    identify = partial(ways.get(place.port, _by_fields), guard)
    return identify if guard.needs_signature(request_name(place)) else partial(_if_it_can, identify)


def is_open(place: Place) -> bool:
    return place.port is Port.NAMESRV and place.route in _OPEN_AT_NAMESRV


def _counted(guard: Guard, identify: Gate, call: Call) -> None:
    try:
        identify(call)
    except BrokerError:
        guard.refused_logins += 1
        raise


def _by_fields(guard: Guard, call: Call) -> None:
    fields = call.fields
    user = fields.get(accounts.ACCESS_KEY, "")
    secret = guard.secret_of(user, call.remote[0])
    if secret is None:
        call.user = None
        return
    if not accounts.is_signed(secret, fields, call.body, call.version):
        raise guard.badly_signed(user)
    call.user = user


def _by_secret(guard: Guard, call: Call) -> None:
    """HTTP's Basic brings the secret itself."""
    user = call.fields.get(accounts.ACCESS_KEY, "")
    secret = guard.secret_of(user, call.remote[0])
    if secret is None:
        call.user = None
        return
    if not hmac.compare_digest(secret.encode(), call.fields.get(accounts.SECRET, "").encode()):
        raise guard.badly_signed(user)
    call.user = user


def _by_metadata(guard: Guard, call: Call) -> None:
    said = call.fields
    written = said.get(accounts.AUTHORIZATION, "")
    try:
        given = accounts.parse_authorization(written) if written else accounts.GrpcSignature("", b"")
    except ValueError as error:
        raise AccessDenied(str(error)) from None
    date_time = said.get(accounts.DATE_TIME)
    if written and not date_time:
        raise AccessDenied("datetime is null.")
    secret = guard.secret_of(given.access_key, call.remote[0])
    if secret is None:
        call.user = None
        return
    if not accounts.is_signed_for_grpc(secret, date_time or "", given.signature):
        raise guard.badly_signed(given.access_key)
    call.user = given.access_key


def _if_it_can(identify: Callable[[Call], None], call: Call) -> None:
    """A request on the white list is anybody's; but who signs it well is known to the gates behind."""
    try:
        identify(call)
    except BrokerError:
        call.user = ""
