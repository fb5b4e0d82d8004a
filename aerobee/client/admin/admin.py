# SPDX-License-Identifier: Apache-2.0
"""The admin client: everything an operator asks of a cluster. Each question is answered by the part named above it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

from aerobee.client.admin.access import Access
from aerobee.client.admin.asking import Asking
from aerobee.client.admin.brokers import Brokers
from aerobee.client.admin.groups import Groups
from aerobee.client.admin.messages import FOREVER, Messages
from aerobee.client.admin.progress import Progress
from aerobee.client.admin.topics import Topics
from aerobee.client.options import SessionOptions
from aerobee.client.session.session import Session
from aerobee.protocol.names import TRACE_TOPIC

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Collection, Mapping
    from datetime import datetime

    from aerobee.client.admin.access import Answer
    from aerobee.client.admin.progress import ResetStep
    from aerobee.client.message import ReceivedMessage, SendResult
    from aerobee.client.trace_records import Traced
    from aerobee.clock import Clock
    from aerobee.protocol import bodies
    from aerobee.protocol.bodies import MessageQueue
    from aerobee.protocol.bodies.figures import GroupLag, MessageState
    from aerobee.protocol.headers.accounts import GetAclVersionResult, UpdateAclConfig
    from aerobee.protocol.routing import TopicQueues


class Admin:
    """Everything an operator asks of a cluster.

    >>> async with Admin("127.0.0.1:9876") as admin:
    ...     await admin.create_topic("orders", queues=8)
    ...     print((await admin.lag("billing")).lag)
    ...     await admin.reset_offsets("billing", "orders", to="first")
    ...     await admin.resend_dead_letters("billing")
    """

    def __init__(
        self,
        namesrv: str | Session | None = None,
        *,
        options: SessionOptions | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.session: Session = Session.of_role(SessionOptions, namesrv, options, clock)
        self._asking = asking = Asking(self.session)
        self._topics = Topics(asking)
        self._groups = Groups(asking)
        self._progress = Progress(asking, self._topics, self._groups)
        self._messages = Messages(asking, self._topics, self._progress)
        self._brokers = Brokers(asking)
        self._access = Access(asking)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self) -> None:
        await self.session.start()

    async def stop(self) -> None:
        await self.session.stop()

    async def cluster(self) -> bodies.ClusterInfo:
        """Clusters, their brokers and addresses."""
        return await self._asking.cluster()

    async def gone_brokers(self) -> list[bodies.GoneBroker]:
        """Brokers that went without a goodbye and are not back, for a day; the one gone longest first. Aerobee's name
        servers tell it, each as far as it saw it; others none."""
        return await self._asking.gone_brokers()

    async def masters(self, cluster: str | None = None) -> dict[str, str]:
        """Master address by broker name, of one cluster or all."""
        return await self._asking.masters(cluster)

    # -- topics -----------------------------------------------------------------------------------------

    async def topics(self) -> list[str]:
        """All names the name servers know: users' topics, retry and dead-letter topics, RocketMQ's own."""
        return await self._topics.topics()

    async def user_topics(self) -> list[str]:
        """Without retry, dead-letter and system topics."""
        return await self._topics.user_topics()

    async def route(self, topic: str) -> TopicQueues:
        """Brokers and queues of a topic, fresh from a name server."""
        return await self._topics.route(topic)

    async def topic_config(self, topic: str) -> dict[str, bodies.TopicConfig]:
        """By broker name."""
        return await self._topics.topic_config(topic)

    async def create_topic(
        self,
        topic: str,
        *,
        queues: int = 8,
        perm: int = 6,
        cluster: str | None = None,
        brokers: Collection[str] | None = None,
        attributes: Mapping[str, str] | None = None,
    ) -> None:
        """Create a topic on every broker of the cluster (or of all, or on `brokers`), or change it."""
        await self._topics.create_topic(
            topic, queues=queues, perm=perm, cluster=cluster, brokers=brokers, attributes=attributes
        )

    async def default_queues(self, cluster: str | None = None) -> int:
        """How many queues a topic has on each broker when nobody says: by the setting of the first of them."""
        return await self._brokers.default_queues(cluster)

    async def delete_topic(self, topic: str, *, cluster: str | None = None) -> None:
        """From every broker, then from the name servers. Its messages are gone."""
        await self._topics.delete_topic(topic, cluster=cluster)

    async def topic_stats(self, topic: str) -> dict[MessageQueue, bodies.TopicOffset]:
        """First and next offset, and the time of the last message, of every queue."""
        return await self._topics.topic_stats(topic)

    async def groups_of(self, topic: str) -> list[str]:
        """Groups that consume the topic, or have offsets on it."""
        return await self._topics.groups_of(topic)

    async def topic_exists(self, topic: str) -> bool:
        return await self._topics.topic_exists(topic)

    # -- groups -----------------------------------------------------------------------------------------

    async def groups(self) -> dict[str, bodies.GroupConfig]:
        """Settings by name, of all brokers together."""
        return await self._groups.groups()

    async def group_config(self, group: str) -> bodies.GroupConfig:
        """GroupNotFound when no broker has it."""
        return await self._groups.group_config(group)

    async def create_group(self, group: str, *, cluster: str | None = None, **settings: Any) -> None:
        """Create a group on every broker, or change it: `create_group("billing", retry_max_times=3)`."""
        await self._groups.create_group(group, cluster=cluster, **settings)

    async def delete_group(self, group: str, *, cluster: str | None = None) -> None:
        """With its offsets. Its retry and dead-letter topics stay until they are deleted."""
        await self._groups.delete_group(group, cluster=cluster)

    async def group_topics(self, group: str) -> list[str]:
        """Topics the group has offsets on."""
        return await self._groups.group_topics(group)

    async def members(self, group: str) -> bodies.ConsumerConnection | None:
        """Who consumes in the group now and what it subscribes to; None when nobody does."""
        return await self._groups.members(group)

    async def producers(self, group: str) -> list[bodies.Connection]:
        return await self._groups.producers(group)

    async def all_producers(self) -> dict[str, list[bodies.ProducerInfo]]:
        """Every producer connected now, by its group; of all brokers together."""
        return await self._groups.all_producers()

    async def running_info(self, group: str, client_id: str) -> bodies.ConsumerRunningInfo:
        """What one consumer says about itself."""
        return await self._groups.running_info(group, client_id)

    async def consume_directly(
        self, group: str, client_id: str, offset_id: str, topic: str
    ) -> bodies.ConsumeDirectlyResult:
        """Have one consumer handle one message now, outside of queues and offsets."""
        return await self._groups.consume_directly(group, client_id, offset_id, topic)

    async def set_consume_mode(
        self, topic: str, group: str, mode: str, share: int = 0, *, cluster: str | None = None
    ) -> None:
        """Have the group's push consumers pull or pop the topic, on every broker. `share`: POP, with how many more
        consumers each queue is shared; 0 = all queues with all."""
        await self._groups.set_consume_mode(topic, group, mode, share, cluster=cluster)

    async def consume_modes(self) -> dict[str, dict[str, bodies.RequestMode]]:
        """Topic -> group -> mode, where one was set."""
        return await self._groups.consume_modes()

    # -- progress ---------------------------------------------------------------------------------------

    async def progress(
        self, group: str, topic: str | None = None
    ) -> dict[MessageQueue, bodies.QueueProgress]:
        """Broker, consumer and pull offset of every queue, as RocketMQ counts them."""
        return await self._progress.progress(group, topic)

    async def lag(self, group: str, topic: str | None = None) -> GroupLag:
        """What the group has not finished: ready, in flight, retrying, delayed, dead, and how old."""
        return await self._progress.lag(group, topic)

    async def message_state(self, group: str, queue: MessageQueue, offset: int) -> MessageState | None:
        """Where a message is for a group: waiting, leased until when, handed out, done. None where the broker cannot
        tell, as Apache's cannot."""
        return await self._progress.message_state(group, queue, offset)

    async def offset(self, group: str, queue: MessageQueue) -> int | None:
        """The next offset the group will read; None when it has none."""
        return await self._progress.offset(group, queue)

    async def set_offset(self, group: str, queue: MessageQueue, offset: int) -> None:
        """For a group without consumers; those running are told by `reset_offsets`."""
        await self._progress.set_offset(group, queue, offset)

    async def reset_offsets(
        self, group: str, topic: str, to: str | int | datetime, *, queue_id: int = -1
    ) -> dict[MessageQueue, int]:
        """Move a group, running or not: `to` is "first", "last", a time (datetime or epoch ms), or, with a
        `queue_id`, an offset. Returns where each queue stands."""
        return await self._progress.reset_offsets(group, topic, to, queue_id=queue_id)

    async def plan_reset(
        self,
        group: str,
        topic: str,
        to: str | int | datetime,
        *,
        queue_id: int = -1,
        offset: int | None = None,
    ) -> list[ResetStep]:
        """What `reset_offsets` would do, by queue: how many messages come again, how many are skipped."""
        return await self._progress.plan_reset(group, topic, to, queue_id=queue_id, offset=offset)

    async def clone_offsets(self, source: str, target: str, topic: str) -> None:
        """Have `target` go on where `source` stands."""
        await self._progress.clone_offsets(source, target, topic)

    async def offset_range(self, queue: MessageQueue) -> tuple[int, int]:
        """The first offset there is, and the next to be written."""
        return await self._progress.offset_range(queue)

    async def offset_at(self, queue: MessageQueue, when: datetime | int) -> int:
        """The first offset stored at or after a time."""
        return await self._progress.offset_at(queue, when)

    # -- messages ---------------------------------------------------------------------------------------

    async def message_by_id(self, message_id: str, topic: str | None = None) -> ReceivedMessage:
        """By the producer's id or the broker's; without its topic every topic is asked for it. QueryNotFound when
        there is none."""
        return await self._messages.message_by_id(message_id, topic)

    async def messages_by_key(
        self, topic: str, key: str, *, max_messages: int = 64, begin: int = 0, end: int = FOREVER
    ) -> list[ReceivedMessage]:
        """Messages with the key, by time of storing; at most 64 a broker."""
        return await self._messages.messages_by_key(
            topic, key, max_messages=max_messages, begin=begin, end=end
        )

    async def copies(self, topic: str, message_id: str) -> list[ReceivedMessage]:
        """All that a topic keeps under a producer's id, oldest first: of a retry topic, every attempt."""
        return await self._messages.copies(topic, message_id)

    async def trace(self, message_id: str, topic: str = TRACE_TOPIC) -> list[Traced]:
        """What clients that trace wrote down about a message, in the order it happened."""
        return await self._messages.trace(message_id, topic)

    async def message_at(self, queue: MessageQueue, offset: int) -> ReceivedMessage:
        """Exactly the message of that offset. QueryNotFound when there is none."""
        return await self._messages.message_at(queue, offset)

    def browse(
        self, queue: MessageQueue, begin: int, end: int | None = None
    ) -> AsyncIterator[ReceivedMessage]:
        """Messages of a queue from offset `begin` up to `end` (not included), as no group's consumer."""
        return self._messages.browse(queue, begin, end)

    def dead_letters(self, group: str) -> AsyncIterator[ReceivedMessage]:
        """All dead letters of a group, oldest first by queue; nothing before the first message has died."""
        return self._messages.dead_letters(group)

    async def resend_dead_letters(
        self, group: str, *, choose: Callable[[ReceivedMessage], bool] | None = None
    ) -> list[SendResult]:
        """Send dead letters to the topic they came from, as new messages with the old id in ORIGIN_MESSAGE_ID. The
        dead-letter topic keeps its copies; `choose` picks which ones to send."""
        return await self._messages.resend_dead_letters(group, choose=choose)

    # -- brokers ----------------------------------------------------------------------------------------

    async def broker_runtime(self, address: str) -> dict[str, str]:
        """Figures of one broker, as RocketMQ names them."""
        return await self._brokers.broker_runtime(address)

    async def broker_config(self, address: str) -> dict[str, str]:
        return await self._brokers.broker_config(address)

    async def live_settings(self, address: str) -> frozenset[str]:
        """Names, as `broker_config` has them, of settings changed since the broker started: its file says otherwise.
        Aerobee's brokers tell it, others none."""
        return await self._brokers.live_settings(address)

    async def update_broker_config(self, address: str, settings: dict[str, str]) -> None:
        await self._brokers.update_broker_config(address, settings)

    async def broker_stats(self, address: str, name: str, key: str) -> bodies.BrokerStatsData:
        """One counter, by minute, hour and day: `TOPIC_PUT_NUMS` of a topic, `GROUP_GET_NUMS` of `topic@group`..."""
        return await self._brokers.broker_stats(address, name, key)

    async def forbid_writes(self, broker_name: str) -> None:
        """Take a broker out of the routes of producers; consumers go on."""
        await self._brokers.forbid_writes(broker_name)

    async def allow_writes(self, broker_name: str) -> None:
        await self._brokers.allow_writes(broker_name)

    # -- users and policies, of one broker ----------------------------------------------------------------

    async def users(self, address: str, part_of_name: str = "") -> list[bodies.UserInfo]:
        """With their passwords, where the broker tells them."""
        return await self._access.users(address, part_of_name)

    async def user(self, address: str, name: str) -> bodies.UserInfo | None:
        return await self._access.user(address, name)

    async def create_user(self, address: str, info: bodies.UserInfo) -> None:
        """`UserInfo(username="shop", password="...")`; `user_type="Super"` may do everything."""
        await self._access.create_user(address, info)

    async def update_user(self, address: str, info: bodies.UserInfo) -> None:
        """Only what is said changes."""
        await self._access.update_user(address, info)

    async def delete_user(self, address: str, name: str) -> None:
        """With its policies."""
        await self._access.delete_user(address, name)

    async def acls(
        self, address: str, part_of_subject: str = "", part_of_resource: str = ""
    ) -> list[bodies.AclInfo]:
        return await self._access.acls(address, part_of_subject, part_of_resource)

    async def acl(self, address: str, subject: str) -> bodies.AclInfo | None:
        """Of `User:shop`."""
        return await self._access.acl(address, subject)

    async def create_acl(self, address: str, acl: bodies.AclInfo) -> None:
        """Entries on the same resource are replaced, others stay: `acl_of("shop", ["Topic:orders"], ["Pub"])`."""
        await self._access.create_acl(address, acl)

    async def update_acl(self, address: str, acl: bodies.AclInfo) -> None:
        """The same."""
        await self._access.update_acl(address, acl)

    async def delete_acl(self, address: str, subject: str, resource: str = "") -> None:
        """All of the user, or its entry about one resource."""
        await self._access.delete_acl(address, subject, resource)

    async def may(
        self, address: str, user: str, action: str, resource: str, source: str = "127.0.0.1"
    ) -> Answer:
        """`may(at, "shop", "Pub", "Topic:orders")`: whether, when asking from `source`, and which rule says so."""
        return await self._access.may(address, user, action, resource, source)

    async def audit(self, address: str, last: int = 100) -> list[dict[str, Any]]:
        """The newest lines of the broker's audit log, the oldest of them first."""
        return await self._access.audit(address, last)

    # -- plain_acl.yml, of one broker that decides by it ---------------------------------------------------

    async def put_plain_account(self, address: str, account: UpdateAclConfig) -> None:
        """Made, or changed where it is there: what is not said stays."""
        await self._access.put_plain_account(address, account)

    async def delete_plain_account(self, address: str, access_key: str) -> None:
        await self._access.delete_plain_account(address, access_key)

    async def replace_white_addresses(self, address: str, addresses: str, file: str = "") -> None:
        """Of one file, plain_acl.yml where none is named: `10.0.0.*,192.168.0.{1,2}`."""
        await self._access.replace_white_addresses(address, addresses, file)

    async def plain_acl(self, address: str) -> bodies.AclConfig:
        return await self._access.plain_acl(address)

    async def plain_acl_version(self, address: str) -> GetAclVersionResult:
        return await self._access.plain_acl_version(address)
