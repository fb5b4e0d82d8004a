# SPDX-License-Identifier: Apache-2.0
"""An embedded server on a thread of its own, so that plain and async tests alike can use it."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any, TypeVar

from aerobee.clock import Clock, ManualClock, SystemClock
from aerobee.testing.cluster import ClusterUnderTest
from aerobee.testing.moved_clock import TestClock

if TYPE_CHECKING:
    from collections.abc import Coroutine, Mapping
    from types import TracebackType

    from aerobee.server import Server

T = TypeVar("T")

ADMIN = {"access_key": "admin", "secret_key": "secret-of-the-test-server"}


class TestServer(ClusterUnderTest):
    """Name server and broker on a thread of their own, so that plain and async tests alike can use them.

    >>> with TestServer() as server:
    ...     server.namesrv, server.broker_address
    >>> with TestServer.with_manual_clock() as server:
    ...     server.clock.advance(minutes=30)

    Settings are those of `aerobee.Server`: `TestServer(store=StoreConfig(delay_levels="1s 2s"))`.
    """

    __test__ = False

    def __init__(self, clock: Clock | None = None, **settings: Any) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="aerobee-test-server", daemon=True
        )
        self._base_clock = clock or SystemClock()
        self._settings = settings
        self._server: Server | None = None
        self.account: dict[str, Any] = {}  # options of a client that may do everything
        self.clock = TestClock(self._base_clock, self.run)

    @classmethod
    def with_manual_clock(cls, **settings: Any) -> TestServer:
        """Its clock starts now and stands still: `server.clock.advance(minutes=30)` moves it."""
        # Not at ManualClock's own start: clients that live in real time shall find its times plausible.
        return cls(ManualClock(SystemClock().now()), **settings)

    @classmethod
    def secured(cls, **settings: Any) -> TestServer:
        """It asks who it is and what they may: `server.account` is its super user's, `add_user` makes others."""
        from aerobee.settings import BrokerConfig

        user = f'{{"username":"{ADMIN["access_key"]}","password":"{ADMIN["secret_key"]}"}}'
        config = BrokerConfig(authentication=True, authorization=True, init_user=user)
        made = cls(config=config, **settings)
        made.account = dict(ADMIN)
        return made

    def __enter__(self) -> TestServer:
        self._thread.start()
        try:
            self._server = self.run(self._start())
        except BaseException:
            self._end()
            raise
        return self

    async def _start(self) -> Server:
        from aerobee.server import Server

        server = Server(ephemeral=True, clock=self._base_clock, **self._settings)
        await server.__aenter__()
        return server

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if self._server is not None:
                self.run(self._server.__aexit__(None, None, None))
        finally:
            self._end()

    def _end(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the server's loop and wait for it."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    @property
    def server(self) -> Server:
        if self._server is None:
            raise RuntimeError("the server is not started: use it in a with block")
        return self._server

    @property
    def namesrv(self) -> str:
        return self.server.namesrv

    @property
    def broker_address(self) -> str:
        return self.server.broker_address

    def add_user(self, name: str, password: str, rights: Mapping[str, str]) -> dict[str, Any]:
        """A user who may do that: `{"Topic:orders": "Pub", "Group:billing": "Sub"}`; returns its options."""

        async def add() -> None:
            from aerobee.client.admin import Admin, acl_of
            from aerobee.protocol.bodies import UserInfo

            async with Admin(self.namesrv, options=self._admin_options()) as admin:
                await admin.create_user(self.broker_address, UserInfo(username=name, password=password))
                for resource, actions in rights.items():
                    await admin.update_acl(self.broker_address, acl_of(name, [resource], actions.split(",")))

        self.run(add())
        return {"access_key": name, "secret_key": password}

    def create_topic(self, topic: str, queues: int = 4) -> None:
        async def create() -> None:
            self.server.broker.topics.ensure(topic, queues=queues)

        self.run(create())

    def flush(self) -> None:
        """All that was sent is in the store's files now, for who reads those (`storePath`). It gets there by itself
        within a second."""

        async def flush() -> None:
            self.server.broker.store.flush()

        self.run(flush())
