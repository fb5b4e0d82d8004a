# SPDX-License-Identifier: Apache-2.0
"""The audit log: changes and refusals, one JSON line each, bounded, and without a secret."""

from __future__ import annotations

import json
import os
import stat
from typing import TYPE_CHECKING, Any

import pytest

from aerobee.broker.access.audit import REFUSALS_A_SECOND, Audit
from aerobee.client.admin import acl_of
from aerobee.errors import AerobeeError
from aerobee.fronts.gates.audit import CHANGES
from aerobee.fronts.gates.rights import BROKER, NAMESRV
from aerobee.fronts.grpc.generated import messaging_pb2 as pb
from aerobee.protocol import bodies
from aerobee.protocol.accounts import Credentials
from aerobee.protocol.bodies import GroupConfig, UserInfo
from aerobee.protocol.headers import accounts as h
from aerobee.protocol.headers.cluster import UpdateBrokerConfig
from aerobee.protocol.headers.groups import CreateGroup
from aerobee.protocol.headers.offsets import ResetOffset
from aerobee.protocol.headers.produce import SendMessageV2
from aerobee.protocol.headers.route import WipeWritePerm
from aerobee.protocol.headers.topics import CreateTopic, DeleteTopic
from aerobee.settings import BrokerConfig
from tests.access.ports import ANN, NOBODY, ROOT, Ports, running

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

SEND = SendMessageV2(topic="orders", queue_id=0)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "audit.log"


@pytest.fixture
async def ports(file: Path) -> AsyncIterator[Ports]:
    async with running(audit_log=str(file)) as made:
        yield made


async def test_the_directory_of_an_audit_log_is_made(tmp_path: Path) -> None:
    file = tmp_path / "not" / "there" / "audit.log"
    async with running(audit_log=str(file)):
        assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    with pytest.raises(AerobeeError, match=r"audit_log .*; name a file that this user may write"):
        async with running(audit_log=str(file / "no-directory")):
            pass


