# SPDX-License-Identifier: Apache-2.0
"""How far groups are, and moving them."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

from aerobee.client.admin.asking import TIMEOUT_MS
from aerobee.client.admin.figures import from_stats, merge
from aerobee.client.consume.offset_keeper import RemoteOffsets
from aerobee.client.consume.start_offset import max_offset, min_offset, offset_at
from aerobee.errors import GroupNotFound, NoRoute, RequestCodeNotSupported, TopicNotFound
from aerobee.protocol import bodies, names
from aerobee.protocol.bodies import MessageModel
from aerobee.protocol.bodies.figures import GroupLag, MessageState
from aerobee.protocol.headers.groups import ConsumeStatsQuery, FindMessage, GroupFigures
from aerobee.protocol.headers.offsets import CloneGroupOffset, ResetOffset, UpdateConsumerOffset

if TYPE_CHECKING:
    from aerobee.client.admin.asking import Asking
    from aerobee.client.admin.groups import Groups
    from aerobee.client.admin.topics import Topics
    from aerobee.protocol.bodies import MessageQueue


class ResetStep(NamedTuple):
    """One queue of a reset: where the group stands (None: it never read it), where it would go, what that means."""

    queue: MessageQueue
    stands_at: int | None
    goes_to: int
    again: int  # messages that come once more
    skipped: int


class Progress:
    def __init__(self, asking: Asking, topics: Topics, groups: Groups) -> None:
        self._asking = asking
        self._session = asking.session
        self._topics = topics
        self._groups = groups

    async def progress(
        self, group: str, topic: str | None = None
    ) -> dict[MessageQueue, bodies.QueueProgress]:
        """Broker, consumer and pull offset of every queue, as RocketMQ counts them."""
        found: dict[MessageQueue, bodies.QueueProgress] = {}
        for address in (await self._asking.masters()).values():
            header = ConsumeStatsQuery(consumer_group=group, topic=topic)
            answer = await self._session.call(address, header, timeout_ms=TIMEOUT_MS)
            found.update(bodies.decode(answer.body, bodies.ConsumeStats).offset_table)
        return found

    async def lag(self, group: str, topic: str | None = None) -> GroupLag:
        """What the group has not finished: ready, in flight, retrying, delayed, dead, and how old. GroupNotFound when no
        broker has it: it may be on some of them only, as a topic may that a send has made."""
        parts, unknown = [], None
        for address in (await self._asking.masters()).values():
            try:
                header = GroupFigures(consumer_group=group, topic=topic)
                answer = await self._session.call(address, header, timeout_ms=TIMEOUT_MS)
            except RequestCodeNotSupported:
                return await self._lag_from_stats(group, topic)
            except GroupNotFound as error:
                unknown = error
                continue
            parts.append(bodies.decode(answer.body, GroupLag))
        if unknown is not None and not parts:
            raise unknown
        return merge(parts)

    async def message_state(self, group: str, queue: MessageQueue, offset: int) -> MessageState | None:
        """Where a message is for a group; None where the broker cannot tell."""
        header = FindMessage(consumer_group=group, topic=queue.topic, queue_id=queue.queue_id, offset=offset)
        await self._session.route(queue.topic)
        address = await self._session.master(queue.broker_name, queue.topic)
        try:
            answer = await self._session.call(address, header, timeout_ms=TIMEOUT_MS)
        except RequestCodeNotSupported:
            return None
        return bodies.decode(answer.body, MessageState)

    async def _lag_from_stats(self, group: str, topic: str | None) -> GroupLag:
        progress = await self.progress(group, topic)
        members = await self._groups.members(group)
        if members is not None and members.message_model is MessageModel.CLUSTERING:
            wanted = [name for name in members.subscription_table if topic in (None, name)]
            progress |= await self._untold(progress, wanted)
        letters = await self._stored(names.dead_letter_topic(group))
        dead = sum(entry.max_offset - entry.min_offset for entry in letters.values())
        online = members is not None
        return from_stats(group, progress, self._session.clock.wall(), online=online, dead=dead)

    async def _untold(
        self, progress: dict[MessageQueue, bodies.QueueProgress], topics: list[str]
    ) -> dict[MessageQueue, bodies.QueueProgress]:
        """Queues of brokers that no member has told an offset on a topic: RocketMQ's stats leave them out. As on
        Aerobee, all that they have is before the group."""
        told = {(queue.topic, queue.broker_name) for queue in progress}
        return {
            queue: bodies.QueueProgress(
                broker_offset=entry.max_offset, consumer_offset=entry.min_offset, pull_offset=entry.min_offset
            )
            for topic in topics
            for queue, entry in (await self._stored(topic)).items()
            if (queue.topic, queue.broker_name) not in told
        }

    async def _stored(self, topic: str) -> dict[MessageQueue, bodies.TopicOffset]:
        """Nothing where there is no such topic."""
        try:
            return await self._topics.topic_stats(topic)
        except (NoRoute, TopicNotFound):
            return {}

    async def offset(self, group: str, queue: MessageQueue) -> int | None:
        """The next offset the group will read; None when it has none."""
        await self._session.route(queue.topic)
        return await RemoteOffsets(self._session, group).read(queue)

    async def set_offset(self, group: str, queue: MessageQueue, offset: int) -> None:
        """For a group without consumers; those running are told by `reset_offsets`."""
        if offset < 0:
            raise ValueError(f"offset is {offset}; it cannot be negative")
        header = UpdateConsumerOffset(
            consumer_group=group, topic=queue.topic, queue_id=queue.queue_id, commit_offset=offset
        )
        await self._session.route(queue.topic)
        await self._session.call(await self._session.master(queue.broker_name, queue.topic), header)

    async def reset_offsets(
        self, group: str, topic: str, to: str | int | datetime, *, queue_id: int = -1
    ) -> dict[MessageQueue, int]:
        """Move a group, running or not: `to` is "first", "last", a time (datetime or epoch ms), or, with a
        `queue_id`, an offset. Returns where each queue stands."""
        if isinstance(to, int) and queue_id >= 0:
            return await self._reset(group, topic, timestamp=-1, queue_id=queue_id, offset=to)
        if isinstance(to, datetime):
            to = round(to.timestamp() * 1000)
        if to not in ("first", "last") and not isinstance(to, int):
            raise ValueError(f"to is {to!r}; give 'first', 'last', a datetime or epoch milliseconds")
        timestamp = {"first": 0, "last": -1}.get(str(to), to)
        return await self._reset(group, topic, timestamp=int(timestamp), queue_id=queue_id, offset=-1)

    async def _reset(
        self, group: str, topic: str, *, timestamp: int, queue_id: int, offset: int
    ) -> dict[MessageQueue, int]:
        header = ResetOffset(
            topic=topic, group=group, timestamp=timestamp, is_force=True, queue_id=queue_id, offset=offset
        )
        found: dict[MessageQueue, int] = {}
        for address in (await self._asking.masters_of(topic)).values():
            answer = await self._session.call(address, header, timeout_ms=TIMEOUT_MS)
            found.update(bodies.decode(answer.body, bodies.ResetOffsetBody).offset_table)
        return found

    async def plan_reset(
        self,
        group: str,
        topic: str,
        to: str | int | datetime,
        *,
        queue_id: int = -1,
        offset: int | None = None,
    ) -> list[ResetStep]:
        """What `reset_offsets` would do, by queue."""
        queues = (await self._session.refresh_route(topic)).readable
        chosen = sorted(queue for queue in queues if queue_id in (-1, queue.queue_id))
        return [await self._step(group, queue, to, offset) for queue in chosen]

    async def _step(
        self, group: str, queue: MessageQueue, to: str | int | datetime, offset: int | None
    ) -> ResetStep:
        low, high = await self.offset_range(queue)
        if offset is not None:
            then = offset
        elif isinstance(to, str):
            then = low if to == "first" else high
        else:
            then = await self.offset_at(queue, to)
        now = await self.offset(group, queue)
        moved = then - max(low, then if now is None else now)
        return ResetStep(queue, now, then, again=max(0, -moved), skipped=max(0, moved))

    async def clone_offsets(self, source: str, target: str, topic: str) -> None:
        """Have `target` go on where `source` stands."""

        async def ask(address: str) -> None:
            header = CloneGroupOffset(src_group=source, dest_group=target, topic=topic, offline=False)
            await self._session.call(address, header, timeout_ms=TIMEOUT_MS)

        what = f"cloned offsets of {source!r} to {target!r}"
        await self._asking.change(what, await self._asking.masters_of(topic), ask)

    async def offset_range(self, queue: MessageQueue) -> tuple[int, int]:
        """The first offset there is, and the next to be written."""
        await self._session.route(queue.topic)
        return await min_offset(self._session, queue), await max_offset(self._session, queue)

    async def offset_at(self, queue: MessageQueue, when: datetime | int) -> int:
        """The first offset stored at or after a time."""
        await self._session.route(queue.topic)
        timestamp = round(when.timestamp() * 1000) if isinstance(when, datetime) else when
        return await offset_at(self._session, queue, timestamp)
