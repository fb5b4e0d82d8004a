# SPDX-License-Identifier: Apache-2.0
"""An embedded server on a thread of its own, so that plain and async tests alike can use it."""

from __future__ import annotations

import shutil
import tempfile
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from aerobee.clock import Clock, ManualClock, SystemClock
from aerobee.protocol.access import Action, Resource, named
from aerobee.server_thread import LoopThread
from aerobee.testing.cluster import ClusterUnderTest
from aerobee.testing.moved_clock import StandingClock, TestClock

if TYPE_CHECKING:
    from collections.abc import Coroutine, Mapping
    from pathlib import Path
    from types import TracebackType

    from aerobee.server import Ports, Server

T = TypeVar("T")

ADMIN = {"access_key": "admin", "secret_key": "secret-of-the-test-server"}


class TestServer(ClusterUnderTest):
    """Name server and broker on a thread of their own, so that plain and async tests alike can use them.

    >>> with TestServer() as server:
    ...     server.namesrv, server.broker_address
    >>> with TestServer.with_manual_clock() as server:
    ...     server.clock.advance(minutes=30)

    Settings are those of `aerobee.Server`: `TestServer(store=StoreConfig(delay_levels="1s 2s"))`. Without `data` it has
    a directory that is removed at the end. `restart` keeps what was stored, and the ports.
    """

    __test__ = False

    def __init__(self, clock: Clock | None = None, **settings: Any) -> None:
        self._thread = LoopThread("aerobee-test-server")
        self._base_clock = clock or SystemClock()
        self._settings = settings
        self._server: Server | None = None
        self._own_data: str | None = None  # removed at the end
        self._ports: Ports | None = None  # after the first start
        self._addresses: dict[str, str] = {}  # where it was when it was stopped
        self.clock_stands = isinstance(clock, ManualClock)
        self.account: dict[str, Any] = {}  # options of a client that may do everything
        self.clock = TestClock(self._base_clock, self.run)

    def _wall(self) -> int:
        return self.clock.wall()

    @classmethod
    def with_manual_clock(cls, **settings: Any) -> TestServer:
        """Its clock starts now and stands still: `server.clock.advance(minutes=30)` moves it."""
        # Not at ManualClock's own start: clients that live in real time shall find its times plausible.
        return cls(StandingClock(SystemClock().now()), **settings)

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
        if self._thread.was_started:
            raise RuntimeError(
                "a test server is entered once; `restart`, or `stop` and `start`, within its block"
            )
        self._thread.start()
        try:
            self.start()
        except BaseException:
            self._end()
            raise
        return self

    def start(self) -> None:
        """Again, after `stop`: on the same ports, with what was stored."""
        if self._server is not None:
            raise RuntimeError("the server runs")
        self._server = self.run(self._started())

    def stop(self) -> None:
        """As `aerobee serve` stops on a signal; clients meet a closed port until `start`."""
        server = self.server
        names = ("namesrv", "broker_address", "grpc_address")
        self._addresses = {name: getattr(server, name) for name in names}
        self._server = None
        self.run(server.stop())

    def restart(self) -> None:
        """Stopped in good order and started again, on the same ports with the same data. A loop that calls it stands
        still meanwhile: `await asyncio.to_thread(server.restart)` lets it run."""
        self.stop()
        self.start()

    def kill(self) -> NoReturn:
        """A thread cannot be killed."""
        raise RuntimeError("kill() takes a process: `aerobee.testing.ServerProcess` has it, or `stop()` here")

    async def _started(self) -> Server:
        from aerobee.server import Server

        settings = _any_ports(self._settings) | self._settings | self._data() | self._again()
        server = Server(clock=self._base_clock, **settings)
        await server.start()
        self._ports = server.ports
        return server

    def _again(self) -> dict[str, Any]:
        """The ports of the first time, and no other: there was none below a port that nobody chose."""
        import msgspec

        from aerobee.settings import VIP_BELOW, BrokerConfig

        config = self._settings.get("config") or BrokerConfig()
        if self._ports is None or config.vip_port != VIP_BELOW:
            return dict(self._ports or {})
        return {**self._ports, "config": msgspec.structs.replace(config, vip_port=-1)}

    def _data(self) -> dict[str, str | Path]:
        """Ours, unless the test has one."""
        from aerobee.settings import StoreConfig

        store = self._settings.get("store")
        if "data" in self._settings or (store is not None and store.data != StoreConfig().data):
            return {}
        if self._own_data is None:
            self._own_data = tempfile.mkdtemp(prefix="aerobee-")
        return {"data": self._own_data}

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if self._server is not None:
                self.stop()
        finally:
            self._end()

    def _end(self) -> None:
        self._thread.end()
        if self._own_data is not None:
            shutil.rmtree(self._own_data, ignore_errors=True)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the server's loop and wait for it."""
        return self._thread.run(work)

    @property
    def server(self) -> Server:
        if self._server is None:
            raise RuntimeError(
                "the server is not started: use it in a with block; after `stop` comes `start`"
            )
        return self._server

    @property
    def namesrv(self) -> str:
        return self._address("namesrv")

    @property
    def broker_address(self) -> str:
        return self._address("broker_address")

    @property
    def grpc_address(self) -> str:
        """Empty unless it was asked for: `TestServer(grpc_port=0)`."""
        return self._address("grpc_address")

    def _address(self, name: str) -> str:
        """Of a stopped server, where it was and will be."""
        if self._server is None and name in self._addresses:
            return self._addresses[name]
        return str(getattr(self.server, name))

    def add_user(self, name: str, password: str, rights: Mapping[str, str]) -> dict[str, Any]:
        """A user who may do that: `{"Topic:orders": "Pub", "Group:billing": "Sub"}`; returns its options."""
        for resource, actions in rights.items():
            Resource.parse(resource)
            for action in actions.split(","):
                if named(Action, action) is None:
                    raise ValueError(
                        f"no action {action!r} on {resource}: {', '.join(Action)}, ',' between several"
                    )

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


def _any_ports(settings: Mapping[str, Any]) -> dict[str, int]:
    """For those that no setting names."""
    from aerobee.settings import BrokerConfig, NamesrvConfig

    ports: dict[str, int] = {}
    if (settings.get("config") or BrokerConfig()).port == BrokerConfig().port:
        ports["broker_port"] = 0
    if (settings.get("namesrv") or NamesrvConfig()).port == NamesrvConfig().port:
        ports["namesrv_port"] = 0
    return ports
