# SPDX-License-Identifier: Apache-2.0
"""The name server of `serve --brokers N` is in another process than the brokers, and goes by the users of the first."""

from __future__ import annotations

import json
import os
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from aerobee.broker.access.access import Access
from aerobee.broker.access.beside import UsersOfBroker
from aerobee.broker.access.opening import open_namesrv_access, rules_of, users_file
from aerobee.broker.access.users import User
from aerobee.client.admin import Admin
from aerobee.client.options import Options
from aerobee.errors import AccessDenied
from aerobee.protocol import bodies
from aerobee.protocol.access import UserType
from aerobee.protocol.accounts import Credentials
from aerobee.protocol.bodies import UserInfo
from aerobee.protocol.headers import accounts as h
from aerobee.protocol.headers.route import AllTopics
from aerobee.server import OFF, Server
from aerobee.settings import BrokerConfig, NamesrvConfig
from tests.access.ports import ANN, NOBODY, ROOT, SMALL, Ports

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

INNER = Credentials("aerobee-brokers", "inner-secret")
OTHER = Credentials("root", "another-secret")


def config(**more: Any) -> BrokerConfig:
    return BrokerConfig(
        authentication=True,
        authorization=True,
        init_user=f'{{"username":"{ROOT.access_key}","password":"{ROOT.secret_key}"}}',
        inner_credentials=f'{{"accessKey":"{INNER.access_key}","secretKey":"{INNER.secret_key}"}}',
        **more,
    )


@asynccontextmanager
async def fleet_of_one(data: Path, **more: Any) -> AsyncIterator[Ports]:
    """What a keeper starts, in this process: the name server, and a broker that registers with it."""
    folder = data / "brokers" / "broker-a"
    folder.parent.mkdir(parents=True, exist_ok=True)
    guarded = NamesrvConfig(authentication=True)
    async with Server(data, broker_port=OFF, namesrv_port=0, config=config(**more), namesrv=guarded) as names:
        beside = config(namesrv=names.namesrv, port=0, **more)
        async with Server(folder, namesrv_port=OFF, broker_port=0, config=beside, store=SMALL) as server:
            ports = Ports(server)
            yield ports
            await ports.close()


async def code_at_namesrv(ports: Ports, who: Credentials) -> int:
    return (await ports.ask_namesrv(who, AllTopics())).code


async def test_a_changed_password_counts_at_the_name_server_at_once_and_after_a_restart(
    tmp_path: Path,
) -> None:
    changed = bodies.encode(UserInfo(password=OTHER.secret_key))
    async with fleet_of_one(tmp_path) as ports:
        assert await code_at_namesrv(ports, ROOT) == 0
        assert (await ports.ask(ROOT, h.UpdateUser(username="root"), changed)).code == 0
        assert (await code_at_namesrv(ports, OTHER), await code_at_namesrv(ports, ROOT)) == (0, 16)
    async with fleet_of_one(tmp_path) as ports:
        assert (await code_at_namesrv(ports, OTHER), await code_at_namesrv(ports, ROOT)) == (0, 16)


async def test_users_made_at_the_broker_have_their_rights_at_the_name_server(tmp_path: Path) -> None:
    async with fleet_of_one(tmp_path) as ports:
        assert "is not found" in ((await ports.ask_namesrv(ANN, AllTopics())).remark or "")
        made = bodies.encode(UserInfo(password=ANN.secret_key))
        await ports.ask(ROOT, h.CreateUser(username="ann"), made)
        assert "has no permission" in ((await ports.ask_namesrv(ANN, AllTopics())).remark or "")
        ports.grant("Topic:* List")
        await ports.server.broker.access.saved()
        assert await code_at_namesrv(ports, ANN) == 0
        await ports.ask(ROOT, h.DeleteUser(username="ann"))
        assert await code_at_namesrv(ports, ANN) == 16


async def test_a_broker_registers_before_its_file_is_there(tmp_path: Path) -> None:
    access = open_namesrv_access(config(), tmp_path)
    assert not users_file(tmp_path).exists()
    assert access.secret_of(INNER.access_key, "127.0.0.1") == INNER.secret_key
    assert access.secret_of(ROOT.access_key, "127.0.0.1") == ROOT.secret_key
    with pytest.raises(AccessDenied):
        access.secret_of(ANN.access_key, "127.0.0.1")


async def test_a_first_user_who_was_deleted_is_nobody(tmp_path: Path) -> None:
    brokers = Access(users_file(tmp_path), rules_of(config()))
    brokers.put_user(User(username="boss", password="b", user_type=UserType.SUPER))
    await brokers.saved()
    access = open_namesrv_access(config(), tmp_path)
    assert access.secret_of(INNER.access_key, "127.0.0.1") == INNER.secret_key, (
        "the brokers' own is always there"
    )
    with pytest.raises(AccessDenied, match="root is not found"):
        access.secret_of(ROOT.access_key, "127.0.0.1")


