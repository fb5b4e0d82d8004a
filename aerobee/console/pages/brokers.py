# SPDX-License-Identifier: Apache-2.0
"""The brokers of the cluster; of one: every figure and setting it tells, and whether producers may write to it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aerobee.console.problems import brokers_gone
from aerobee.console.sampler import broker_seen, gone_seen
from aerobee.errors import AerobeeError, NoRoute

if TYPE_CHECKING:
    from starlette.responses import Response

    from aerobee.console.visit import Visit


async def show(visit: Visit) -> Response:
    view = visit.desk.view
    info, masters = await view.cluster(), await view.masters()
    tables = await view.each(masters.values(), view.runtime)
    clusters = {broker: name for name, members in info.cluster_addr_table.items() for broker in members}
    rows = []
    for name, address in sorted(masters.items()):
        table = tables[address]
        seen = None if isinstance(table, AerobeeError) else broker_seen(name, address, table)
        slaves = [each for key, each in info.broker_addr_table[name].broker_addrs.items() if key]
        rows.append((clusters.get(name, ""), name, address, seen, slaves))
    now = visit.desk.clock.wall()
    missing = brokers_gone(gone_seen(await view.gone_brokers(), now))
    return visit.render("brokers.html", title=visit.words("Brokers"), rows=rows, missing=missing, now=now)


async def one(visit: Visit) -> Response:
    name, view = visit.name("broker"), visit.desk.view
    address = await _address(visit, name)
    runtime = await view.runtime(address)
    return visit.render("broker.html", title=name, broker=name, address=address, runtime=runtime)


async def switch_writes(visit: Visit) -> Response:
    """The name servers take a broker out of producers' routes, or put it back; consumers go on."""
    name, t = visit.name("broker"), visit.words
    await _address(visit, name)
    if visit.field("writes") == "off":
        await visit.desk.admin.forbid_writes(name)
        said = t("Producers are sent elsewhere than to {broker}.", broker=name)
    else:
        await visit.desk.admin.allow_writes(name)
        said = t("Producers may send to {broker}.", broker=name)
    visit.desk.view.forget()
    return visit.go(visit.link("brokers", name), said)


async def _address(visit: Visit, name: str) -> str:
    address = (await visit.desk.view.masters()).get(name)
    if address is None:
        raise NoRoute(f"broker {name!r} is unknown to the name servers")
    return address
