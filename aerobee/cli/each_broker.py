# SPDX-License-Identifier: Apache-2.0
"""Users, policies and accounts are each broker's own: a command about them asks one broker after the other."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from aerobee.cli import connect

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from aerobee.client.admin import Admin

    Where = Callable[[Admin], Awaitable[Mapping[str, str]]]  # names of brokers and their addresses

T = TypeVar("T")


def on_each(
    namesrv: str | None,
    where: Where,
    work: Callable[[Admin, str], Awaitable[T]],
    say: Callable[[str, str, T], None],
) -> None:
    """`say` is told the name and the address of each broker where the work is done, and what came of it."""

    async def run() -> None:
        async with connect.connected(connect.address_of(namesrv)) as admin:
            for name, address in (await where(admin)).items():
                say(name, address, await work(admin, address))

    connect.run(run())
