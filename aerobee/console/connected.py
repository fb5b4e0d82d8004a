# SPDX-License-Identifier: Apache-2.0
"""Every client that is connected now, put together from what brokers tell of producers and of each group."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from aerobee.errors import AerobeeError, RequestCodeNotSupported
from aerobee.protocol import names
from aerobee.protocol.versions import version_text

if TYPE_CHECKING:
    from aerobee.console.cluster_view import ClusterView
    from aerobee.protocol import bodies

GROUPS_ASKED = 500


@dataclass
class Client:
    client_id: str
    address: str
    language: str
    version: str
    consumes_in: dict[str, bodies.ConsumerConnection] = field(default_factory=dict)
    produces_in: list[str] = field(default_factory=list)

    @property
    def subscriptions(self) -> list[tuple[str, str]]:
        """Topic and expression, of all its groups; retries are the broker's business."""
        found = {
            (topic, data.sub_string)
            for group in self.consumes_in.values()
            for topic, data in group.subscription_table.items()
            if not names.is_retry(topic)
        }
        return sorted(found)

    @property
    def text(self) -> str:
        """What a search looks through."""
        topics = [topic for topic, _ in self.subscriptions]
        told = [self.client_id, self.address, self.language, self.version]
        return " ".join([*told, *self.consumes_in, *self.produces_in, *topics])


@dataclass
class Connected:
    clients: list[Client]
    groups_left_out: int  # not asked for: there are too many
    tells_producers: bool


async def connected(view: ClusterView) -> Connected:
    groups = sorted(await view.groups())
    members = await view.each(groups[:GROUPS_ASKED], view.members)
    found: dict[str, Client] = {}
    for group, told in members.items():
        if told is None or isinstance(told, AerobeeError):
            continue
        for each in told.connection_set:
            client = found.setdefault(
                each.client_id,
                Client(each.client_id, each.client_addr, each.language, version_text(each.version)),
            )
            client.consumes_in[group] = told
    producers = await _producers(view)
    for group, infos in (producers or {}).items():
        for info in infos:
            client = found.setdefault(
                info.client_id,
                Client(info.client_id, info.remote_ip, info.language, version_text(info.version)),
            )
            client.produces_in.append(group)
    left_out = max(0, len(groups) - GROUPS_ASKED)
    return Connected([found[name] for name in sorted(found)], left_out, producers is not None)


async def _producers(view: ClusterView) -> dict[str, list[bodies.ProducerInfo]] | None:
    """None where a broker does not tell."""
    try:
        told = await view.once("producers", view.admin.all_producers)
    except RequestCodeNotSupported:
        return None
    return {group: infos for group, infos in told.items() if group != names.INNER_PRODUCER_GROUP}
