# SPDX-License-Identifier: Apache-2.0
"""Users, policies and accounts are each broker's own: a command about them asks one broker after the other."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aerobee.cli import connect

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from aerobee.client.admin import Admin

    Where = Callable[[Admin], Awaitable[Mapping[str, str]]]  # names of brokers and their addresses
    Work = Callable[[Admin, str], Awaitable[object]]
    Say = Callable[[str, str], None]


def on_each(namesrv: str | None, where: Where, work: Work, say: Say) -> None:
    """`say` is told the name and the address of each broker where the work is done."""

    async def run() -> None:
        async with connect.connected(connect.address_of(namesrv)) as admin:
            for name, address in (await where(admin)).items():
                await work(admin, address)
                say(name, address)

    connect.run(run())
