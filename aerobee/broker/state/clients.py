# SPDX-License-Identifier: Apache-2.0
"""Who is connected: producers and consumers by group, as their heartbeats say."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from aerobee.broker.state import subscriptions
from aerobee.errors import AccessDenied
from aerobee.protocol import names
from aerobee.protocol.bodies import (
    ConsumeFromWhere,
    ConsumerData,
    ConsumeType,
    Heartbeat,
    MessageModel,
    SubscriptionData,
)
from aerobee.settings import BrokerConfig, InForce

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterable

    from aerobee.protocol.command import Command

log = logging.getLogger("aerobee.clients")

LEARNED_EXPIRY_MS = 600_000
PRODUCER = "producer"
CONSUMER = "consumer"


class Link(Protocol):
    """The way to a client: a remoting connection, or a gRPC stream."""

    remote_text: str
    attributes: dict[str, Any]  # "language", "version" and "user" of the peer, among others

    @property
    def is_open(self) -> bool: ...
    def send(self, command: Command) -> None: ...
    def start_call(self, command: Command) -> asyncio.Future[Command]: ...
    async def call(self, command: Command, timeout_ms: int = 3000) -> Command: ...
    def close(self) -> None: ...


class _Learned(NamedTuple):
    kind: str
    expression: str
    at: int


@dataclass(eq=False)
class Member:
    """One client; the same object in every group it belongs to."""

    link: Link
    client_id: str
    language: str
    version: int
    last_seen: int
    user: str | None = ""  # whose it is, where users are told apart; None when its address alone is trusted
    roles: set[tuple[str, str]] = field(default_factory=set)  # (PRODUCER or CONSUMER, group)


Expressions = dict[str, str]  # topic -> expression, with its type in front when it is not a tag


@dataclass(eq=False)
class ConsumerGroup:
    name: str
    consume_type: ConsumeType = ConsumeType.CONSUME_PASSIVELY
    model: MessageModel = MessageModel.CLUSTERING
    from_where: ConsumeFromWhere = ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET
    members: dict[str, Member] = field(default_factory=dict)
    subscriptions: dict[str, SubscriptionData] = field(default_factory=dict)
    fingerprints: dict[str, int] = field(default_factory=dict)  # client id -> heartbeat fingerprint (V2 form)
    expressions: dict[str, Expressions] = field(default_factory=dict)  # client id -> what it said itself
    conflicts: dict[str, dict[str, list[str]]] = field(
        default_factory=dict
    )  # topic -> expression -> client ids

    @property
    def broadcasting(self) -> bool:
        return self.model is MessageModel.BROADCASTING


class Clients:
    def __init__(self, settings: InForce[BrokerConfig] | None = None) -> None:
        self._settings = settings or InForce(BrokerConfig())
        self._members: dict[str, Member] = {}
        self._consumers: dict[str, ConsumerGroup] = {}
        self._producers: dict[str, dict[str, Member]] = {}
        self._by_link: dict[Link, set[str]] = {}
        self._learned: dict[str, dict[str, _Learned]] = {}
        self.on_change: Callable[[ConsumerGroup], None] = lambda group: None
        self.changes = 0  # grows whenever a consumer group may have become another

    def check_owner(self, client_id: str, user: str | None) -> None:
        """A client id is its user's as long as it lives: what the broker tells one client, half messages and replies
        among it, is not told to another user who says to be it, and who cannot send it away either."""
        member = self._members.get(client_id)
        if member is not None and member.user != user:
            raise AccessDenied(f"the client id {client_id[:200]} is in use by another user")

    # -- coming ------------------------------------------------------------------------------------------

    def heartbeat(self, link: Link, beat: Heartbeat, now: int) -> bool:
        """Register all the heartbeat names. True when some consumer group changed."""
        for producer in beat.producer_data_set:
            self.register_producer(link, beat.client_id, producer.group_name, now)
        changed = False
        for data in beat.consumer_data_set:
            changed |= self.register_consumer(link, beat, data, now)
        return changed

    def register_producer(self, link: Link, client_id: str, group: str, now: int) -> None:
        member = self._member(link, client_id, now)
        if (PRODUCER, group) not in member.roles:
            member.roles.add((PRODUCER, group))
            self._producers.setdefault(group, {})[client_id] = member
            log.info("joined producer_group=%s client=%s peer=%s", group, client_id, link.remote_text)

    def register_consumer(self, link: Link, beat: Heartbeat, data: ConsumerData, now: int) -> bool:
        """Register one consumer. True when the group's members or topics changed, after telling `on_change`."""
        self.changes += 1
        group = self._consumers.get(data.group_name)
        if group is None:
            group = self._consumers[data.group_name] = ConsumerGroup(data.group_name)
        group.consume_type = data.consume_type
        group.model = data.message_model
        group.from_where = data.consume_from_where
        known = group.members.get(beat.client_id)
        joined = known is None or known.link is not link
        member = self._member(link, beat.client_id, now)
        member.roles.add((CONSUMER, group.name))
        group.members[beat.client_id] = member
        if joined:
            log.info("joined group=%s client=%s peer=%s", group.name, beat.client_id, link.remote_text)
        topics_changed = not beat.without_sub and subscriptions.merge(group, data.subscription_data_set)
        if not beat.without_sub:
            subscriptions.note(group, beat.client_id, data.subscription_data_set)
        if joined or topics_changed:
            self.on_change(group)
        return joined or topics_changed

    def needs_full_form(self, beat: Heartbeat) -> bool:
        """Whether a V2 heartbeat shows a subscription that is not the one known here. Call before registering."""
        if not beat.heartbeat_fingerprint:
            return False
        needed = False
        for data in beat.consumer_data_set:
            group = self._consumers.get(data.group_name)
            if group is None:
                needed |= beat.without_sub  # after a restart nothing is known
                continue
            before = group.fingerprints.get(beat.client_id)
            needed |= (before is None and beat.without_sub) or before not in (
                None,
                beat.heartbeat_fingerprint,
            )
        return needed

    def remember_fingerprint(self, beat: Heartbeat) -> None:
        for data in beat.consumer_data_set:
            group = self._consumers.get(data.group_name)
            if group is not None and beat.heartbeat_fingerprint and not beat.without_sub:
                group.fingerprints[beat.client_id] = beat.heartbeat_fingerprint

    def learn(self, group: str, topic: str, kind: str | None, expression: str, now: int) -> None:
        """A pull or pop brought its own subscription and there may be no heartbeat: remember it for a while."""
        topics = self._learned.get(group)
        if topics is None:
            topics = self._learned[group] = {}
        topics[topic] = _Learned(kind or "TAG", expression, now)

    # -- going -------------------------------------------------------------------------------------------

    def closed(self, link: Link) -> None:
        for client_id in self._by_link.pop(link, ()):
            member = self._members.get(client_id)
            if member is not None and member.link is link:  # else it has come back on another connection
                self._remove(member, list(member.roles))

    def unregister(self, client_id: str, producer_group: str | None, consumer_group: str | None) -> None:
        member = self._members.get(client_id)
        if member is None:
            return
        wanted = {(PRODUCER, producer_group), (CONSUMER, consumer_group)}
        self._remove(member, [role for role in member.roles if role in wanted])

    def expire(self, now: int) -> list[Link]:
        """Drop the clients silent for too long; returns their links, for closing."""
        expiry_ms = self._settings.value.channel_expiry_ms
        silent = [member for member in self._members.values() if now - member.last_seen > expiry_ms]
        for member in silent:
            log.warning(
                "client=%s peer=%s silent_ms=%d: dropped",
                member.client_id,
                member.link.remote_text,
                now - member.last_seen,
            )
            self._remove(member, list(member.roles))
        for group, topics in list(self._learned.items()):
            for topic in [t for t, learned in topics.items() if now - learned.at > LEARNED_EXPIRY_MS]:
                del topics[topic]
            if not topics:
                del self._learned[group]
        return [member.link for member in silent]

    # -- asking ------------------------------------------------------------------------------------------

    def group(self, name: str) -> ConsumerGroup | None:
        return self._consumers.get(name)

    def groups(self) -> dict[str, ConsumerGroup]:
        return self._consumers

    def consumer_ids(self, group: str) -> list[str]:
        found = self._consumers.get(group)
        return list(found.members) if found else []

    def producers(self, group: str) -> list[Member]:
        return list(self._producers.get(group, {}).values())

    def producer_groups(self) -> dict[str, dict[str, Member]]:
        return self._producers

    def find_client(self, client_id: str) -> Member | None:
        return self._members.get(client_id)

    def subscription(self, group: str, topic: str) -> SubscriptionData | None:
        """The group's subscription of the topic, from heartbeats or else from its own pulls and pops."""
        found = self._consumers.get(group)
        if found is not None and topic in found.subscriptions:
            return found.subscriptions[topic]
        learned = self._learned.get(group, {}).get(topic)
        if learned is None:
            return None
        return SubscriptionData(
            topic=topic, sub_string=learned.expression, expression_type=learned.kind, sub_version=learned.at
        )

    def subscribers(self, topic: str) -> set[str]:
        """Groups that subscribe to the topic now. Not those of tools, which look and have nothing to consume, and not
        who only pulls: what it left unread is no lag."""
        online = (group.name for group in self._consumers.values() if topic in group.subscriptions)
        return {group for group in online if not names.is_system_group(group)}

    def readers(self, topic: str) -> set[str]:
        """Whoever subscribes to the topic or lately read it."""
        return self.subscribers(topic) | {group for group, topics in self._learned.items() if topic in topics}

    # -- inside ------------------------------------------------------------------------------------------

    def _member(self, link: Link, client_id: str, now: int) -> Member:
        language, version = link.attributes.get("language", "OTHER"), link.attributes.get("version", 0)
        user = link.attributes.get("user", "")
        member = self._members.get(client_id)
        if member is None:
            member = self._members[client_id] = Member(link, client_id, language, version, now, user)
        elif member.link is not link:
            member.link, member.language, member.version = link, language, version
        member.last_seen = now
        self._by_link.setdefault(link, set()).add(client_id)
        return member

    def _remove(self, member: Member, roles: Iterable[tuple[str, str]]) -> None:
        for kind, name in roles:
            member.roles.discard((kind, name))
            if kind == PRODUCER:
                producers = self._producers[name]
                producers.pop(member.client_id, None)
                if not producers:
                    del self._producers[name]
                log.info("left producer_group=%s client=%s", name, member.client_id)
            else:
                self._leave(name, member)
                log.info("left group=%s client=%s", name, member.client_id)
        if not member.roles:
            self._members.pop(member.client_id, None)

    def _leave(self, name: str, member: Member) -> None:
        self.changes += 1
        group = self._consumers[name]
        group.members.pop(member.client_id, None)
        group.fingerprints.pop(member.client_id, None)
        group.expressions.pop(member.client_id, None)
        if not group.members:
            del self._consumers[name]
            return
        subscriptions.compare(group)
        self.on_change(group)
