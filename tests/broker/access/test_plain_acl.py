# SPDX-License-Identifier: Apache-2.0
"""plain_acl.yml: what is read, in which order it decides, what a change does, and what it becomes as users."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from aerobee.broker.access.access import Access, Rules
from aerobee.broker.access.migrate import migrate
from aerobee.broker.access.opening import open_access
from aerobee.broker.access.plain_acl import PlainAcl, read_files
from aerobee.broker.access.users import User
from aerobee.broker.operations.admin.plain_acl import config, put_account
from aerobee.errors import AclDenied, AclUpdateFailed, NoPermission
from aerobee.protocol.access import Action, Kind, Need, cluster, every, group, topic
from aerobee.protocol.headers.accounts import UpdateAclConfig
from aerobee.protocol.plain_acl import Perm, parse_plain_acl
from aerobee.protocol.policy_infos import policy_of
from aerobee.settings import BrokerConfig

COMMON = """
globalWhiteRemoteAddresses:
- 10.10.103.*
- 192.168.0.*

accounts:
- accessKey: RocketMQ
  secretKey: 12345678
  whiteRemoteAddress:
  admin: false
  defaultTopicPerm: DENY
  defaultGroupPerm: SUB
  topicPerms:
  - topicA=DENY
  - topicB=PUB|SUB
  - topicC=SUB
  - topicD=PUB
  - odd=WRITE
  groupPerms:
  # the group should convert to retry topic
  - groupA=DENY
  - groupB=PUB|SUB
  - groupC=SUB

- accessKey: rocketmq2
  secretKey: 12345678
  whiteRemoteAddress: 192.168.1.*
  # if it is admin, it could access all resources
  admin: yes
