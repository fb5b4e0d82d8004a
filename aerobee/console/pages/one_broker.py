# SPDX-License-Identifier: Apache-2.0
"""What each broker keeps for itself: one is chosen to look at, and a change goes to all of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from aerobee.errors import AclDenied, AerobeeError, BrokerError, NoPermission, NoRoute

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from aerobee.console.visit import Visit


class Chosen(NamedTuple):
    name: str
    address: str
    names: list[str]  # of all, to choose from


async def chosen(visit: Visit) -> Chosen:
    """The one that the address of the page names, else the first."""
    masters = await visit.desk.view.masters()
    name = visit.query("broker") or visit.field("broker") or min(masters, default="")
    if not name:
        raise NoRoute("no broker is registered at the name servers")
    if name not in masters:
        raise NoRoute(f"broker {name!r} is unknown to the name servers")
    return Chosen(name, masters[name], sorted(masters))


async def on_every(visit: Visit, work: Callable[[str], Awaitable[None]], said: str) -> str:
    """Does it on every broker and says so, with what those answered that refused. Raises when all did."""
    masters = await visit.desk.view.masters()
    refused: dict[str, AerobeeError] = {}
    for name, address in sorted(masters.items()):
        try:
            await work(address)
        except AerobeeError as error:
            refused[name] = error
    visit.desk.view.forget()
    if refused and len(refused) == len(masters):
        raise next(iter(refused.values()))
    for name, refusal in refused.items():
        said += " " + visit.words("{broker} refused: {why}", broker=name, why=str(refusal))
    return said


def is_a_right(error: BrokerError) -> bool:
    """Whether it was refused for want of a right, which is said in another way than what a broker cannot tell."""
    return isinstance(error, (NoPermission, AclDenied))
