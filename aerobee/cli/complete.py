# SPDX-License-Identifier: Apache-2.0
"""Names of topics and groups for the shell's completion: asked from the cluster, quickly or not at all."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import typer  # noqa: TC002 - typer looks the type of the parameter up

from aerobee.cli import connect, profiles

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from typing import Any

    from aerobee.client.admin import Admin

WAIT_S = 1.5  # who presses Tab does not wait longer
MOST = 200


def topics(ctx: typer.Context, incomplete: str) -> list[str]:
    return _names(ctx, incomplete, lambda admin: admin.user_topics())


def groups(ctx: typer.Context, incomplete: str) -> list[str]:
    async def known(admin: Admin) -> list[str]:
        from aerobee.protocol import names

        return [group for group in await admin.groups() if not names.is_system_group(group)]

    return _names(ctx, incomplete, known)


def _names(
    ctx: typer.Context, begun: str, ask: Callable[[Admin], Coroutine[Any, Any, list[str]]]
) -> list[str]:
    """Nothing where it does not work: a completion has no place for a failure."""

    async def asked() -> list[str]:
        from aerobee.client.admin import Admin
        from aerobee.client.options import SessionOptions

        namesrv = connect.address_of((ctx.params or {}).get("namesrv"))
        async with asyncio.timeout(WAIT_S), Admin(namesrv, options=profiles.options(SessionOptions)) as admin:
            return await ask(admin)

    try:
        return [name for name in asyncio.run(asked()) if name.startswith(begun)][:MOST]
    except Exception:
        return []
