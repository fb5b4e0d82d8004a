# SPDX-License-Identifier: Apache-2.0
"""How commands reach a server, run their coroutine, and say what to do when it does not work."""

from __future__ import annotations

import asyncio
import difflib
import logging
import os
import signal
from contextlib import asynccontextmanager, suppress
from contextvars import ContextVar
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from aerobee.cli import output, profiles
from aerobee.client.running import loop_factory
from aerobee.client.session.identity import DEFAULT_NAMESRV, usual_namesrv
from aerobee.client.session.refusal import UNKNOWN
from aerobee.clock import SystemClock
from aerobee.errors import (
    AerobeeError,
    GroupNotFound,
    NetworkError,
    NoPermission,
    NoRoute,
    RequestCodeNotSupported,
    TopicNotFound,
    TopicNotWritable,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable

    from aerobee.client.admin import Admin
    from aerobee.client.options import SessionOptions

T = TypeVar("T")

VARIABLE = "AEROBEE_NAMESRV"

Namesrv = Annotated[
    str | None,
    typer.Option(
        "--namesrv", "-n", help=f"name servers, ';' between them; or ${VARIABLE} [{DEFAULT_NAMESRV}]"
    ),
]

Watch = Annotated[
    float | None,
    typer.Option("--watch", "-w", help="again every so many seconds", min=0.2, metavar="SECONDS"),
]
CLEAR = b"\x1b[H\x1b[2J"

# `aerobee topics -n HOST:PORT list` means the same as `aerobee topics list -n HOST:PORT`.
_namesrv_given: ContextVar[str | None] = ContextVar("namesrv_given", default=None)

clock = SystemClock()


class Failed(AerobeeError):
    """The command could not do it; the text names the next step."""


def remember_namesrv(given: str | None) -> None:
    _namesrv_given.set(given)


def address_of(given: str | None) -> str:
    """The name servers: option, environment, profile, default, as with the account; RocketMQ's own `NAMESRV_ADDR` is for
    who says nothing else. The client refuses wrong ones before it dials."""
    return given or _namesrv_given.get() or os.environ.get(VARIABLE) or profiles.namesrv() or usual_namesrv()


def servers_of(namesrv: str) -> list[str]:
    return [each.strip() for each in namesrv.replace(",", ";").split(";") if each.strip()]


def run(work: Coroutine[Any, Any, T]) -> T:
    """To the end, or to SIGTERM, which ends it as Ctrl-C does. Clients log only what is an error."""
    logging.getLogger("aerobee").setLevel(os.environ.get("AEROBEE_LOG", "CRITICAL").upper())
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        return runner.run(_ended_by_sigterm(work))


async def _ended_by_sigterm(work: Coroutine[Any, Any, T]) -> T:
    task, told = asyncio.current_task(), False

    def end() -> None:
        nonlocal told
        told = True
        if task is not None:
            task.cancel()

    # not in the main thread, or a system without it: the default then ends us
    with suppress(ValueError, RuntimeError, NotImplementedError):
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, end)
    try:
        return await work
    except asyncio.CancelledError:
        if told:
            raise typer.Exit(0) from None
        raise


async def watched(work: Callable[[], Coroutine[Any, Any, None]], every_s: float | None) -> None:
    """Once, or again and again until it is ended: on a terminal each time in place of the last."""
    while True:
        if every_s is not None and output.on_terminal():
            output.write(CLEAR)
        await work()
        if every_s is None:
            return
        await clock.sleep(round(every_s * 1000))


@asynccontextmanager
async def connected(namesrv: str, options: SessionOptions | None = None) -> AsyncIterator[Admin]:
    """An admin client, with options for whoever shares its session; what goes wrong inside is raised again with the next
    step in it."""
    from aerobee.client.admin import Admin
    from aerobee.client.options import SessionOptions

    async with Admin(namesrv, options=options or profiles.options(SessionOptions)) as admin:
        try:
            yield admin
        except (AerobeeError, OSError) as error:
            raise await explained(error, admin) from error


