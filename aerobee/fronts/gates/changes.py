# SPDX-License-Identifier: Apache-2.0
"""What a request that was let through has changed, in words for the audit log; never a secret."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from aerobee.protocol import bodies
from aerobee.protocol.codes import RequestCode as Code
from aerobee.protocol.codes import perm_text
from aerobee.settings.running import changes_between

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from aerobee.fronts.gates.call import Call, Place
    from aerobee.settings.declare import Declared

_OF_SETTINGS = frozenset({Code.UPDATE_BROKER_CONFIG, Code.UPDATE_NAMESRV_CONFIG})


def settings_before(place: Place) -> list[Declared]:
    """In force now, where the request may change them: a change puts others in their place."""
    if place.code not in _OF_SETTINGS:
        return []
    store = getattr(place.parts, "store", None)
    return [holder.value for holder in (place.parts.settings, getattr(store, "settings", None)) if holder]


def change_of(place: Place, call: Call, before: Sequence[Declared]) -> str:
    """Empty where the request's name and resources say it all."""
    if before:
        pairs = zip(before, settings_before(place), strict=True)
        found = [each for old, new in pairs for each in changes_between(old, new)]
        return ", ".join(
            f"{each.field.name}: {each.field.text(each.before)} -> {each.field.text(each.after)}"
            for each in found
        )
    told = _TOLD.get(place.code) if place.code is not None else None
    return "" if told is None else told(call)


def _user(call: Call) -> str:
    """That it was the password, never which; of an update only what it says changes."""
    info = bodies.decode_request(call.body, bodies.UserInfo)
    found = {
        "the password": bool((info.password or "").strip()),
        f"type {info.user_type}": bool(info.user_type),
        f"status {info.user_status}": bool(info.user_status),
    }
    return ", ".join(text for text, is_said in found.items() if is_said)


def _rules(call: Call) -> str:
    acl = bodies.decode_request(call.body, bodies.AclInfo)
    entries = [entry for policy in acl.policies for entry in policy.entries]
    return ", ".join(
        f"{entry.decision} {','.join(entry.actions)} on {entry.resource}"
        + (f" from {','.join(entry.source_ips)}" if entry.source_ips else "")
        for entry in entries
    )


def _rule_taken_away(call: Call) -> str:
    return f"rules on {call.asked.resource}" if call.asked.resource else "all rules"


def _moved(call: Call) -> str:
    asked: Any = call.asked
    queue = "" if asked.queue_id is None or asked.queue_id < 0 else f" queue {asked.queue_id}"
    if asked.offset is not None and asked.offset >= 0:
        to = f"offset {asked.offset}"
    elif asked.timestamp < 0:
        to = "the end"
    elif asked.timestamp == 0:
        to = "the first message"
    else:
        to = datetime.fromtimestamp(asked.timestamp / 1000, UTC).isoformat(timespec="milliseconds")
    return f"{asked.group} on {asked.topic}{queue} to {to}"


def _topic(call: Call) -> str:
    asked: Any = call.asked
    read, write = asked.read_queue_nums, asked.write_queue_nums
    queues = str(read) if read == write else f"{read} to read and {write} to write"
    attributes = f", {asked.attributes}" if asked.attributes else ""
    return f"{asked.topic}: queues {queues}, permission {perm_text(asked.perm)}{attributes}"


def _group(call: Call) -> str:
    config = bodies.decode_request(call.body, bodies.GroupConfig)
    return (
        f"{config.group_name}: retries {config.retry_max_times}, "
        f"{'may' if config.consume_enable else 'may not'} consume"
    )


_TOLD: dict[int, Callable[[Call], str]] = {
    Code.AUTH_UPDATE_USER: _user,
    Code.AUTH_CREATE_ACL: _rules,
    Code.AUTH_UPDATE_ACL: _rules,
    Code.AUTH_DELETE_ACL: _rule_taken_away,
    Code.INVOKE_BROKER_TO_RESET_OFFSET: _moved,
    Code.UPDATE_AND_CREATE_TOPIC: _topic,
    Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: _group,
}