def lines(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


async def test_changes_and_refusals_are_written(ports: Ports, file: Path) -> None:
    ports.grant("Topic:orders Pub")
    await ports.ask(ANN, SEND, b"x")
    await ports.ask(ROOT, h.CreateUser(username="shop"), bodies.encode(UserInfo(password="s3cret-word")))
    await ports.ask(ROOT, h.UpdateUser(username="nobody"), bodies.encode(UserInfo(password="s3cret-word")))
    await ports.ask(ANN, DeleteTopic(topic="orders"))
    await ports.ask(Credentials("root", "guessed"), SEND)
    await ports.ask(NOBODY, SEND)
    await ports.ask_namesrv(ROOT, WipeWritePerm(broker_name="broker-a"))
    await ports.call(ANN, "QueryRoute", pb.QueryRouteRequest(topic=pb.Resource(name="theirs")))
    written = lines(file)
    cluster = ["Cluster:DefaultCluster"]
    facts = [(each["user"], each["request"], each["resources"], each["result"]) for each in written]
    assert facts == [
        ("root", "CreateUser", cluster, "allowed"),
        ("root", "UpdateUser", cluster, "failed"),
        ("ann", "DeleteTopic", ["Topic:orders"], "refused"),
        ("root?", "SendMessageV2", ["Topic:orders"], "refused"),
        ("", "SendMessageV2", ["Topic:orders"], "refused"),
        ("root", "WipeWritePerm", cluster, "allowed"),
        ("ann", "QueryRoute", ["Topic:theirs"], "refused"),
    ]
    assert (written[0]["target"], written[0]["from"], written[0]["port"]) == ("shop", "127.0.0.1", "broker")
    assert [each.get("action") for each in written[:4]] == ["Update", "Update", "Delete", "Pub"]
    assert written[6]["action"] == "Pub or Sub"
    assert written[1]["why"] == "The user is not exist"
    assert written[3]["why"] == "check signature failed."
    assert "s3cret-word" not in file.read_text()  # noqa: ASYNC240


def test_a_flood_of_refusals_is_bounded_and_said(file: Path) -> None:
    audit = Audit(file)
    for _ in range(1000):
        audit.refused(1_000, "10.0.0.1", {"n": 1})
    audit.refused(1_500, "10.0.0.2", {"n": 2})
    audit.refused(2_000, "10.0.0.1", {"n": 3})
    audit.refused(9_000, "10.0.0.1", {"n": 4})
    for number in range(5000):
        audit.refused(9_000, f"11.0.{number}", {"n": 5})
    audit.close()
    written = lines(file)
    assert len([each for each in written if each["n"] == 1]) == REFUSALS_A_SECOND
    assert [each.get("unsaid") for each in written if each["n"] in (2, 3, 4)] == [None, 990, None]
    assert len(audit._refused) <= 1000
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert written[0]["time"] == "1970-01-01T00:00:01.000+00:00"


def test_of_so_many_addresses_the_refusals_are_counted_and_known_ones_go_on_being_counted(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aerobee.broker.access.audit._MAX_ADDRESSES", 2)
    audit = Audit(file)
    for source in ("a", "b", *"a" * 20):
        audit.refused(1_000, source, {"n": source})
    assert [each["n"] for each in lines(file)] == ["a", "b", *"a" * (REFUSALS_A_SECOND - 1)]
    audit.refused(1_000, "c", {"n": "c"})
    assert len(audit._refused) == 1, "no room: all are begun anew"
    audit.close()


def test_older_files_move_on_by_one_and_the_oldest_goes(file: Path) -> None:
    audit = Audit(file, full_bytes=1, kept=3)
    for number in range(7):
        audit.changed(number, {"n": number})
    assert [json.loads(line)["n"] for line in audit.newest(1)] == [6]
    assert [audit.newest(count) for count in (0, -1)] == [[], []]
    audit.close()
    names = ("audit.log", "audit.log.1", "audit.log.2", "audit.log.3")
    assert [[each["n"] for each in lines(file.with_name(name))] for name in names] == [[6], [5], [4], [3]]
    assert len(list(file.parent.iterdir())) == 4


def test_a_file_is_full_when_it_has_as_many_bytes_as_it_may(file: Path) -> None:
    audit = Audit(file)
    audit.changed(1, {"n": 1})
    audit.close()
    for more, begun_anew in ((1, False), (0, True)):
        audit = Audit(file, full_bytes=file.stat().st_size + more)
        audit.changed(2, {"n": 2})
        audit.close()
        assert file.with_name("audit.log.1").exists() is begun_anew


def test_a_line_that_cannot_be_written_keeps_nobody_from_his_answer(
    file: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    audit = Audit(file)

    def refuse(handle: int, data: bytes) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", refuse)
    audit.changed(1, {"n": 1})
    audit.close()
    assert "audit line not written" in caplog.text


def test_a_full_file_is_kept_aside_and_the_newest_lines_are_found_all_the_same(file: Path) -> None:
    audit = Audit(file, full_bytes=200, kept=2)
    for number in range(20):
        audit.changed(number, {"n": number})
    assert [json.loads(line)["n"] for line in audit.newest(6)] == [14, 15, 16, 17, 18, 19]
    audit.close()
    assert sorted(each.name for each in file.parent.iterdir()) == ["audit.log", "audit.log.1", "audit.log.2"]
    kept = [
        each["n"]
        for name in ("audit.log.2", "audit.log.1", "audit.log")
        for each in lines(file.with_name(name))
    ]
    assert kept == list(range(kept[0], 20))
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_of_a_large_file_only_the_last_megabyte_is_read(file: Path) -> None:
    file.write_bytes(b"".join(b'{"n":%993d}\n' % number for number in range(2_000)))
    audit = Audit(file)
    found = audit.newest(10_000)
    audit.close()
    assert [json.loads(line)["n"] for line in found] == list(range(2_000 - (1 << 20) // 1_000, 2_000))


def test_files_that_were_put_aside_are_not_held_open(file: Path) -> None:
    audit = Audit(file, full_bytes=200, kept=2)
    held = len(os.listdir("/proc/self/fd"))
    for number in range(50):
        audit.changed(number, {"n": number})
    assert len(os.listdir("/proc/self/fd")) == held
    audit.close()


def test_a_file_that_was_moved_away_is_begun_anew(file: Path) -> None:
    audit, another = Audit(file), Audit(file)
    audit.changed(1, {"n": 1})
    file.rename(file.with_name("moved"))
    assert audit.newest(10) == []
    audit.changed(2, {"n": 2})
    another.changed(3, {"n": 3})
    for each in (audit, another):
        each.close()
    assert [each["n"] for each in lines(file)] == [2, 3]
    assert [each["n"] for each in lines(file.with_name("moved"))] == [1]


def test_of_a_shared_file_a_broker_tells_its_own_lines_and_those_without_a_name(file: Path) -> None:
    file.write_text('{"time":"t","n":1}\n{"torn')
    first, second, nameless = Audit(file, broker="broker-a"), Audit(file, broker="broker-b"), Audit(file)
    nameless.changed(0, {})  # ends the torn line
    first.changed(2, {"n": 2})
    second.changed(3, {"n": 3})
    first.changed(4, {"n": 4})
    nameless.changed(5, {"n": 5})
    told = [[json.loads(line)["n"] for line in each.newest(10)] for each in (first, second)]
    assert told == [[1, 2, 4, 5], [1, 3, 5]]
    assert [json.loads(line)["n"] for line in second.newest(2)] == [3, 5]
    assert json.loads(first.newest(2)[0])["broker"] == "broker-a"
    for each in (first, second, nameless):
        each.close()


async def test_the_audit_says_what_was_changed(ports: Ports, file: Path) -> None:
    await ports.ask(ROOT, CreateTopic(topic="orders"))
    await ports.ask(ROOT, CreateGroup(), bodies.encode(GroupConfig(group_name="billing")))
    made = [each.get("change") for each in lines(file)[-2:]]
    assert made == ["orders: queues 8, permission rw", "billing: retries 16, may consume"]
    before = len(lines(file))
    acl = acl_of("ann", ["Topic:orders"], ["Pub", "Get"], "Allow", ["10.0.0.0/8"])
    await ports.ask(ROOT, UpdateBrokerConfig(), b"pull_messages=5\n")
    await ports.ask(ROOT, h.CreateAcl(subject="User:ann"), bodies.encode(acl))
    await ports.ask(ROOT, h.DeleteAcl(subject="User:ann", resource="Topic:orders"))
    await ports.ask(ROOT, ResetOffset(topic="orders", group="billing", timestamp=0, queue_id=1))
    await ports.ask(ROOT, ResetOffset(topic="orders", group="billing"))
    assert [each.get("change") for each in lines(file)[before:]] == [
        "pull_messages: 32 -> 5",
        "Allow Pub,Get on Topic:orders from 10.0.0.0/8",
        "rules on Topic:orders",
        "billing on orders queue 1 to the first message",
        "billing on orders to the end",
    ]


async def test_the_audit_says_what_of_a_user_was_changed_and_never_the_password(
    ports: Ports, file: Path
) -> None:
    for info in (
        UserInfo(password="s3cret-word"),
        UserInfo(user_status="disable"),
        UserInfo(password="s3cret-word", user_type="Normal", user_status="enable"),
        UserInfo(password=" "),
    ):
        await ports.ask(ROOT, h.UpdateUser(username="ann"), bodies.encode(info))
    written = lines(file)
    changes = [each.get("change") for each in written]
    assert changes == ["the password", "status disable", "the password, type Normal, status enable", None]
    assert "s3cret-word" not in str(written)


async def test_what_was_refused_is_not_told_as_a_change(ports: Ports, file: Path) -> None:
    await ports.ask(ANN, CreateTopic(topic="orders"))
    await ports.ask(ANN, ResetOffset(topic="orders", group="billing"))
    refused = lines(file)
    assert [each["result"] for each in refused] == ["refused", "refused"]
    assert not any("change" in each for each in refused)


def test_every_audited_code_is_a_code_of_ours() -> None:
    assert BROKER.keys() | NAMESRV.keys() >= CHANGES


def test_there_is_nobody_to_write_down_without_access_control() -> None:
    with pytest.raises(ValueError, match="'audit_log' needs"):
        BrokerConfig(audit_log="x")
