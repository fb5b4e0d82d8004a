# SPDX-License-Identifier: Apache-2.0
"""`setConsumeMode` against several brokers that are not there: whom it asks, what for, and what it says."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
import typer

from aerobee.cli.mqadmin import common, groups
from aerobee.errors import NetworkError, NoPermission, PartlyDone
from aerobee.protocol import bodies
from aerobee.protocol.bodies import Mode, RequestMode
from aerobee.protocol.headers.consume import SetRequestMode

EAST = {"a": "a:1", "b": "b:1", "c": "c:1"}


class Brokers:
    """`refusals`: what the broker at an address says instead of yes."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, RequestMode, int]] = []
        self.refusals: dict[str, Exception] = {}
        self.session = SimpleNamespace(call=self._call)

    async def masters(self, cluster: str) -> dict[str, str]:
        return {"east": EAST, "west": {"d": "d:1"}}[cluster]

    async def _call(self, address: str, header: Any, body: bytes, *, timeout_ms: int) -> None:
        assert isinstance(header, SetRequestMode)
        self.asked.append((address, bodies.decode(body, RequestMode), timeout_ms))
        if address in self.refusals:
            raise self.refusals[address]


@pytest.fixture
def brokers(monkeypatch: pytest.MonkeyPatch) -> Brokers:
    made = Brokers()
    monkeypatch.setattr(common, "ask", lambda namesrv, work: asyncio.run(work(made)))
    return made


@pytest.mark.seed("S000-4", "S000-7")
@pytest.mark.parametrize(
    ("where", "asked"),
    [
        ({"cluster": "east"}, ["a:1", "b:1", "c:1"]),
        ({"cluster": "west"}, ["d:1"]),
        ({"broker": "c:1"}, ["c:1"]),
        ({"broker": "x:9", "cluster": "east"}, ["x:9"]),
    ],
)
def test_every_broker_of_the_cluster_is_told_or_the_one_that_was_named(
    brokers: Brokers, capsys: pytest.CaptureFixture[str], where: dict[str, str], asked: list[str]
) -> None:
    groups.set_consume_mode("orders", "billing", "POP", 8, **where)
    told = RequestMode(topic="orders", consumer_group="billing", mode=Mode.POP, pop_share_queue_num=8)
    assert brokers.asked == [(address, told, 5_000) for address in asked]
    assert capsys.readouterr().out.splitlines() == [
        *(f"set consume mode to {address} success." for address in asked),
        "topic[orders] group[billing] consume mode[POP] popShareQueueNum[8]",
    ]


@pytest.mark.seed("S000-4")
def test_without_a_broker_or_a_cluster_nobody_is_asked(brokers: Brokers) -> None:
    with pytest.raises(typer.BadParameter, match="say where: -b BROKER_ADDRESS or -c CLUSTER"):
        groups.set_consume_mode("orders", "billing", "POP")
    for mode in ("pop", "Pull", ""):
        with pytest.raises(typer.BadParameter, match="it is PULL or POP, in capitals"):
            groups.set_consume_mode("orders", "billing", mode, cluster="east")
    assert brokers.asked == []


@pytest.mark.seed("S000-7")
def test_a_broker_that_fails_keeps_the_mode_from_no_other_and_is_named(
    brokers: Brokers, capsys: pytest.CaptureFixture[str]
) -> None:
    brokers.refusals = {"a:1": NetworkError("gone"), "c:1": NoPermission("no")}
    with pytest.raises(PartlyDone) as partly:
        groups.set_consume_mode("orders", "billing", "POP", cluster="east")
    assert [address for address, *_ in brokers.asked] == list(EAST.values())
    assert capsys.readouterr().out == "set consume mode to b:1 success.\n"
    assert (partly.value.done, partly.value.failures) == (("b:1",), brokers.refusals)


def test_what_every_broker_refuses_is_refused_as_by_the_first(brokers: Brokers) -> None:
    brokers.refusals = {address: NoPermission(f"not by {address}") for address in EAST.values()}
    with pytest.raises(NoPermission, match="not by a:1"):
        groups.set_consume_mode("orders", "billing", "POP", cluster="east")
    assert len(brokers.asked) == 3
