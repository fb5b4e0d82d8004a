# SPDX-License-Identifier: Apache-2.0
"""A consumer's place in its group, whatever kind it is: joined once, told to the brokers, left."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from aerobee.errors import AerobeeError, NoPermission, NoRoute
from aerobee.protocol import bodies, names
from aerobee.protocol.headers.consume import SendHeartbeat

if TYPE_CHECKING:
    from aerobee.client.consume.subscriptions import Subscriptions
    from aerobee.client.session.broker_requests import Consumer
    from aerobee.client.session.session import Session

log = logging.getLogger("aerobee.client.consumer")


def check_group(group: str) -> None:
    names.check_group(group)
    if group == "DEFAULT_CONSUMER":
        raise ValueError("group 'DEFAULT_CONSUMER' is RocketMQ's placeholder; choose a name of your own")


class GroupMember:
    """`consumer` is what the session asks in the group's name (heartbeats, offsets, running info)."""

    def __init__(
        self, consumer: Consumer, session: Session, group: str, subscriptions: Subscriptions
    ) -> None:
        check_group(group)
        self._consumer = consumer
        self._session = session
        self._group = group
        self._subscriptions = subscriptions
        self._was_started = False

    @property
    def is_in(self) -> bool:
        return self._session.consumers.get(self._group) is self._consumer

    def check_in(self) -> None:
        if not self.is_in:
            raise RuntimeError(f"consumer of group {self._group!r} is not started, or stopped")

    async def join(self) -> None:
        """Start the session, ask where the topics are (unknown ones are waited for); then `announce`."""
        if self._was_started:
            raise RuntimeError(f"consumer of group {self._group!r} was started already; make a new one")
        if self._group in self._session.consumers:
            raise ValueError(f"group {self._group!r} has a consumer in this session already")
        self._was_started = True
        self._session.consumers[self._group] = self._consumer
        await self._session.start()
        for topic in self._subscriptions:
            try:
                with self._session.blaming_the_address():
                    await self._session.route(topic)
            except NoRoute:
                if not names.is_retry(topic):
                    log.warning("topic=%s of group=%s is unknown to the name servers yet", topic, self._group)

    async def announce(self) -> None:
        """Tell brokers what we subscribe to, before any request refers to it."""
        versions = self._subscriptions.versions()
        await self._session.heartbeat()
        self._subscriptions.told(versions)

    async def check_admitted(self) -> None:
        """NoPermission when a broker would refuse us: at the start, and not as a consumer to which nothing comes.

        Asked by our own heartbeat once more: it needs exactly what consuming does, and changes nothing. Brokers that
        do not answer now are not waited for."""
        said = bodies.Heartbeat(
            client_id=self._session.client_id, consumer_data_set=[self._consumer.heartbeat_data()]
        )
        for address in self._masters():
            try:
                await self._session.call(address, SendHeartbeat(), bodies.encode(said))
            except NoPermission:
                raise
            except AerobeeError as error:  # whatever the loops behind will meet themselves
                log.debug("group=%s broker=%s: %s", self._group, address, error)

    def _masters(self) -> list[str]:
        """Of our topics, those that we are connected with."""
        found: dict[str, None] = {}
        for topic in self._subscriptions:
            route = None if names.is_retry(topic) else self._session.routes.get(topic)
            for name in sorted({queue.broker_name for queue in route.readable}) if route else ():
                address = self._session.routes.master(name)
                if address is not None and self._session.open_connection(address) is not None:
                    found[address] = None
        return list(found)

    async def say_goodbye(self) -> None:
        """Tell the brokers, which need not wait for us to be silent."""
        try:
            await self._session.leave(consumer_group=self._group)
        except AerobeeError as error:
            log.warning("group=%s left without a word: %s", self._group, error)

    async def leave(self) -> None:
        """The session answers for us no longer."""
        del self._session.consumers[self._group]
        await self._session.stop()
