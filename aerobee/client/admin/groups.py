# SPDX-License-Identifier: Apache-2.0
"""Groups: settings, members, how they fetch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from aerobee.client.admin.asking import TIMEOUT_MS
from aerobee.errors import ConsumerNotOnline, GroupNotFound, SystemFailure
from aerobee.protocol import bodies, names
from aerobee.protocol.bodies import Mode
from aerobee.protocol.headers.consume import ConsumeDirectly, GetRequestModes, SetRequestMode
from aerobee.protocol.headers.groups import (
    AllGroupConfigs,
    AllProducers,
    ConsumerConnections,
    CreateGroup,
    DeleteGroup,
    GetGroupConfig,
    GroupTopics,
    ProducerConnections,
    RunningInfo,
)

if TYPE_CHECKING:
    from typing import Any

    from aerobee.client.admin.asking import Asking


class Groups:
    def __init__(self, asking: Asking) -> None:
        self._asking = asking
        self._session = asking.session

    async def groups(self) -> dict[str, bodies.GroupConfig]:
        """Settings by name, of all brokers together."""

        async def ask(address: str) -> bodies.GroupConfigs:
            answer = await self._session.call(address, AllGroupConfigs(), timeout_ms=TIMEOUT_MS)
            return bodies.decode(answer.body, bodies.GroupConfigs)

        found: dict[str, bodies.GroupConfig] = {}
        for configs in (await self._asking.each(await self._asking.masters(), ask)).values():
            found.update(configs.subscription_group_table)
        return dict(sorted(found.items()))

    async def group_config(self, group: str) -> bodies.GroupConfig:
        """GroupNotFound when no broker has it."""
        for address in (await self._asking.masters()).values():
            try:
                answer = await self._session.call(address, GetGroupConfig(group=group), timeout_ms=TIMEOUT_MS)
            except GroupNotFound:
                continue
            return bodies.decode(answer.body, bodies.GroupConfig)
        raise GroupNotFound(f"group {group!r} exists on no broker")

    async def create_group(self, group: str, *, cluster: str | None = None, **settings: Any) -> None:
        """Create a group on every broker, or change it: `create_group("billing", retry_max_times=3)`."""
        names.check_group(group)
        unknown = settings.keys() - set(bodies.GroupConfig.__struct_fields__)
        if unknown:
            raise TypeError(f"{', '.join(sorted(unknown))}: no such setting of a group")
        config = msgspec.structs.replace(bodies.GroupConfig(group_name=group), **settings)

        async def ask(address: str) -> None:
            await self._session.call(address, CreateGroup(), bodies.encode(config), timeout_ms=TIMEOUT_MS)

        await self._asking.change(f"made group {group!r}", await self._asking.masters(cluster), ask)

    async def delete_group(self, group: str, *, cluster: str | None = None) -> None:
        """With its offsets. Its retry and dead-letter topics stay until they are deleted."""

        async def ask(address: str) -> None:
            await self._session.call(
                address, DeleteGroup(group_name=group, clean_offset=True), timeout_ms=TIMEOUT_MS
            )

        await self._asking.change(f"deleted group {group!r}", await self._asking.masters(cluster), ask)

    async def group_topics(self, group: str) -> list[str]:
        """Topics the group has offsets on."""

        async def ask(address: str) -> list[str]:
            answer = await self._session.call(address, GroupTopics(group=group), timeout_ms=TIMEOUT_MS)
            return bodies.decode(answer.body, bodies.TopicList).topic_list

        found = await self._asking.each(await self._asking.masters(), ask)
        return sorted({topic for topics in found.values() for topic in topics})

    async def members(self, group: str) -> bodies.ConsumerConnection | None:
        """Who consumes in the group now and what it subscribes to; None when nobody does."""
        merged: bodies.ConsumerConnection | None = None
        for address in (await self._asking.masters()).values():
            try:
                answer = await self._session.call(
                    address, ConsumerConnections(consumer_group=group), timeout_ms=TIMEOUT_MS
                )
            except ConsumerNotOnline:
                continue
            found = bodies.decode(answer.body, bodies.ConsumerConnection)
            if merged is None:
                merged = found
            else:
                known = {connection.client_id for connection in merged.connection_set}
                merged.connection_set += [c for c in found.connection_set if c.client_id not in known]
        return merged

    async def producers(self, group: str) -> list[bodies.Connection]:
        found: dict[str, bodies.Connection] = {}
        for address in (await self._asking.masters()).values():
            try:
                answer = await self._session.call(
                    address, ProducerConnections(producer_group=group), timeout_ms=TIMEOUT_MS
                )
            except SystemFailure:
                continue  # that is how a broker says "none"
            for connection in bodies.decode(answer.body, bodies.ProducerConnection).connection_set:
                found[connection.client_id] = connection
        return list(found.values())

    async def all_producers(self) -> dict[str, list[bodies.ProducerInfo]]:
        """Every producer connected now, by its group; of all brokers together."""
        found: dict[str, dict[str, bodies.ProducerInfo]] = {}
        for address in (await self._asking.masters()).values():
            answer = await self._session.call(address, AllProducers(), timeout_ms=TIMEOUT_MS)
            for group, infos in bodies.decode(answer.body, bodies.ProducerTable).data.items():
                found.setdefault(group, {}).update({info.client_id: info for info in infos})
        return {group: list(infos.values()) for group, infos in sorted(found.items())}

    async def running_info(self, group: str, client_id: str) -> bodies.ConsumerRunningInfo:
        """What one consumer says about itself."""
        header = RunningInfo(consumer_group=group, client_id=client_id, jstack_enable=False)
        return bodies.decode(await self._of_client(header), bodies.ConsumerRunningInfo)

    async def consume_directly(
        self, group: str, client_id: str, offset_id: str, topic: str
    ) -> bodies.ConsumeDirectlyResult:
        """Have one consumer handle one message now, outside of queues and offsets."""
        header = ConsumeDirectly(consumer_group=group, client_id=client_id, msg_id=offset_id, topic=topic)
        return bodies.decode(await self._of_client(header), bodies.ConsumeDirectlyResult)

    async def _of_client(self, header: RunningInfo | ConsumeDirectly) -> bytes:
        """What a client answers through its broker: one of those that have its topics, and only they know it."""
        refusal: SystemFailure | None = None
        for address in (await self._asking.masters()).values():
            try:
                return (await self._session.call(address, header, timeout_ms=2 * TIMEOUT_MS)).body
            except SystemFailure as error:  # that is how a broker says "not here"
                refusal = error
        raise refusal or ConsumerNotOnline(f"client {header.client_id!r} is connected to no broker")

    # -- pull or POP -----------------------------------------------------------------------------------------

    async def set_consume_mode(
        self, topic: str, group: str, mode: str, share: int = 0, *, cluster: str | None = None
    ) -> None:
        """Have the group's push consumers pull or pop the topic, on every broker. `share`: POP, with how many more
        consumers each queue is shared; 0 = all queues with all."""
        if mode not in (Mode.PULL, Mode.POP):
            raise ValueError(f"mode is {mode!r}; it is PULL or POP")
        body = bodies.RequestMode(
            topic=topic, consumer_group=group, mode=Mode(mode), pop_share_queue_num=share
        )

        async def ask(address: str) -> None:
            await self._session.call(address, SetRequestMode(), bodies.encode(body), timeout_ms=TIMEOUT_MS)

        what = f"set {group!r} on {topic!r} to {mode}"
        await self._asking.change(what, await self._asking.masters(cluster), ask)

    async def consume_modes(self) -> dict[str, dict[str, bodies.RequestMode]]:
        """Topic -> group -> mode, where one was set; of all brokers together."""
        found: dict[str, dict[str, bodies.RequestMode]] = {}
        for address in (await self._asking.masters()).values():
            answer = await self._session.call(address, GetRequestModes(), timeout_ms=TIMEOUT_MS)
            modes = bodies.decode(answer.body, bodies.RequestModes)
            for topic, groups in modes.message_request_mode_map.items():
                found.setdefault(topic, {}).update(groups)
        return found
