# SPDX-License-Identifier: Apache-2.0
"""Commands against a server with access control: mqadmin's users and policies, profiles, and who a command is."""

from __future__ import annotations

import json
import re
import ssl
import sys
import time
from datetime import timedelta
from typing import TYPE_CHECKING

import msgspec
import pytest
from cryptography import x509

from aerobee import BrokerConfig, NamesrvConfig
from aerobee.cli import connect, profiles
from aerobee.clock import ManualClock, SystemClock
from aerobee.settings import load
from aerobee.testing import TestServer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from conftest import Done

ROOT, SECRET = "root", "root-secret"
DAY_MS = 86_400_000


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestServer]:
    config = BrokerConfig(
        authentication=True,
        authorization=True,
        init_user=f'{{"username":"{ROOT}","password":"{SECRET}"}}',
        audit_log=str(tmp_path_factory.mktemp("audit") / "audit.jsonl"),
    )
    with TestServer(config=config) as running:
        yield running


@pytest.fixture(autouse=True)
def no_account_of_the_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    for name in ("AEROBEE_PROFILE", "AEROBEE_ACCESS_KEY", "AEROBEE_SECRET_KEY", "ROCKETMQ_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AEROBEE_PROFILES", str(tmp_path / "profiles.toml"))
    yield
    profiles.choose(None)


@pytest.fixture
def as_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AEROBEE_ACCESS_KEY", ROOT)
    monkeypatch.setenv("AEROBEE_SECRET_KEY", SECRET)


def admin(good: Callable[..., Done], text: str, stdin: bytes = b"") -> list[str]:
    return [re.sub(r" +", " ", line) for line in good("admin", *text.split(), stdin=stdin).out.splitlines()]


@pytest.mark.usefixtures("as_root")
def test_mqadmins_commands_print_what_rocketmqs_print(good: Callable[..., Done], server: TestServer) -> None:
    at = server.broker_address
    assert admin(good, "createUser -c DefaultCluster -u shop -p one") == [f"create user to {at} success."]
    assert admin(good, f"createUser -b {at} -u ship -p - -t Super", b"typed\n") == [
        f"create user to {at} success."
    ]
    assert admin(good, f"updateUser -b {at} -u shop -s disable") == [f"update user to {at} success."]
    assert admin(good, f"getUser -b {at} -u shop") == [
        "#UserName #Password #UserType #UserStatus",
        "shop one Normal disable",
    ]
    assert admin(good, f"getUser -b {at} -u nobody") == []
    assert admin(good, "listUser -c DefaultCluster -f sh") == [
        "#UserName #Password #UserType #UserStatus",
        "ship typed Super enable",
        "shop one Normal disable",
        f"get user from {at} success.",
    ]
    rights = "-s User:shop -r Topic:orders,Group:g* -a Pub,Sub -d Allow -i 10.0.0.0/8"
    assert admin(good, f"createAcl -b {at} {rights}") == [f"create acl to {at} success."]
    assert admin(good, f"updateAcl -b {at} -s User:shop -r Topic:orders -a Get -d Deny") == [
        f"update acl to {at} success."
    ]
    shown = [
        "#Subject #PolicyType #Resource #Actions #SourceIp #Decision",
        "User:shop Custom Topic:orders [Get] null Deny",
        "User:shop Custom Group:g* [Pub, Sub] [10.0.0.0/8] Allow",
    ]
    assert admin(good, f"getAcl -b {at} -s User:shop") == shown
    assert admin(good, "listAcl -c DefaultCluster") == shown
    assert admin(good, f"listAcl -b {at} -r Group") == [shown[0], shown[2]]
    assert admin(good, f"copyUser -f {at} -t {at} -u shop") == [
        f"copy user of shop from {at} to {at} success."
    ]
    assert admin(good, f"copyAcl -f {at} -t {at}") == [f"copy acl of User:shop from {at} to {at} success."]
    assert admin(good, f"deleteAcl -b {at} -s User:shop -r Topic:orders") == [f"delete acl to {at} success."]
    assert admin(good, f"deleteUser -b {at} -u shop") == [f"delete user to {at} success."]
    assert admin(good, f"getAcl -b {at} -s User:ship") == []