async def explained(error: AerobeeError | OSError, admin: Admin) -> Exception:
    """The same failure with what to do about it."""
    namesrv = admin.session.namesrv
    match error:
        case Failed():
            return error
        case NetworkError() if "CERTIFICATE_VERIFY_FAILED" in str(error):
            return Failed(
                f"the certificate of the server is not of the authority in `tls_ca` ({error}): see the profile, or "
                f"AEROBEE_TLS_CA"
            )
        case NetworkError() if any(each in str(error) for each in servers_of(namesrv)):
            return Failed(f"no name server at {namesrv} ({error}): {_next_step(admin)}")
        case NetworkError():
            return Failed(f"the broker does not answer ({error}): see `aerobee cluster`")
        case RequestCodeNotSupported():
            return Failed(f"{namesrv} refuses the request ({error}): is it really a name server's address?")
        case TopicNotWritable():
            return error
        case NoRoute() | TopicNotFound():
            return Failed(f"{_first_part(error)}{await _nearest_topics(error, admin)}")
        case GroupNotFound():
            return Failed(f"{error}{await _nearest_groups(error, admin)}")
    return error


def _next_step(admin: Admin) -> str:
    """What may be wrong with the address, or with TLS on either side of it."""
    if admin.session.options.tls == "off":
        return (
            "start one with `aerobee serve`, or name another with --namesrv HOST:PORT; a server that takes TLS alone "
            '(tls_required) needs tls = "on" in the profile, or AEROBEE_TLS=on'
        )
    return "start one with `aerobee serve`, or name another with --namesrv HOST:PORT; does it speak TLS?"


def _first_part(error: Exception) -> str:
    return str(error).removesuffix(UNKNOWN)


async def _nearest_topics(error: Exception, admin: Admin) -> str:
    try:
        known = await admin.user_topics()
    except AerobeeError:
        return ""
    return nearest(_quoted(error), known, "topics list")


async def _nearest_groups(error: Exception, admin: Admin) -> str:
    try:
        known = list(await admin.groups())
    except AerobeeError:
        return ""
    return nearest(_quoted(error), known, "groups list")


def _quoted(error: Exception) -> str:
    """The name our own messages put between quotes, or RocketMQ's between brackets."""
    text = str(error).replace('"', "'").replace("[", "'").replace("]", "'")
    return text.split("'")[1] if text.count("'") >= 2 else ""


def nearest(name: str, known: Iterable[str], command: str) -> str:
    names = [each for each in known if each != name]
    close = difflib.get_close_matches(name, names, 3, 0.5)
    if close:
        return f"; did you mean {' or '.join(repr(each) for each in close)}?"
    return f"; `aerobee {command}` shows what there is"


async def existing_topic(admin: Admin, topic: str) -> None:
    """Failed, naming the nearest ones, when there is no such topic."""
    from aerobee.protocol import names

    names.check_topic(topic)
    if not await admin.topic_exists(topic):
        hint = nearest(topic, await _as_far_as_allowed(admin.user_topics()), "topics list")
        raise Failed(f"topic {topic!r} does not exist{hint}")


async def existing_group(admin: Admin, group: str) -> None:
    from aerobee.protocol import names

    names.check_group(group)
    if await admin.members(group) is not None or await admin.group_topics(group):
        return  # who may look at this group need not be allowed to list all of them
    known = await _as_far_as_allowed(admin.groups())
    if group in known or (not known and await _has_settings(admin, group)):
        return
    raise Failed(f"group {group!r} does not exist{nearest(group, known, 'groups list')}")


async def _as_far_as_allowed(asked: Awaitable[Iterable[str]]) -> list[str]:
    """All names, or none where they may not be listed."""
    try:
        return list(await asked)
    except NoPermission:
        return []


async def _has_settings(admin: Admin, group: str) -> bool:
    try:
        await admin.group_config(group)
    except GroupNotFound:
        return False
    return True
