# SPDX-License-Identifier: Apache-2.0
"""What operators changed, who read secrets, and what was refused: shown to the audit log, without the secrets.

It stands first, so that it is told of refusals by the gates behind it.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from aerobee.errors import AccessDenied, AclDenied, AerobeeError, ProtocolError
from aerobee.fronts.gates.changes import change_of, settings_before
from aerobee.fronts.gates.needs import Asked
from aerobee.fronts.gates.rights import needs_at
from aerobee.protocol.accounts import ACCESS_KEY, AUTHORIZATION, parse_authorization
from aerobee.protocol.codes import RequestCode as Code

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aerobee.fronts.gates.call import Call, Gate, Outcome, Place
    from aerobee.fronts.gates.guard import AuditLog, Guard
    from aerobee.protocol.access import Need
    from aerobee.settings.declare import Declared

_MAX_TEXT = 256
_MAX_CHANGE = 1_024
_MAX_STRANGERS_BODY = 4_096
# Operators' changes, and reading users and accounts, whose passwords may be told.
CHANGES = frozenset(
    {
        Code.UPDATE_AND_CREATE_TOPIC,
        Code.UPDATE_AND_CREATE_TOPIC_LIST,
        Code.UPDATE_AND_CREATE_STATIC_TOPIC,
        Code.DELETE_TOPIC_IN_BROKER,
        Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
        Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST,
        Code.DELETE_SUBSCRIPTIONGROUP,
        Code.UPDATE_AND_GET_GROUP_FORBIDDEN,
        Code.SET_MESSAGE_REQUEST_MODE,
        Code.INVOKE_BROKER_TO_RESET_OFFSET,
        Code.CLONE_GROUP_OFFSET,
        Code.RESUME_CHECK_HALF_MESSAGE,
        Code.CONSUME_MESSAGE_DIRECTLY,
        Code.UPDATE_BROKER_CONFIG,
        Code.RESET_MASTER_FLUSH_OFFSET,
        Code.POP_ROLLBACK,
        Code.CLEAN_EXPIRED_CONSUMEQUEUE,
        Code.CLEAN_UNUSED_TOPIC,
        Code.DELETE_EXPIRED_COMMITLOG,
        Code.AUTH_CREATE_USER,
        Code.AUTH_UPDATE_USER,
        Code.AUTH_DELETE_USER,
        Code.AUTH_GET_USER,
        Code.AUTH_LIST_USER,
        Code.AUTH_CREATE_ACL,
        Code.AUTH_UPDATE_ACL,
        Code.AUTH_DELETE_ACL,
        Code.UPDATE_AND_CREATE_ACL_CONFIG,
        Code.DELETE_ACL_CONFIG,
        Code.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG,
        Code.GET_BROKER_CLUSTER_ACL_CONFIG,
        # the name server
        Code.PUT_KV_CONFIG,
        Code.DELETE_KV_CONFIG,
        Code.REGISTER_TOPIC_IN_NAMESRV,
        Code.DELETE_TOPIC_IN_NAMESRV,
        Code.WIPE_WRITE_PERM_OF_BROKER,
        Code.ADD_WRITE_PERM_OF_BROKER,
        Code.UPDATE_NAMESRV_CONFIG,
    }
)


def gate(place: Place) -> Gate | None:
    guard: Guard | None = place.parts.guard
    if guard is None or guard.audit is None:
        return None
    return partial(_watch, place, guard, guard.audit)


def _watch(place: Place, guard: Guard, audit: AuditLog, call: Call) -> Outcome:
    return partial(_ended, place, guard, audit, call, settings_before(place))


def _ended(
    place: Place,
    guard: Guard,
    audit: AuditLog,
    call: Call,
    before: list[Declared],
    error: BaseException | None,
) -> None:
    refused = isinstance(error, (AccessDenied, AclDenied))
    if not refused and place.code not in CHANGES:
        return
    needs = _needs(place, guard, call)
    facts: dict[str, Any] = {
        "user": _who(call)[:_MAX_TEXT],
        "from": call.remote[0],
        "port": call.port.value,
        "request": call.route or f"code {call.code}",
        "action": getattr(error, "lacks", "") or (needs[0].actions_text if needs else ""),
        "resources": [need.resource.text[:_MAX_TEXT] for need in needs],
        "result": "refused" if refused else "allowed" if error is None else "failed",
    }
    target = _target(call)
    if target:
        facts["target"] = target[:_MAX_TEXT]
    if not refused and (change := _change(place, call, before)):
        facts["change"] = change[:_MAX_CHANGE]
    if error is not None:
        facts["why"] = str(getattr(error, "remark", error))[:_MAX_TEXT]
    if refused:
        audit.refused(place.clock.wall(), call.remote[0], facts)
    else:
        audit.changed(place.clock.wall(), facts)


def _change(place: Place, call: Call, before: list[Declared]) -> str:
    try:
        return change_of(place, call, before)
    except (AerobeeError, ValueError, AttributeError, OverflowError, OSError):
        return ""  # a time that is none, a body that says nothing, a header that was not read


def _who(call: Call) -> str:
    """Who was found; otherwise who it says to be, which is nobody's word."""
    if call.user:
        return call.user
    try:
        said = call.fields.get(ACCESS_KEY) or parse_authorization(call.fields[AUTHORIZATION]).access_key
    except (KeyError, ValueError, AerobeeError):
        said = ""
    return f"{said}?" if said else ""


def _needs(place: Place, guard: Guard, call: Call) -> Sequence[Need]:
    needs = needs_at(place)
    if not call.user and len(call.body) > _MAX_STRANGERS_BODY:
        return []  # it was refused unread, and is not read for this
    try:
        found = [] if needs is None else needs(Asked(call, guard.cluster, guard.look_up))
    except (ProtocolError, ValueError, AttributeError):
        return []
    return found[:8]


def _target(call: Call) -> str:
    """The user or account that a request about them is about."""
    try:
        asked = call.asked
    except AerobeeError:
        return ""
    named = (getattr(asked, name, None) for name in ("username", "subject", "access_key"))
    return next((each for each in named if each), "")