@pytest.mark.usefixtures("as_root")
def test_who_may_only_look_sees_no_password_and_copies_no_user(
    aerobee: Callable[..., Done], server: TestServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    at, rights = server.broker_address, {"viewer": "Get,List", "keeper": "All"}
    for name in rights:
        aerobee("access", "add-user", name, stdin=f"{name}-secret\n".encode())
        aerobee("access", "allow", name, rights[name], "*")
    for name in rights:
        monkeypatch.setenv("AEROBEE_ACCESS_KEY", name)
        monkeypatch.setenv("AEROBEE_SECRET_KEY", f"{name}-secret")
        listed = aerobee("admin", "listUser", "-b", at).out
        assert "secret" not in listed and listed.count("******") >= 3
        copied = aerobee("admin", "copyUser", "-f", at, "-t", at, "-u", "viewer")
        assert copied.code == 1
        assert f"{at} does not tell viewer's password: super users are told passwords" in copied.err


def test_who_is_not_let_in_is_told_in_one_line(
    aerobee: Callable[..., Done], monkeypatch: pytest.MonkeyPatch
) -> None:
    done = aerobee("topics", "list")
    assert (done.code, done.err.count("\n")) == (1, 1)
    assert "username cannot be null." in done.err
    assert "--profile" in done.err and "AEROBEE_ACCESS_KEY" in done.err
    monkeypatch.setenv("AEROBEE_ACCESS_KEY", ROOT)
    monkeypatch.setenv("AEROBEE_SECRET_KEY", "guessed")
    assert "check signature failed." in aerobee("topics", "list").err


def test_a_consumer_without_the_right_ends_at_once_and_says_why(
    aerobee: Callable[..., Done], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AEROBEE_ACCESS_KEY", ROOT)
    monkeypatch.setenv("AEROBEE_SECRET_KEY", SECRET)
    aerobee("topics", "create", "orders")
    aerobee("access", "add-user", "reader", stdin=b"reader-secret\n")
    aerobee("access", "allow", "reader", "Pub,Get", "Topic:orders")
    monkeypatch.setenv("AEROBEE_ACCESS_KEY", "reader")
    monkeypatch.setenv("AEROBEE_SECRET_KEY", "reader-secret")
    for mode in ("push", "pull", "pop"):
        done = aerobee("consume", "orders", "-g", "shopreader", "-c", "1", "--mode", mode)
        assert (done.code, done.out) == (1, "")
        assert "User:reader has no permission to access Group:shopreader" in done.err
        assert "Needs Sub on Group:shopreader." in done.err
        assert "`aerobee access allow reader Sub Group:shopreader`" in done.err


def test_the_next_step_can_be_typed_as_it_is_printed_and_gives_no_more_than_was_missing(
    aerobee: Callable[..., Done], good: Callable[..., Done], as_root: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    good("access", "add-user", "looker", stdin=b"looker-secret\n")
    good("topics", "create", "a|b")
    assert "`aerobee topics update 'a|b'`" in aerobee("topics", "create", "a|b").err
    monkeypatch.setenv("AEROBEE_ACCESS_KEY", "looker")
    monkeypatch.setenv("AEROBEE_SECRET_KEY", "looker-secret")
    assert "`aerobee access allow looker List 'Group:*'`, by" in aerobee("groups", "list").err
    refused = aerobee("access", "audit").err
    assert "Needs Update on Cluster:DefaultCluster." in refused
    assert "nearly every right: have an administrator do this" in refused
    assert "access allow" not in refused


def test_a_right_is_added_to_those_there_are_unless_it_is_to_replace_them(
    good: Callable[..., Done], aerobee: Callable[..., Done], as_root: None
) -> None:
    good("access", "add-user", "adder", stdin=b"adder-secret\n")
    made = good("access", "allow", "adder", "Pub", "Topic:bits")
    assert made.err == "Allow Pub on Topic:bits for adder on broker-a\n"
    more = good("access", "allow", "adder", "sub,Pub", "Topic:bits")
    assert more.err == "Allow Pub,Sub on Topic:bits for adder (before: Allow Pub) on broker-a\n"
    refused = aerobee("access", "deny", "adder", "Pub", "Topic:bits")
    assert refused.code == 1
    assert (
        "a rule about Topic:bits already: Allow Pub,Sub; --replace puts the new one in its place"
        in refused.err
    )
    other = aerobee("access", "allow", "adder", "Get", "Topic:bits", "--from", "10.0.0.1")
    assert "--replace" in other.err
    put = good("access", "deny", "adder", "Pub", "Topic:bits", "--replace")
    assert put.err == "Deny Pub on Topic:bits for adder (before: Allow Pub,Sub) on broker-a\n"
    [rule] = good("access", "policies", "adder", "--json").json
    assert (rule["decision"], rule["actions"]) == ("Deny", "Pub")
    assert good("access", "deny", "adder", "All", "Topic:bits").err.startswith(
        "Deny All on Topic:bits for adder ("
    )


def test_a_team_looks_at_its_own_group_and_no_other(
    good: Callable[..., Done], aerobee: Callable[..., Done], monkeypatch: pytest.MonkeyPatch, as_root: None
) -> None:
    good("topics", "create", "bills")
    good("groups", "create", "bills-new")
    good("send", "bills", "hello")
    good("consume", "bills", "-g", "bills-team", "--from", "first", "-c", "1")
    good("topics", "create", "%DLQ%bills-team")
    good("send", "%DLQ%bills-team", "gave up")
    good("access", "add-user", "team", stdin=b"team-secret\n")
    for what in ("Topic:bills", "Topic:%DLQ%bills-team", "Group:bills-team"):
        good("access", "allow", "team", "Sub,Get,Update", what)
    good("access", "allow", "team", "Get", "Group:bills-new")
    monkeypatch.setenv("AEROBEE_ACCESS_KEY", "team")
    monkeypatch.setenv("AEROBEE_SECRET_KEY", "team-secret")
    assert good("groups", "show", "bills-team", "--json").json["ready"] == 0
    assert good("groups", "show", "bills-new", "--json").json["members"] == 0
    assert [row["body"] for row in good("groups", "dead", "bills-team", "--json").json] == ["gave up"]
    good("groups", "reset", "bills-team", "-t", "bills", "--to", "first", "--yes")
    assert good("groups", "show", "bills-team", "--json").json["ready"] == 1
    assert "Needs Get on Group:others." in aerobee("groups", "show", "others").err
    assert "Needs List on Group:*." in aerobee("groups", "list").err


def test_a_profile_says_who_and_where(
    aerobee: Callable[..., Done], tmp_path: Path, server: TestServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AEROBEE_NAMESRV")
    file = tmp_path / "profiles.toml"
    where = f'namesrv = "{server.namesrv}"\naccess_key = "{ROOT}"'
    file.write_text(f'[prod]\n{where}\nsecret_key = "{SECRET}"\n[other]\n{where}\nsecret_key_env = "MINE"\n')
    file.chmod(0o644)
    done = aerobee("--profile", "prod", "topics", "list")
    assert "chmod 600" in done.err
    file.chmod(0o600)
    assert aerobee("--profile", "prod", "topics", "list").code == 0
    assert "takes its secret from $MINE" in aerobee("--profile", "other", "topics", "list").err
    monkeypatch.setenv("MINE", SECRET)
    assert aerobee("--profile", "other", "topics", "list").code == 0
    assert "there are other, prod" in aerobee("--profile", "none", "topics", "list").err
    monkeypatch.setenv("AEROBEE_PROFILE", "prod")
    assert aerobee("topics", "list").code == 0
    monkeypatch.setenv("AEROBEE_NAMESRV", "127.0.0.1:1")
    assert "127.0.0.1:1" in aerobee("topics", "list").err, "the environment goes before the profile"
    monkeypatch.delenv("AEROBEE_NAMESRV")
    file.write_text('[prod]\nsecret = "x"\n')
    assert "no such key secret" in aerobee("topics", "list").err


def test_mqadmins_own_file_is_read_last(
    good: Callable[..., Done], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "tools.yml").write_text(f"# of mqadmin\naccessKey: {ROOT}\nsecretKey: '{SECRET}'\n")
    monkeypatch.setenv("ROCKETMQ_HOME", str(tmp_path))
    good("admin", "topicList")


@pytest.mark.usefixtures("as_root")
def test_sending_and_consuming_are_signed(good: Callable[..., Done]) -> None:
    good("send", "orders", "hello")
    for how in ("push", "pull", "pop"):
        done = good("consume", "orders", "-g", f"billing-{how}", "--from", "first", "--mode", how, "-c", "1")
        assert "hello" in done.out


@pytest.mark.usefixtures("as_root")
def test_access_commands(good: Callable[..., Done], aerobee: Callable[..., Done]) -> None:
    good("access", "add-user", "porter", stdin=b"porter-secret\n")
    rows = good("access", "users", "port", "--json").json
    assert rows == [{"broker": "broker-a", "status": "enable", "type": "Normal", "user": "porter"}]
    good("access", "allow", "porter", "Pub,Sub", "Topic:ord*")
    good("access", "deny", "porter", "Pub", "Topic:orders", "--from", "10.0.0.0/8")
    assert [
        (row["decision"], row["resource"], row["from"])
        for row in good("access", "policies", "porter", "--json").json
    ] == [
        ("Allow", "Topic:ord*", "everywhere"),
        ("Deny", "Topic:orders", "10.0.0.0/8"),
    ]
    assert good("access", "can", "porter", "pub", "Topic:orders").out == (
        "broker-a: yes, by the Custom rule: Allow Pub,Sub on Topic:ord*\n"
    )
    done = aerobee("access", "can", "porter", "pub", "Topic:orders", "--from", "10.1.1.1")
    assert (done.code, done.out) == (
        1,
        "broker-a: no, by the Custom rule: Deny Pub on Topic:orders from 10.0.0.0/8\n",
    )
    told = aerobee("access", "can", "porter", "pub", "Topic:orders", "--from", "10.1.1.1", "--json").json
    assert [(row["broker"], row["allowed"]) for row in told] == [("broker-a", False)]
    assert aerobee("access", "can", "porter", "fly", "Topic:orders").code == 2
    no_rule = aerobee("access", "can", "porter", "Sub", "Group:g")
    assert no_rule.out == "broker-a: no, no rule of porter is about Sub on Group:g from 127.0.0.1\n"
    assert "a super user may do everything" in good("access", "can", ROOT, "Delete", "Topic:x").out
    assert "no such user" in aerobee("access", "can", "ghost", "Pub", "Topic:x").out
    good("access", "set-user", "porter", "--status", "disable")
    assert "the user is disabled" in aerobee("access", "can", "porter", "Pub", "Topic:x").out
    good("access", "revoke", "porter", "Topic:orders")
    good("access", "remove-user", "porter")
    assert good("access", "users", "porter", "--json").json == []


@pytest.mark.usefixtures("as_root")
def test_another_password_is_read_from_stdin(
    good: Callable[..., Done], aerobee: Callable[..., Done], monkeypatch: pytest.MonkeyPatch
) -> None:
    good("access", "add-user", "changer", "--super", stdin=b"one\n")
    good("access", "set-user", "changer", "--password", stdin=b"two\n")
    monkeypatch.setenv("AEROBEE_ACCESS_KEY", "changer")
    for secret, code in (("one", 1), ("two", 0)):
        monkeypatch.setenv("AEROBEE_SECRET_KEY", secret)
        assert aerobee("topics", "list").code == code


@pytest.mark.usefixtures("as_root")
def test_the_audit_log_is_read_over_the_wire(good: Callable[..., Done], aerobee: Callable[..., Done]) -> None:
    good("access", "add-user", "scribe", stdin=b"scribe-secret\n")
    good("access", "remove-user", "scribe")
    rows = good("access", "audit", "--last", "2", "--json").json
    assert [(row["user"], row["request"], row["target"], row["result"]) for row in rows] == [
        (ROOT, "CreateUser", "scribe", "allowed"),
        (ROOT, "DeleteUser", "scribe", "allowed"),
    ]
    assert rows[0]["resources"] == ["Cluster:DefaultCluster"], "a list, as in the file"
    chosen = good(
        "access", "audit", "--user", ROOT, "--request", "Delete*", "--since", "-1h", "--last", "1", "--json"
    )
    assert [(row["request"], row["target"]) for row in chosen.json] == [("DeleteUser", "scribe")]
    assert good("access", "audit", "--since", "+1h", "--json").json == []
    assert all(row["result"] == "refused" for row in good("access", "audit", "--refused", "--json").json)
    shown = good("access", "audit").out
    assert "DeleteUser" in shown and " Cluster:DefaultCluster " in shown
    assert "scribe-secret" not in shown


@pytest.mark.usefixtures("as_root")
def test_each_line_of_a_shared_audit_log_is_shown_once_under_its_broker(
    good: Callable[..., Done], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "audit.jsonl"
    file.write_text('{"time":"2025-01-01T00:00:00.000+00:00","user":"old","request":"CreateUser"}\n')
    account = {"accessKey": ROOT, "secretKey": SECRET}
    shared = BrokerConfig(
        authentication=True,
        init_user=json.dumps({"username": ROOT, "password": SECRET}),
        inner_credentials=json.dumps(account),
        audit_log=str(file),
    )
    with TestServer(config=shared) as first:
        beside = msgspec.structs.replace(shared, name="broker-b", namesrv=first.namesrv)
        monkeypatch.setenv("AEROBEE_NAMESRV", first.namesrv)
        with TestServer(config=beside, namesrv_port=-1):
            good("access", "add-user", "scribe", stdin=b"scribe-secret\n")
            rows = good("access", "audit", "--json").json
    assert [(row["broker"], row["user"], row["request"]) for row in rows] == [
        ("broker-a", "old", "CreateUser"),
        ("broker-a", ROOT, "CreateUser"),
        ("broker-b", ROOT, "CreateUser"),
    ]


@pytest.mark.usefixtures("as_root")
def test_a_topic_that_is_deleted_on_the_brokers_alone_is_said_to_be(
    good: Callable[..., Done], aerobee: Callable[..., Done], monkeypatch: pytest.MonkeyPatch
) -> None:
    inner = json.dumps({"accessKey": "inner", "secretKey": "i"})
    theirs, ours = (
        BrokerConfig(
            authentication=True,
            init_user=json.dumps({"username": ROOT, "password": password}),
            inner_credentials=inner,
        )
        for password in ("another", SECRET)
    )
    guarded = NamesrvConfig(authentication=True)
    with TestServer(config=theirs, namesrv=guarded, broker_port=-1) as names:
        monkeypatch.setenv("AEROBEE_NAMESRV", names.namesrv)
        registers = msgspec.structs.replace(ours, namesrv=names.namesrv)
        with TestServer(config=registers, namesrv_port=-1):
            good("topics", "create", "orders")
            done = aerobee("topics", "delete", "orders", "--yes")
    assert (done.code, done.out) == (1, "")
    assert done.err.startswith(
        "aerobee: deleted topic 'orders' on broker-a, but not on the name server: check signature failed."
    )
    assert "the secret is not the user's" in done.err
    assert done.err.endswith(". The same command again does the rest\n")


@pytest.mark.slow
def test_accounts_of_plain_acl_by_mqadmins_commands(
    good: Callable[..., Done], aerobee: Callable[..., Done], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "plain_acl.yml"
    file.write_text("accounts: [{accessKey: admin-account, secretKey: admin-secret, admin: true}]\n")
    monkeypatch.setenv("AEROBEE_ACCESS_KEY", "admin-account")
    monkeypatch.setenv("AEROBEE_SECRET_KEY", "admin-secret")
    with TestServer(config=BrokerConfig(acl=True, acl_file=str(file))) as server:
        at = server.broker_address
        monkeypatch.setenv("AEROBEE_NAMESRV", server.namesrv)
        made = admin(
            good, f"updateAclConfig -b {at} -a shop-account -s - -t orders=PUB -m false", b"shop-secret\n"
        )
        assert made == [f"create or update plain access config to {at} success."]
        shown = admin(good, "getAclConfig -c DefaultCluster")
        assert " accessKey : shop-account" in shown
        assert " topicPerms : [orders=PUB]" in shown
        assert admin(good, f"updateGlobalWhiteAddr -b {at} -g 10.0.0.1,10.0.0.2") == [
            f"update global white remote addresses to {at} success."
        ]
        version = admin(good, f"clusterAclConfigVersion -b {at}")[1].split()
        assert version[:5] == ["DefaultCluster", "broker-a", at, str(file), "2"]
        assert admin(good, f"deleteAclConfig -b {at} -a shop-account") == [
            f"delete plain access config account from {at} success."
        ]
        assert (
            "has been deleted failed"
            in aerobee("admin", "deleteAclConfig", "-b", at, "-a", "shop-account").err
        )


@pytest.mark.usefixtures("as_root")
def test_a_plain_acl_is_imported(
    good: Callable[..., Done], aerobee: Callable[..., Done], tmp_path: Path
) -> None:
    file = tmp_path / "plain_acl.yml"
    file.write_text(
        "accounts:\n- {accessKey: imported, secretKey: 12345678, topicPerms: [a=PUB], defaultGroupPerm: SUB}\n"
    )
    assert "made user imported at" in good("access", "import", str(file)).err
    assert (
        "by the Custom rule: Allow Pub on Topic:a" in good("access", "can", "imported", "Pub", "Topic:a").out
    )
    assert (
        "by the Default rule: Allow Sub on Group:*" in good("access", "can", "imported", "Sub", "Group:g").out
    )
    assert aerobee("access", "can", "imported", "Sub", "Topic:a").code == 1
    assert "is there already" in good("access", "import", str(file)).err
    file.write_text("accounts: [{accessKey: x}]")
    assert aerobee("access", "import", str(file)).code == 2


def test_init_makes_a_server_that_asks_and_a_client_that_is_let_in(
    good: Callable[..., Done], aerobee: Callable[..., Done], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = tmp_path / "access"
    serve, export, last = good("access", "init", str(made)).out.splitlines()
    assert (serve, last) == (f"aerobee serve --config {made}/server.toml", "aerobee topics list")
    assert export == f"export AEROBEE_PROFILES={made}/profiles.toml AEROBEE_PROFILE=dev"
    for name in ("ca.key", "server.key", "client.key", "server.toml", "profiles.toml"):
        assert (made / name).stat().st_mode & 0o777 == 0o600, name
    assert "nothing was changed" in aerobee("access", "init", str(made)).err
    loaded = load(made / "server.toml")
    with TestServer(config=loaded.broker) as secured:
        monkeypatch.setenv("AEROBEE_PROFILES", str(made / "profiles.toml"))
        monkeypatch.setenv("AEROBEE_PROFILE", "dev")
        good("topics", "list", "-n", secured.namesrv)
        good("access", "users", "-n", secured.namesrv)
        monkeypatch.delenv("AEROBEE_PROFILE")
        assert aerobee("topics", "list", "-n", secured.namesrv).code == 1, "plain is not spoken there"


def test_init_without_its_extra_names_it_and_makes_nothing(
    aerobee: Callable[..., Done], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "cryptography", None)
    done = aerobee("access", "init", str(tmp_path / "access"))
    assert done.code == 1 and "this needs cryptography: pip install 'aerobee[grpc]'" in done.err
    assert not (tmp_path / "access").exists()


def certificate_of(file: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate(file.read_bytes())


def test_renewed_certificates_have_the_names_and_keys_of_the_old_ones(
    good: Callable[..., Done], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = tmp_path / "access"
    good("access", "init", str(made), "--host", "mq.example.com", "--host", "10.0.0.5")
    before = {name: certificate_of(made / f"{name}.pem") for name in ("ca", "server", "client")}
    monkeypatch.setattr(connect, "clock", ManualClock(SystemClock().wall() + 800 * DAY_MS))
    said = good("access", "renew", str(made)).out
    for name in ("server", "client"):
        old, new = before[name], certificate_of(made / f"{name}.pem")
        assert (new.subject, new.public_key()) == (old.subject, old.public_key())
        assert new.not_valid_after_utc - old.not_valid_after_utc > timedelta(days=799)
        new.verify_directly_issued_by(before["ca"])
        assert f"{made}/{name}.pem is valid until {new.not_valid_after_utc:%Y-%m-%d}" in said
        assert (made / f"{name}.pem").stat().st_mode & 0o777 == 0o644
    names = certificate_of(made / "server.pem").extensions.get_extension_for_class(
        x509.SubjectAlternativeName
    )
    assert names.value.get_values_for_type(x509.DNSName) == ["mq.example.com"]
    assert [str(each) for each in names.value.get_values_for_type(x509.IPAddress)] == ["10.0.0.5"]
    assert certificate_of(made / "ca.pem") == before["ca"]
    assert not list(made.glob("*.new"))


def test_an_authority_that_has_expired_renews_nothing_and_says_what_to_do(
    good: Callable[..., Done], aerobee: Callable[..., Done], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "no certificate authority" in aerobee("access", "renew", str(tmp_path / "nothing")).err
    made = tmp_path / "access"
    good("access", "init", str(made))
    before = (made / "server.pem").read_bytes()
    end = certificate_of(made / "ca.pem").not_valid_after_utc
    last_day = int(end.timestamp() * 1000) - DAY_MS
    monkeypatch.setattr(connect, "clock", ManualClock(last_day))
    good("access", "renew", str(made))
    assert certificate_of(made / "server.pem").not_valid_after_utc == end, "none outlives its authority"
    before = (made / "server.pem").read_bytes()
    monkeypatch.setattr(connect, "clock", ManualClock(last_day + 2 * DAY_MS))
    done = aerobee("access", "renew", str(made))
    assert (done.code, done.out) == (1, "")
    assert f"has expired on {end:%Y-%m-%d}" in done.err
    assert "`aerobee access init" in done.err
    assert (made / "server.pem").read_bytes() == before


@pytest.mark.slow
def test_a_server_that_runs_takes_the_renewed_certificate(good: Callable[..., Done], tmp_path: Path) -> None:
    made = tmp_path / "access"
    good("access", "init", str(made))
    with TestServer(config=load(made / "server.toml").broker) as secured:
        host, port = secured.broker_address.split(":")
        good("access", "renew", str(made))
        renewed = (made / "server.pem").read_text()
        deadline = time.monotonic() + 10
        while ssl.get_server_certificate((host, int(port))) != renewed:
            assert time.monotonic() < deadline
            time.sleep(0.1)
