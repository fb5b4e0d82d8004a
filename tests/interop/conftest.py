# SPDX-License-Identifier: Apache-2.0
"""`make interop` runs the peers against Aerobee; `pytest tests/interop --server rocketmq` against the original.

A scenario that fails on both is a mistake of the scenario.
"""

from __future__ import annotations

import sys
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import peers
from servers import Aerobee, RocketMQ, Server

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from pyspark.sql import SparkSession

    MakeServer = Callable[..., Server]
    Connect = Callable[[str], peers.Session]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--server",
        default="aerobee",
        help="what the peers talk to: aerobee, rocketmq, or aerobee,rocketmq (default: aerobee)",
    )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "server_kind" in metafunc.fixturenames:
        kinds = metafunc.config.getoption("--server").split(",")
        metafunc.parametrize("server_kind", kinds, scope="session")


def make(kind: str, data: Path, settings: Mapping[str, str] | None = None, *, proxy: bool = False) -> Server:
    if kind == "aerobee":
        return Aerobee(data, settings)
    if kind == "rocketmq":
        return RocketMQ(data, peers.server_class_path(), settings, proxy=proxy)
    raise ValueError(f"--server {kind!r}: choose aerobee or rocketmq")


@pytest.fixture(scope="session")
def server(server_kind: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One for the whole run; tests keep apart by topic and group names."""
    running = make(server_kind, tmp_path_factory.mktemp(server_kind) / "data", proxy=True)
    running.start()
    yield running
    running.discard()


@pytest.fixture
def make_server(server_kind: str, tmp_path: Path) -> Iterator[MakeServer]:
    """Servers of the test's own, to stop, kill and restart."""
    made: list[Server] = []

    def start(
        kind: str = server_kind, name: str = "data", settings: Mapping[str, str] | None = None
    ) -> Server:
        server = make(kind, tmp_path / name, settings)
        made.append(server)
        server.start()
        return server

    yield start
    for server in made:
        server.discard()


class Running:
    """Drivers start when a test first needs them and serve all later ones."""

    def __init__(self) -> None:
        self.peers: dict[str, peers.Peer] = {}

    def get(self, name: str) -> peers.Peer:
        if name not in self.peers:
            self.peers[name] = peers.Peer(name, COMMANDS[name]())
        return self.peers[name]

    def fresh(self, name: str) -> peers.Peer:
        """A new one: mqadmin's queryMsgByUniqueKey keeps its first name server for the life of its JVM."""
        if (old := self.peers.pop(name, None)) is not None:
            old.end()
        return self.get(name)


COMMANDS: dict[str, Callable[[], list[str]]] = {
    "java": lambda: peers.java_program("Remoting", peers.server_class_path()),
    "go": lambda: peers.go_program("remoting"),
    "ons": lambda: peers.node_program("ons.js"),
    "addon": lambda: peers.node_program("addon.js"),
    "spring": lambda: peers.java_program(
        "Spring", peers.java_class_path(peers.HERE / "java/spring", "spring")
    ),
    "cpp": lambda: peers.python_program("cpp_peer.py", peers.CPP_PACKAGE, "cpp"),
    "java5": lambda: peers.java_program("Grpc", peers.java_class_path(peers.HERE / "java/grpc", "grpc")),
    "go5": lambda: peers.go_program("grpc"),
    "node5": lambda: peers.node_program("grpc.js"),
    "python5": lambda: peers.python_program("grpc_peer.py", peers.GRPC_PACKAGE, "grpc"),
    "rust5": peers.rust_program,
}


@pytest.fixture(scope="session")
def running() -> Iterator[Running]:
    drivers = Running()
    yield drivers
    for peer in drivers.peers.values():
        peer.end()


@pytest.fixture
def connect(running: Running, server: Server) -> Iterator[Connect]:
    """connect("java") opens a session of that peer on the shared server."""
    sessions: list[peers.Session] = []

    def open_session(name: str) -> peers.Session:
        address = server.grpc if name.endswith("5") else server.namesrv
        sessions.append(peers.Session(running.get(name), address))
        return sessions[-1]

    yield open_session
    for session in sessions:
        session.close_all()


@pytest.fixture
def java(connect: Connect) -> peers.Session:
    return connect("java")


@pytest.fixture
def mqadmin(running: Running, server: Server) -> Callable[..., str]:
    """mqadmin("topicList") is the text it prints."""

    def call(command: str, *arguments: str, namesrv: str = "") -> str:
        text: str = running.get("java").call(
            "admin", args=[command, "-n", namesrv or server.namesrv, *arguments]
        )
        return text

    return call


@pytest.fixture
def fresh() -> Callable[[str], str]:
    """A name no other test uses."""
    return lambda prefix: f"{prefix}-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def topic(fresh: Callable[[str], str], mqadmin: Callable[..., str]) -> str:
    """A topic with four queues that clients can route to."""
    name = fresh("topic")
    output = mqadmin("updateTopic", "-c", "DefaultCluster", "-t", name, "-r", "4", "-w", "4")
    assert "success" in output, output
    return name


@pytest.fixture
def group(fresh: Callable[[str], str]) -> str:
    return fresh("group")


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    from aerobee.spark import session

    quick = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
    made = session("interop", master="local[2]", config={"spark.driver.extraJavaOptions": quick})
    yield made
    made.stop()
