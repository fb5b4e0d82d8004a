# SPDX-License-Identifier: Apache-2.0
"""May they: whether the user whom `accounts` found has the rights that `rights.py` says the request needs."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from aerobee.errors import ProtocolError
from aerobee.fronts.gates.accounts import is_open
from aerobee.fronts.gates.guard import request_name
from aerobee.fronts.gates.needs import Asked
from aerobee.fronts.gates.remembered import DECIDING, MAX_REMEMBERED
from aerobee.fronts.gates.rights import needs_at

if TYPE_CHECKING:
    from aerobee.fronts.gates.call import Call, Gate, Place
    from aerobee.fronts.gates.guard import Guard
    from aerobee.fronts.gates.needs import Needs
    from aerobee.fronts.gates.remembered import Deciding


def gate(place: Place) -> Gate | None:
    guard: Guard | None = place.parts.guard
    if (
        guard is None
        or not guard.checks_rights
        or is_open(place)
        or not guard.needs_right(request_name(place))
    ):
        return None
    check = partial(_check, guard, needs_at(place))
    deciding = None if place.code is None else DECIDING.get(place.code)
    return check if deciding is None else partial(_check_once, guard, deciding, check)


def _check_once(guard: Guard, deciding: Deciding, check: Gate, call: Call) -> None:
    user = call.user
    try:
        names = deciding(call.asked) if user else None
    except (ProtocolError, ValueError, AttributeError):  # `check` meets it again
        names = None
    if user is None or names is None:
        check(call)
        return
    wanted = (call.route, user, call.remote[0], *names)
    passed = guard.passed
    if wanted not in passed:
        check(call)
        if len(passed) >= MAX_REMEMBERED:
            passed.clear()
        passed.add(wanted)


def _check(guard: Guard, needs: Needs | None, call: Call) -> None:
    if call.user is None or guard.may_everything(call.user):
        return  # let in by its address, which is asked nothing; or a super user
    try:
        wanted = None if needs is None else needs(Asked(call, guard.cluster, guard.look_up))
    except (ProtocolError, ValueError, AttributeError):
        raise guard.unreadable(call.user) from None
    guard.check(call.user, wanted, call.remote[0], call.code)