"""
HERE = "127.0.0.1"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "plain_acl.yml"
    path.write_text(COMMON)
    return path


def why(acl: PlainAcl, user: str, *needs: Need, code: int = 10) -> str:
    try:
        acl.check(user, needs, HERE, code)
    except AclDenied as refused:
        return refused.remark.removeprefix("org.apache.rocketmq.acl.common.AclException: ")
    return ""


def test_the_file_that_rocketmq_ships() -> None:
    read = parse_plain_acl(COMMON)
    assert read.white_addresses == ("10.10.103.*", "192.168.0.*")
    first, second = read.accounts
    assert (first.access_key, first.secret_key, first.admin, second.admin) == (
        "RocketMQ",
        "12345678",
        False,
        True,
    )
    assert first.topic_perms["topicB"] == Perm.PUB | Perm.SUB
    assert first.topic_perms["odd"] == Perm.DENY, "a word that is none of the five"
    assert (first.white_remote_address, second.white_remote_address) == ("", "192.168.1.*")


def test_scalars_are_text() -> None:
    (account,) = parse_plain_acl(
        "accounts: [{accessKey: 0123456789, secretKey: 0777777777, defaultTopicPerm: null, topicPerms: ~,"
        " whiteRemoteAddress: '', admin: 'false'}]"
    ).accounts
    assert (account.access_key, account.secret_key) == ("0123456789", "0777777777")
    assert (account.default_topic_perm, account.topic_perms, account.admin) == ("", {}, False)
    (quoted,) = parse_plain_acl("accounts: [{accessKey: accesskey, secretKey: 'nullnull'}]").accounts
    assert quoted.secret_key == "nullnull"
    assert parse_plain_acl("").accounts == ()
    twice = parse_plain_acl(
        "accounts: [{accessKey: account1, secretKey: first-one}, {accessKey: account1, secretKey: second-one}]"
    )
    assert [each.secret_key for each in twice.accounts] == ["first-one"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("accounts: [{accessKey: short, secretKey: 12345678}]", "at least 7"),
        ("accounts: [{accessKey: long-enough}]", "at least 7"),
        ("accounts: [{accessKey: account1, secretKey: 12345678, colour: red}]", "colour"),
        ("colour: red", "colour"),
        ("accounts: [{accessKey: account1, secretKey: 12345678, topicPerms: [a]}]", "not name=PERM"),
        ("accounts: [{accessKey: account1, secretKey: 12345678, admin: perhaps}]", "neither true nor false"),
        ("globalWhiteRemoteAddresses: [10.0.0.0/8]", "address pattern"),
        ("globalWhiteRemoteAddresses:\n- *\n", "write '*' in quotes"),
        ("accounts: {accessKey: a}", "not a list"),
        ("- a", "name: value"),
        ("a: [", "no YAML"),
    ],
)
def test_what_is_wrong_is_said(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=r".") as refused:
        parse_plain_acl(text)
    assert words in str(refused.value)


def test_the_order_of_who_comes_in(file: Path) -> None:
    acl = PlainAcl(file, "c")
    assert acl.secret_of("", "10.10.103.7") is None, "a global white address needs no account at all"
    assert acl.secret_of("nobody77", "10.10.103.7") is None
    assert acl.secret_of("", "::ffff:10.10.103.7") is None
    assert acl.secret_of("rocketmq2", "192.168.1.9") is None
    assert acl.secret_of("rocketmq2", HERE) == "12345678"
    for name, said in (("", "No accessKey is configured"), ("nobody77", "No acl config for nobody77")):
        with pytest.raises(AclDenied, match=said):
            acl.secret_of(name, "192.168.1.9")
    assert acl.badly_signed("RocketMQ").code == 1
    assert acl.badly_signed("RocketMQ").remark == (
        "org.apache.rocketmq.acl.common.AclException: Check signature failed for accessKey=RocketMQ"
    )


@pytest.mark.parametrize(
    ("need", "said"),
    [
        (topic("topicB", Action.PUB), ""),
        (topic("topicB", Action.SUB), ""),
        (topic("topicC", Action.SUB), ""),
        (topic("topicC", Action.PUB), "No permission for topic:topicC"),
        (topic("topicD", Action.SUB), "No permission for topic:topicD"),
        (topic("topicA", Action.PUB), "No permission for topic:topicA"),
        (topic("odd", Action.PUB), "No permission for topic:odd"),
        (topic("topicX", Action.PUB), "No default permission for topic:topicX"),
        (topic("topicD", Action.PUB, Action.SUB), ""),
        (topic("topicC", Action.PUB, Action.SUB), ""),
        (topic("topicA", Action.PUB, Action.SUB), "No permission for topic:topicA"),
        (group("groupA", Action.SUB), "No permission for group:groupA"),
        (group("groupC", Action.SUB, Action.UPDATE), ""),
        (group("groupX", Action.SUB), ""),
        (topic("topicX", Action.GET), ""),
        (every(Kind.TOPIC, Action.LIST), ""),
        (cluster("c", Action.GET), ""),
        (
            cluster("c", Action.UPDATE),
            "Need admin permission for request code=10, but accessKey=RocketMQ is not",
        ),
        (
            topic("topicB", Action.CREATE),
            "Need admin permission for request code=10, but accessKey=RocketMQ is not",
        ),
        (
            every(Kind.TOPIC, Action.SUB),
            "Need admin permission for request code=10, but accessKey=RocketMQ is not",
        ),
    ],
)
def test_what_an_account_may(file: Path, need: Need, said: str) -> None:
    acl = PlainAcl(file, "c")
    assert why(acl, "RocketMQ", need) == said
    assert [acl.may_everything(name) for name in ("RocketMQ", "rocketmq2", "")] == [False, True, False]


def test_what_nobody_listed_is_for_admins(file: Path) -> None:
    acl = PlainAcl(file, "c")
    with pytest.raises(AclDenied, match="Need admin permission for request code=9999"):
        acl.check("RocketMQ", None, HERE, 9999)


def test_a_changed_file_counts_and_a_broken_one_does_not(
    file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    acl = PlainAcl(file, "c")
    acl.tick(0)
    file.write_text("accounts:\n- accessKey: newcomer\n  secretKey: 12345678\n")
    os.utime(file, ns=(1, 1))
    acl.tick(5000)
    assert acl.secret_of("newcomer", HERE) == "12345678"
    with pytest.raises(AclDenied):
        acl.secret_of("RocketMQ", HERE)
    file.write_text("accounts: [")
    os.utime(file, ns=(2, 2))
    acl.tick(10_000)
    assert acl.secret_of("newcomer", HERE) == "12345678"
    assert "accounts stay as they were" in caplog.text
    assert "12345678" not in caplog.text


def test_what_was_let_through_is_asked_again_after_a_change_and_only_then(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    acl = PlainAcl(file, "c")
    acl.passed.add(("RocketMQ", "topicB"))
    acl.tick(0)
    assert acl.passed
    file.write_text(COMMON.replace("topicB=PUB|SUB", "topicB=DENY"))
    acl.tick(5_000)
    assert not acl.passed
    acl.passed.add(("RocketMQ", "topicC"))
    monkeypatch.setattr(acl, "_read", lambda: pytest.fail("read again, though nothing changed"))
    acl.tick(10_000)
    assert acl.passed


def test_accounts_that_are_users_already_stay_as_they_are_and_the_others_are_kept(
    file: Path, tmp_path: Path
) -> None:
    rules = Rules(cluster="c", authentication=True, authorization=True)
    access = Access(tmp_path / "access.json", rules)
    access.put_user(User(username="RocketMQ", password="changed since"))
    migrate(read_files(file), access)
    again = Access(tmp_path / "access.json", rules)
    secrets = {user.username: user.password for user in again.users.all()}
    assert secrets == {"RocketMQ": "changed since", "rocketmq2": "12345678"}
    assert again.policies.get("RocketMQ") is None


def test_both_ways_of_access_control_write_one_audit(file: Path, tmp_path: Path) -> None:
    config = BrokerConfig(acl=True, acl_file=str(file), audit_log=str(tmp_path / "audit.log"))
    access = open_access(config, tmp_path / "data")
    assert access.plain is not None
    assert access.audit is not None
    assert access.plain.audit is access.audit
    access.audit.close()


def test_files_beside_it_go_before_it(file: Path) -> None:
    further = file.parent / "acl" / "team"
    further.mkdir(parents=True)
    (further / "a.yaml").write_text("accounts: [{accessKey: RocketMQ, secretKey: of-the-team}]")
    (further / "notes.txt").write_text("no list")
    acl = PlainAcl(file, "c")
    assert acl.secret_of("RocketMQ", HERE) == "of-the-team"
    assert acl.secret_of("rocketmq2", HERE) == "12345678"
    (further / "b.yml").write_text("accounts: [{accessKey: newcomer, secretKey: 12345678}]")
    acl.tick(0)
    assert acl.secret_of("newcomer", HERE) == "12345678"


def test_without_a_file_nobody_comes_in(tmp_path: Path) -> None:
    acl = PlainAcl(tmp_path / "plain_acl.yml", "c")
    with pytest.raises(AclDenied):
        acl.secret_of("RocketMQ", HERE)


def test_accounts_become_users_with_the_same_rights(file: Path) -> None:
    access = Access(None, Rules(cluster="c", authentication=True, authorization=True))
    migrate(read_files(file), access)
    assert access.is_super("rocketmq2")
    assert not access.is_super("RocketMQ")

    def may(need: Need) -> bool:
        return access.policies.verdict("RocketMQ", need, HERE).allowed

    assert may(topic("topicB", Action.PUB))
    assert may(topic("topicC", Action.SUB))
    assert not may(topic("topicC", Action.PUB))
    assert not may(topic("topicA", Action.SUB))
    assert not may(topic("odd", Action.PUB)), "not all that is allowed, as RocketMQ makes of it"
    assert not may(topic("topicX", Action.PUB))
    assert may(group("groupX", Action.SUB))
    assert not may(group("groupA", Action.SUB))
    migrate(read_files(file), access)
    assert len(access.users.all()) == 2


@pytest.mark.parametrize("migrates", [False, True])
def test_the_accounts_of_a_file_become_users_when_the_settings_say_so(
    file: Path, tmp_path: Path, migrates: bool
) -> None:
    config = BrokerConfig(
        authentication=True,
        init_user='{"username":"root","password":"r"}',
        migrate_acl=migrates,
        acl_file=str(file),
    )
    access = open_access(config, tmp_path / "data")
    names = [user.username for user in access.users.all()]
    assert names == (["RocketMQ", "rocketmq2", "root"] if migrates else ["root"])
    assert access.plain is None


@pytest.mark.parametrize(
    ("fields", "warned"),
    [
        ({"authentication": True}, True),
        ({"authentication": True, "init_user": '{"username":"root","password":"r"}'}, False),
        ({}, False),
    ],
)
def test_that_nobody_can_make_users_is_said(
    tmp_path: Path, fields: dict[str, Any], warned: bool, caplog: pytest.LogCaptureFixture
) -> None:
    open_access(BrokerConfig(**fields), tmp_path)
    assert ("no super user yet" in caplog.text) is warned


# -- the file as it is written -------------------------------------------------------------------------------

CHANGE = UpdateAclConfig(access_key="new-account", secret_key="new-secret", admin=False)


def test_a_draft_of_another_time_is_in_nobodys_way(file: Path) -> None:
    draft = file.with_name("plain_acl.yml.tmp")
    draft.write_text("half of ano")
    put_account("root", CHANGE, PlainAcl(file, "c"), 0)
    assert "new-account" in file.read_text()
    assert not draft.exists()


def test_a_file_takes_its_place_when_it_is_on_disk_and_not_before(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    did: list[str] = []
    sync, replace = os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda handle: did.append("sync") or sync(handle))
    monkeypatch.setattr(os, "replace", lambda a, b: did.append(Path(b).name) or replace(a, b))
    put_account("root", CHANGE, PlainAcl(file, "c"), 0)
    assert did == ["sync", "plain_acl.yml.bak", "sync", "plain_acl.yml"]


def test_a_change_that_cannot_be_written_leaves_the_file_and_no_draft(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    acl = PlainAcl(file, "c")

    def refuse(draft: object, path: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", refuse)
    with pytest.raises(AclUpdateFailed, match="the file is not written: No space left on device"):
        put_account("root", CHANGE, acl, 0)
    assert [path.name for path in file.parent.iterdir()] == ["plain_acl.yml"]
    assert file.read_text() == COMMON


def test_what_is_told_of_an_account_is_what_counts(file: Path) -> None:
    (file.parent / "acl").mkdir()
    (file.parent / "acl" / "first.yml").write_text("accounts: [{accessKey: RocketMQ, secretKey: the-first}]")
    acl = PlainAcl(file, "c")
    told = config(Access(None, Rules(cluster="c")), acl)
    assert [(each.access_key, each.secret_key, each.admin) for each in told.plain_access_configs] == [
        ("RocketMQ", "the-first", False), ("rocketmq2", "12345678", True),
    ]  # fmt: skip
    assert acl.secret_of("RocketMQ", HERE) == "the-first"


# -- several needs, and what is seen of a file ---------------------------------------------------------------


def test_every_need_of_a_request_must_be_met(file: Path) -> None:
    acl = PlainAcl(file, "c")
    may, may_not = topic("topicB", Action.PUB), topic("topicC", Action.PUB)
    changes, looks = topic("topicB", Action.GET, Action.UPDATE), topic("topicB", Action.GET)
    assert why(acl, "RocketMQ", may, looks) == ""
    for needs in ((may, may_not), (may_not, may)):
        assert why(acl, "RocketMQ", *needs) == "No permission for topic:topicC"
    for asked in ([may, changes], [changes, may], [changes]):
        assert why(acl, "RocketMQ", *asked).startswith("Need admin permission for request code=10")


def test_a_file_of_another_size_is_read_though_its_time_is_the_same(file: Path) -> None:
    os.utime(file, ns=(7, 7))
    acl = PlainAcl(file, "c")
    file.write_text("accounts: [{accessKey: newcomer, secretKey: 12345678}]")
    os.utime(file, ns=(7, 7))
    acl.tick(0)
    assert acl.secret_of("newcomer", HERE) == "12345678"


def test_an_account_that_cannot_be_a_user_is_left_out_whole(
    file: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    file.write_text(COMMON + "- accessKey: the shop/account\n  secretKey: 12345678\n")

    def refuse(info: Any) -> Any:
        if "topicA" in str(info):
            raise NoPermission("rights that nobody can read")
        return policy_of(info)

    monkeypatch.setattr("aerobee.broker.access.migrate.policy_of", refuse)
    access = Access(None, Rules(cluster="c", authentication=True, authorization=True))
    migrate(read_files(file), access)
    assert [user.username for user in access.users.all()] == ["rocketmq2"]
    assert "account=RocketMQ is not made a user: rights that nobody can read" in caplog.text
    assert "account=the shop/account is not made a user" in caplog.text
