# SPDX-License-Identifier: Apache-2.0
"""`aerobee groups dead` and `resend`: what a group gave up on, and a second chance for it."""

from __future__ import annotations

import fnmatch
import shlex
from typing import TYPE_CHECKING, Annotated, Any

import typer

from aerobee.cli import complete, connect, output
from aerobee.errors import NoPermission

if TYPE_CHECKING:
    from collections.abc import Callable

    from aerobee.client.admin import Admin
    from aerobee.client.message import ReceivedMessage

_NAMED = 5  # other groups
_SHOWN = 100  # of what would be sent

Group = Annotated[str, typer.Argument(help="consumer group", autocompletion=complete.groups)]
Limit = Annotated[int, typer.Option("--limit", "-l", help="at most so many", min=1)]
Ids = Annotated[list[str] | None, typer.Option("--id", help="only this message id; repeatable")]
Keys = Annotated[str | None, typer.Option("--key", help="only messages with a key like this: 'o-1*'")]


def dead(
    group: Group,
    limit: Limit = 100,
    key: Keys = None,
    namesrv: connect.Namesrv = None,
    json: output.Json = False,
) -> None:
    """List a group's dead letters: messages that failed as often as the group allows, and what they failed with.

    aerobee groups dead billing
    """
    connect.run(_dead(connect.address_of(namesrv), group, limit, key, json=output.wants_json(json)))


async def _dead(address: str, group: str, limit: int, key: str | None, *, json: bool) -> None:
    rows: list[dict[str, Any]] = []
    async with connect.connected(address) as admin:
        await connect.existing_group(admin, group)
        async for letter in admin.dead_letters(group):
            if _has_key(letter, key):
                rows.append(_row(letter))
            if len(rows) >= limit:
                break
    if json:
        output.line(output.pretty_json(rows))
        return
    if not rows:
        output.note(f"group {group} has no dead letters" + (f" with a key like {key}" if key else ""))
        return
    shown = [{**row, "stored": output.local_time(row["storeTimestamp"]), "body": _body(row)} for row in rows]
    columns = {
        "msgId": "message", "originTopic": "topic", "tags": "tags", "keys": "keys",
        "attempts": "attempts", "stored": "died", "reason": "reason", "body": "body",
    }  # fmt: skip
    output.table(shown, columns, title=f"Dead letters of {group}")


def _row(letter: ReceivedMessage) -> dict[str, Any]:
    """Each attempt but the first was counted when it began, and the last one when it had failed."""
    return {
        **output.message_row(letter),
        "originTopic": _origin(letter),
        "attempts": letter.reconsume_times,
        "reason": _reason(letter),
    }


def _body(row: dict[str, Any]) -> str:
    return output.shown_body(row["body"].encode()) if "body" in row else f"base64 {row['bodyBase64'][:40]}"


def _origin(letter: ReceivedMessage) -> str | None:
    from aerobee.protocol import properties

    return letter.property(properties.RETRY_TOPIC) or letter.property(properties.DLQ_ORIGIN_TOPIC)


def _reason(letter: ReceivedMessage) -> str | None:
    """What its last handler raised, when a client of ours sent it back."""
    from aerobee.protocol import properties

    return letter.property(properties.LAST_ERROR)


def _has_key(letter: ReceivedMessage, key: str | None) -> bool:
    return key is None or any(fnmatch.fnmatch(each, key) for each in letter.keys)


def resend(
    group: Group,
    ids: Ids = None,
    key: Keys = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="only say what would be sent")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="do not ask")] = False,
    namesrv: connect.Namesrv = None,
    json: output.Json = False,
) -> None:
    """Send dead letters again to the topic they came from, as new messages that name the old id.

    The dead-letter topic keeps its copies: what is sent twice is consumed twice. A message that died several times left
    several letters of its id, and --id sends all of them: --dry-run lists them.

    aerobee groups resend billing --key 'o-1*' --dry-run
    """
    work = _resend(connect.address_of(namesrv), group, _choice(ids, key), dry_run=dry_run, yes=yes)
    rows = connect.run(work)
    if ids and not rows:
        raise connect.Failed(
            f"no dead letter of {group!r} has id {' or '.join(map(repr, ids))}"
            f"{'' if key is None else f' and key {key!r}'}; `aerobee groups dead {shlex.quote(group)}` lists them"
        )
    if ids and len(rows) > len({row["msgId"] for row in rows}):
        output.note(
            "some of them are of one id: each time a message died it left a letter, and all of them count"
        )
    if output.wants_json(json):
        output.line(output.pretty_json(rows))
    elif dry_run:
        output.table(rows[:_SHOWN], {"msgId": "message", "topic": "to topic", "keys": "keys"})
        more = f" ({_SHOWN} shown; --json has all)" if len(rows) > _SHOWN else ""
        output.line(f"{output.many(len(rows), 'dead letter')} of {group} would be sent again{more}")
    else:
        if rows:
            output.table(
                rows[:_SHOWN],
                {"msgId": "message", "newMsgId": "sent as", "topic": "to topic", "keys": "keys"},
            )
        output.line(f"sent {output.many(len(rows), 'dead letter')} of {group} again")


def _choice(ids: list[str] | None, key: str | None) -> Callable[[ReceivedMessage], bool]:
    def chosen(letter: ReceivedMessage) -> bool:
        wanted = not ids or bool({letter.message_id, letter.offset_id} & set(ids))
        return wanted and _has_key(letter, key)

    return chosen


async def _other_readers(admin: Admin, group: str, topics: set[str]) -> str:
    """A message that is sent again is a new one, to every group of its topic."""
    found = {reader for topic in topics for reader in await admin.groups_of(topic)} - {group}
    if not found:
        return ""
    shown = ", ".join(sorted(found)[:_NAMED]) + (" ..." if len(found) > _NAMED else "")
    which = "group reads" if len(found) == 1 else "groups read"
    return f"{len(found)} other {which} {', '.join(sorted(topics))} and will get them too ({shown}). "


def _counted(rows: list[dict[str, Any]]) -> str:
    """How many letters, and of how many messages where these are fewer: one that died twice has left two."""
    letters, messages = len(rows), len({row["msgId"] for row in rows})
    return output.many(letters, "dead letter") + (
        f" (of {output.many(messages, 'message')})" if messages < letters else ""
    )


async def _resend(
    address: str, group: str, chosen: Callable[[ReceivedMessage], bool], *, dry_run: bool, yes: bool
) -> list[dict[str, Any]]:
    async with connect.connected(address) as admin:
        await connect.existing_group(admin, group)
        letters = [letter async for letter in admin.dead_letters(group) if chosen(letter)]
        rows = [{"msgId": each.message_id, "topic": _origin(each), "keys": each.keys} for each in letters]
        if dry_run or not rows:
            return rows
        if not yes:
            topics = {topic for each in letters if (topic := _origin(each))}
            try:
                others = await _other_readers(admin, group, topics)
            except NoPermission:
                others = "Who else reads the topic you may not be told. "
            output.confirmed(f"{others}Send {_counted(rows)} of {group!r} again?", yes)
        sent = await admin.resend_dead_letters(group, choose=chosen)
    # As many were sent as were chosen: the topic only grows, and what grew meanwhile stands at the end.
    return [{**row, "newMsgId": each.message_id} for row, each in zip(rows, sent, strict=False)]
