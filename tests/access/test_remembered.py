# SPDX-License-Identifier: Apache-2.0
"""Who was let through once is let through again without being looked at: only as long as nothing changed, and only for
what is decided by the same names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from aerobee.broker.access.access import Access, Rules
from aerobee.broker.access.users import User
from aerobee.errors import DiskFull
from aerobee.fronts.gates import permissions
from aerobee.fronts.gates.remembered import DECIDING, MAX_REMEMBERED
from aerobee.protocol.access import Action, Decision, PolicyType, Resource
from aerobee.protocol.accounts import Credentials
from aerobee.protocol.command import convert_fields, header_fields
from aerobee.protocol.headers.consume import AckMessage, PullMessage
from aerobee.protocol.headers.produce import SendMessageV2
from aerobee.protocol.policies import Entry, Policy
from tests.access.ports import ANN, Ports
from tests.fronts.test_rights import BROKER

if TYPE_CHECKING:
    from pathlib import Path

SEND = SendMessageV2(topic="orders", queue_id=0)
PULL = PullMessage(
    consumer_group="g", topic="orders", queue_id=0, queue_offset=0, sys_flag=4, subscription="*"
)
BOB = Credentials("bob", "bob-secret")


def test_the_same_names_need_the_same_rights() -> None:
    """Of every request of the table of rights whose decision may be remembered."""
    needs: dict[tuple[int, tuple[str, ...]], set[str]] = {}
    for header, _, rights in BROKER:
        deciding = DECIDING.get(type(header).code)
        names = None if deciding is None else deciding(convert_fields(header_fields(header), type(header)))
        if names is not None:
            needs.setdefault((type(header).code, names), set()).add(rights)
    assert {code for code, _ in needs} == {int(code) for code in DECIDING}
    assert [sorted(each) for each in needs.values() if len(each) > 1] == []


@pytest.mark.parametrize(
    "header",
    [
        SendMessageV2(topic="t", properties="TIMER_DEL_UNIQKEY\x01u+K\x02"),
        SendMessageV2(topic="rmq_sys_TRACE_DATA_here"),
        SendMessageV2(topic="t" * 256),
        PullMessage(consumer_group="g", topic="%RETRY%g_t", queue_id=0, queue_offset=0),
        PullMessage(consumer_group="g" * 256, topic="t", queue_id=0, queue_offset=0),
        AckMessage(consumer_group="g", topic="%RETRY%g_t", queue_id=0, extra_info="x", offset=0),
    ],
)
def test_what_depends_on_more_than_names_is_asked_each_time(header: Any) -> None:
    assert DECIDING[type(header).code](header) is None


async def test_a_right_that_is_taken_away_is_gone_at_once(ports: Ports) -> None:
    access = ports.server.broker.access
    for _ in range(2):
        ports.grant("Topic:orders Pub,Sub", "Group:g Sub")
        for _ in range(3):
            assert (await ports.ask(ANN, SEND, b"x")).code == 0
            assert (await ports.ask(ANN, PULL)).code != 16
        assert len(access.passed) == 2
        ports.grant("Topic:orders Get")
        assert (await ports.ask(ANN, SEND, b"x")).code == 16
        assert (await ports.ask(ANN, PULL)).code == 16
        assert access.passed == set(), "a refusal is not remembered"


async def test_nobody_passes_by_anothers_right(ports: Ports) -> None:
    ports.add(BOB)
    ports.grant("Topic:orders Pub,Sub", "Group:g Sub")
    assert (await ports.ask(ANN, SEND, b"x")).code == 0
    assert (await ports.ask(ANN, PULL)).code != 16
    assert (await ports.ask(BOB, SEND, b"x")).code == 16
    assert (await ports.ask(Credentials("ann", "guessed"), SEND, b"x")).code == 16
    assert (await ports.ask(ANN, SendMessageV2(topic="other", queue_id=0), b"x")).code == 16
    other_group = PullMessage(
        consumer_group="h", topic="orders", queue_id=0, queue_offset=0, sys_flag=4, subscription="*"
    )
    assert (await ports.ask(ANN, other_group)).code == 16


async def test_what_is_remembered_is_bounded(ports: Ports, monkeypatch: pytest.MonkeyPatch) -> None:
    assert MAX_REMEMBERED <= 10_000
    monkeypatch.setattr(permissions, "MAX_REMEMBERED", 5)
    ports.grant("Topic:* Pub")
    for number in range(12):
        assert (await ports.ask(ANN, SendMessageV2(topic=f"t{number}", queue_id=0), b"x")).code == 0
        assert len(ports.server.broker.access.passed) <= 5


async def test_a_change_that_could_not_be_kept_is_no_way_through(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    access = Access(tmp_path / "access.json", Rules(cluster="c", authentication=True, authorization=True))
    access.put_user(User(username="ann", password="p"))
    await access.saved()
    assert access._file is not None

    def full(data: bytes) -> None:
        raise DiskFull("no space")

    monkeypatch.setattr(access._file, "save", full)
    entry = Entry(Resource.parse("Topic:t"), (Action.PUB,), Decision.ALLOW)
    access.put_policy("ann", Policy().merged(PolicyType.CUSTOM, [entry]))
    access.passed.add(("SendMessageV2", "ann", "127.0.0.1", "t"))  # while it was being written
    with pytest.raises(DiskFull):
        await access.saved()
    assert (access.policies.get("ann"), access.passed) == (None, set())
