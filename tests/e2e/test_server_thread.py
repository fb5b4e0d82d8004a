# SPDX-License-Identifier: Apache-2.0
"""A server on a thread of its own, for whoever blocks."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, get_type_hints

import pytest

import aerobee
from aerobee import blocking
from aerobee.errors import AerobeeError
from aerobee.server import ServerSettings

if TYPE_CHECKING:
    from pathlib import Path


def test_it_takes_every_argument_of_the_async_server() -> None:
    parameters = set(inspect.signature(aerobee.Server).parameters)
    assert set(ServerSettings.__annotations__) | {"data"} == parameters
    assert get_type_hints(ServerSettings)["broker_port"] == int | None


@pytest.mark.slow
def test_it_serves_while_its_maker_blocks_and_starts_again_with_what_it_had(tmp_path: Path) -> None:
    server = blocking.Server(tmp_path, namesrv_port=0, broker_port=0, http_port=0)
    with server, blocking.Producer(server.namesrv, group="p") as producer:
        producer.send(blocking.Message("orders", b"kept"))
        assert server.data == tmp_path
        assert server.http_address
        assert server.grpc_address == ""
        assert server.broker_address.endswith(str(server.ports["broker_port"]))
        with pytest.raises(RuntimeError, match="the server runs"):
            server.start()
    server.start()
    topics = {"orders": "*"}
    with blocking.PullConsumer(server.namesrv, group="g", topics=topics, start="first") as consumer:
        assert [message.body for message in consumer.poll(timeout_ms=10_000)] == [b"kept"]
    server.stop()
    server.stop()
    with pytest.raises(AerobeeError, match="not started"):
        server.namesrv  # noqa: B018 - it raises


@pytest.mark.slow
def test_one_that_cannot_start_says_why_and_may_be_tried_again() -> None:
    with blocking.Server(ephemeral=True) as first:
        second = blocking.Server(ephemeral=True, namesrv_port=first.ports["namesrv_port"])
        for _ in range(2):
            with pytest.raises(AerobeeError, match=r"cannot listen .*another port"):
                second.start()
    second.start()
    second.stop()
