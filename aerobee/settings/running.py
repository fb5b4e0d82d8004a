# SPDX-License-Identifier: Apache-2.0
"""Settings of something that runs, seen and changed by requests: `name=value` lines under RocketMQ's names.

A request changes all that it says, or nothing. Changes last until the next start: the settings file is the
operator's own.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from aerobee.errors import InvalidParameter, NoPermission
from aerobee.settings.declare import Declared, Field, fields
from aerobee.settings.names import find, warn_of_ignored
from aerobee.settings.official import NOT_BY_REQUEST
from aerobee.settings.sources import parse_properties

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aerobee.settings.in_force import InForce

log = logging.getLogger("aerobee.settings")

Wanted = dict[str, dict[str, Any]]  # table -> field -> value


class Change(NamedTuple):
    field: Field
    before: Any
    after: Any


def official_text(*structs: Declared) -> str:
    """Every setting but secrets as RocketMQ names and writes it, one a line."""
    lines = (
        f"{each.official}={each.show(getattr(struct, each.name))}\n"
        for struct in structs
        for each in fields(type(struct)).values()
        if not each.about.secret
    )
    return "".join(sorted(lines))


def changed_names(*holders: InForce[Any]) -> list[str]:
    """RocketMQ's names of those that requests have changed since the start. Others change while it starts: a port that
    was any becomes the one that was free."""
    return [
        each.field.official
        for holder in holders
        for each in changes_between(holder.at_start, holder.value)
        if each.field.about.live and not each.field.about.secret
    ]


def change(text: str, holders: Mapping[str, InForce[Any]]) -> list[Change]:
    """Put in force what the lines say. `holders` has the settings in force by table."""
    try:
        wanted, ignored = _wanted(text, holders)
        structs = {table: msgspec.structs.replace(holders[table].value, **wanted[table]) for table in holders}
    except ValueError as error:
        raise InvalidParameter(str(error)) from None
    warn_of_ignored(ignored)
    changes = [each for table in holders for each in changes_between(holders[table].value, structs[table])]
    for table, holder in holders.items():
        holder.swap(structs[table])
    for each in changes:
        before, after = each.field.text(each.before), each.field.text(each.after)
        log.info("setting %s changed from=%s to=%s, until the next start", each.field.name, before, after)
    return changes


def _wanted(text: str, holders: Mapping[str, InForce[Any]]) -> tuple[Wanted, list[str]]:
    wanted: Wanted = {table: {} for table in holders}
    ignored, tables = [], list(holders)
    for name, value in parse_properties(text):
        if name in NOT_BY_REQUEST:
            raise NoPermission(f"setting '{name}' may not be changed remotely")
        field = find(name, value, tables)
        if field is None:
            ignored.append(name)
            continue
        after = field.read(value, name)
        same = after == getattr(holders[field.table].value, field.name) and not field.about.secret
        if not field.about.live and not same:
            raise ValueError(
                f"setting '{name}' takes effect at the next start: change it in the settings file, or by a flag"
            )
        wanted[field.table][field.name] = after
    return wanted, ignored


def changes_between(before: Declared, after: Declared) -> list[Change]:
    pairs = (
        (each, getattr(before, each.name), getattr(after, each.name)) for each in fields(type(after)).values()
    )
    return [Change(each, old, new) for each, old, new in pairs if old != new]
