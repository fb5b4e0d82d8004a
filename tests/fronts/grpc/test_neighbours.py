# SPDX-License-Identifier: Apache-2.0
"""What only another broker can do is asked of it, in this broker's own name, and nothing is left open."""

from __future__ import annotations

from typing import Any

import pytest

from aerobee.broker.operations.recall import Recall
from aerobee.broker.state.routes import Host
from aerobee.errors import NetworkError, TopicNotFound
from aerobee.fronts.grpc import neighbours
from aerobee.protocol.command import Command
from aerobee.settings import BrokerConfig

HOST = Host("broker-b", 6, 1, 1, address="10.0.0.2:10911")
ASKED = Recall("orders", "handle", "shop", b"")
CONFIG = BrokerConfig(inner_credentials='{"accessKey":"inner","secretKey":"inner-secret"}')


class Broker:
    """The other one, and the connections to it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, answer: Any) -> None:
        self.answer = answer
        self.became: list[Any] = []
        monkeypatch.setattr(neighbours, "Pool", self._pool)

    def _pool(self, tls: Any) -> Broker:
        self.became.append(("made", tls))
        return self

    async def get(self, address: str) -> Broker:
        self.became.append(("dialled", address))
        return self

    async def call(self, command: Command, timeout_ms: int) -> Command:
        self.became.append(("asked", command, timeout_ms))
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer  # type: ignore[no-any-return]

    async def close(self) -> None:
        self.became.append("closed")


async def test_it_is_asked_as_a_client_would_and_signed_by_this_broker(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    other = Broker(monkeypatch, Command(0, ext={"msgId": "AB12"}))
    assert await neighbours.recall_at(HOST, ASKED, CONFIG) == "AB12"
    made, dialled, (_, command, timeout_ms), closed = other.became
    assert (made, dialled, closed) == (("made", None), ("dialled", "10.0.0.2:10911"), "closed")
    assert (command.code, timeout_ms) == (370, 2_000)
    said = command.ext_dict()
    assert (said["topic"], said["producerGroup"], said["recallHandle"]) == ("orders", "shop", "handle")
    assert said["AccessKey"] == "inner"
    assert said["Signature"]


async def test_what_it_refuses_is_refused_here(monkeypatch: pytest.MonkeyPatch) -> None:
    other = Broker(monkeypatch, Command(17, remark="no such topic"))
    with pytest.raises(TopicNotFound, match="no such topic"):
        await neighbours.recall_at(HOST, ASKED, CONFIG)
    assert other.became[-1] == "closed"


async def test_a_broker_that_does_not_answer_leaves_no_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    other = Broker(monkeypatch, NetworkError("no answer"))
    with pytest.raises(NetworkError):
        await neighbours.recall_at(HOST, ASKED, CONFIG)
    assert other.became[-1] == "closed"