async def test_a_file_that_cannot_be_read_leaves_everybody_as_they_were(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "access.json"
    brokers = Access(file, rules_of(config()))
    brokers.put_user(User(username="ann", password="one"))
    await brokers.saved()
    access = UsersOfBroker(file, rules_of(config()), [])
    for text in ("{", '{"users": 7, "policies": {}}'):
        file.write_text(text)
        for _ in range(2):
            assert access.secret_of("ann", "127.0.0.1") == "one"
    assert [each.levelname for each in caplog.records] == ["ERROR", "ERROR"], (
        "once for each state of the file"
    )
    file.unlink()
    assert access.secret_of("ann", "127.0.0.1") == "one"


async def test_between_the_two_steps_of_a_save_the_file_before_it_counts(tmp_path: Path) -> None:
    file = tmp_path / "access.json"
    brokers = Access(file, rules_of(config()))
    brokers.put_user(User(username="ann", password="one"))
    await brokers.saved()
    file.rename(file.with_name("access.json.bak"))
    assert UsersOfBroker(file, rules_of(config()), []).secret_of("ann", "127.0.0.1") == "one"


async def test_users_of_a_name_server_alone_are_those_its_settings_name_now(tmp_path: Path) -> None:
    guarded = NamesrvConfig(authentication=True)
    for secret in ("before", "after"):
        named = BrokerConfig(init_user=json.dumps({"username": "root", "password": secret}))
        options = Options(access_key="root", secret_key=secret)
        async with (
            Server(tmp_path, broker_port=OFF, namesrv_port=0, config=named, namesrv=guarded) as alone,
            Admin(alone.namesrv, options=options) as admin,
        ):
            assert await admin.topics() == []


async def test_refusals_of_the_name_server_are_written_down(tmp_path: Path) -> None:
    audit = tmp_path / "audit.jsonl"
    async with fleet_of_one(tmp_path / "data", audit_log=str(audit)) as ports:
        await ports.ask_namesrv(NOBODY, AllTopics())
    [line] = [json.loads(each) for each in audit.read_text().splitlines()]
    assert (line["port"], line["request"], line["result"]) == ("namesrv", "AllTopics", "refused")
    assert line["broker"] == "broker-a", "whose users it goes by, and who tells the line"


async def test_a_file_replaced_within_one_moment_is_read_again(tmp_path: Path) -> None:
    file = tmp_path / "access.json"
    brokers = Access(file, rules_of(config()))
    brokers.put_user(User(username="ann", password="one"))
    await brokers.saved()
    os.utime(file, ns=(7, 7))
    access = UsersOfBroker(file, rules_of(config()), [])
    access.passed.add(("ann", "105"))
    brokers.put_user(User(username="ann", password="another"))
    await brokers.saved()
    os.utime(file, ns=(7, 7))
    assert access.secret_of("ann", "127.0.0.1") == "another"
    assert access.passed == set(), "what was let through is asked again"


async def test_the_brokers_own_account_is_as_the_file_has_it(tmp_path: Path) -> None:
    file = tmp_path / "access.json"
    brokers = Access(file, rules_of(config()))
    brokers.put_user(User(username=INNER.access_key, password="changed", user_type=UserType.SUPER))
    await brokers.saved()
    access = UsersOfBroker(file, rules_of(config()), [INNER])
    assert access.secret_of(INNER.access_key, "127.0.0.1") == "changed"


async def test_beside_brokers_that_ask_nobody_the_users_of_the_settings_count(tmp_path: Path) -> None:
    """The name server may be guarded where the brokers are not."""
    settings = msgspec.structs.replace(config(), authentication=False, authorization=False)
    access = open_namesrv_access(settings, tmp_path)
    assert access.guard is access
    assert access.secret_of(ROOT.access_key, "127.0.0.1") == ROOT.secret_key


def test_a_name_server_alone_writes_no_brokers_name_into_its_audit(tmp_path: Path) -> None:
    for first, told in ((None, {}), (tmp_path, {"broker": "broker-a"})):
        log = tmp_path / f"audit-{bool(first)}.log"
        access = open_namesrv_access(config(audit_log=str(log)), first)
        assert access.audit is not None
        access.audit.changed(0, {"code": 1})
        access.audit.close()
        assert json.loads(log.read_text()) == {"time": "1970-01-01T00:00:00.000+00:00", **told, "code": 1}
