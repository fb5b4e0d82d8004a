# SPDX-License-Identifier: Apache-2.0
"""The pytest plugin: installed with the package, loaded by pytest's entry point, light until a fixture is used."""

from __future__ import annotations

import itertools
import re
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from aerobee.testing.apache import ApacheServer
    from aerobee.testing.server import TestServer

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def aerobee_server() -> Iterator[TestServer]:
    """A broker and name server for the whole test session, on free ports, its data in a temporary directory."""
    from aerobee.testing.server import TestServer

    with TestServer() as server:
        yield server


@pytest.fixture
def aerobee_fresh_server() -> Iterator[TestServer]:
    """A server of the test's own: for programs whose topics and groups have fixed names."""
    from aerobee.testing.server import TestServer

    with TestServer() as server:
        yield server


@pytest.fixture
def aerobee_manual_server() -> Iterator[TestServer]:
    """A fresh server whose clock stands still until the test moves it: `server.clock.advance(minutes=30)`."""
    from aerobee.testing.server import TestServer

    with TestServer.with_manual_clock() as server:
        yield server


@pytest.fixture
def aerobee_secured_server() -> Iterator[TestServer]:
    """A fresh server with access control: `server.account` is its super user's, `server.add_user` makes others."""
    from aerobee.testing.server import TestServer

    with TestServer.secured() as server:
        yield server


@pytest.fixture(scope="session")
def aerobee_apache_settings() -> Mapping[str, str]:
    """What broker.conf shall say beside what a test needs; a fixture of the same name in your conftest.py says more."""
    return {}


@pytest.fixture(scope="session")
def aerobee_apache_server(aerobee_apache_settings: Mapping[str, str]) -> Iterator[ApacheServer]:
    """Apache RocketMQ itself, for the whole test session; the test is skipped where there is no Java, or neither jars
    nor Maven."""
    from aerobee.testing.apache import ApacheServer, NotHere

    try:
        server = ApacheServer(settings=aerobee_apache_settings).__enter__()
    except NotHere as missing:
        pytest.skip(str(missing))
    try:
        yield server
    finally:
        server.__exit__()


@pytest.fixture
def aerobee_topic(aerobee_server: TestServer, request: pytest.FixtureRequest) -> str:
    """A topic of the test's own (4 queues), named after it."""
    topic = _named_after(request)
    aerobee_server.create_topic(topic, queues=4)
    return topic


@pytest.fixture
def aerobee_group(request: pytest.FixtureRequest) -> str:
    """A name for a consumer group of the test's own, as `aerobee_topic` is: what others left behind is not there."""
    return _named_after(request)


def _named_after(request: pytest.FixtureRequest) -> str:
    name = re.sub(r"[^A-Za-z0-9_-]", "_", request.node.name)[:80]
    return f"{name}_{next(_numbers)}"
