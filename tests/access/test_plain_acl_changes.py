# SPDX-License-Identifier: Apache-2.0
"""Codes 50 to 54 on the wire: what they do to the file, and what they answer, as RocketMQ 5.2.0 answers it."""

from __future__ import annotations

import json
import os
import stat
from typing import TYPE_CHECKING, Any

import pytest

from aerobee.protocol import bodies
from aerobee.protocol.accounts import Credentials
from aerobee.protocol.bodies import AclConfig, DataVersion
from aerobee.protocol.headers import accounts as h
from aerobee.protocol.headers.produce import SendMessageV2
from aerobee.protocol.plain_acl import parse_plain_acl
from aerobee.protocol.plain_acl_changes import split_addresses
from tests.access.ports import ANN, NOBODY, ROOT, Ports, running

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from aerobee.protocol.command import Command, Header

ACCOUNTS = """# of the shop
globalWhiteRemoteAddresses: [10.9.9.9]
accounts:
- accessKey: shop-account
  secretKey: 0777777777
  topicPerms: [orders=PUB]
- accessKey: admin-account
  secretKey: admin-secret
  admin: true
"""
OTHERS = "accounts: [{accessKey: other-account, secretKey: other-secret, defaultTopicPerm: SUB}]\n"
SHOP, ADMIN = Credentials("shop-account", "0777777777"), Credentials("admin-account", "admin-secret")
NEW = Credentials("new-account", "new-secret")
SEND = SendMessageV2(topic="orders", queue_id=0)


def text_of(path: Path) -> str:
    return path.read_text()


def said(answer: Command) -> tuple[int, str | None]:
    return answer.code, answer.remark


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "conf" / "plain_acl.yml"
    (path.parent / "acl").mkdir(parents=True)
    path.write_text(ACCOUNTS)
    path.chmod(0o640)
    (path.parent / "acl" / "others.yml").write_text(OTHERS)
    return path


@pytest.fixture
async def ports(file: Path) -> AsyncIterator[Ports]:
    async with running(authentication=False, authorization=False, acl=True, acl_file=str(file)) as made:
        yield made


async def test_an_account_is_made_and_counts_at_once(ports: Ports, file: Path) -> None:
    assert (await ports.ask(NEW, SEND, b"x")).code == 1
    made = h.UpdateAclConfig(
        access_key="new-account", secret_key="new-secret", admin=False, topic_perms="orders=PUB,t=SUB|PUB"
    )
    assert said(await ports.ask(ADMIN, made)) == (0, None)
    assert (await ports.ask(NEW, SEND, b"x")).code == 0
    assert (await ports.ask(SHOP, SEND, b"x")).code == 0, "the others are as they were"
    assert stat.S_IMODE(os.stat(file).st_mode) == 0o640
    assert text_of(file.with_name("plain_acl.yml.bak")) == ACCOUNTS
    assert sorted(os.listdir(file.parent)) == ["acl", "plain_acl.yml", "plain_acl.yml.bak"]
    text = text_of(file)
    assert "dataVersion:\n- counter: 1\n" in text
    assert "# of the shop" not in text
    assert text.index("accounts:") < text.index("dataVersion:") < text.index("globalWhiteRemoteAddresses:")


async def test_an_update_changes_what_it_says_and_nothing_else(ports: Ports, file: Path) -> None:
    async def change(**fields: Any) -> dict[str, Any]:
        update = h.UpdateAclConfig(access_key="shop-account", **fields)
        assert said(await ports.ask(ADMIN, update)) == (0, None)
        account = parse_plain_acl(text_of(file)).accounts[0]
        return {name: getattr(account, name) for name in account.__struct_fields__}

    before = await change(default_group_perm="SUB", white_remote_address="10.0.0.*")
    assert (before["secret_key"], list(before["topic_perms"])) == ("0777777777", ["orders"])
    assert (before["default_group_perm"], before["white_remote_address"]) == ("SUB", "10.0.0.*")
    after = await change(secret_key="another-secret", topic_perms="")
    assert after == {**before, "secret_key": "another-secret", "topic_perms": {}}
    assert (await ports.ask(SHOP, SEND, b"x")).code == 1


async def test_an_account_of_another_file_is_changed_there(ports: Ports, file: Path) -> None:
    others = file.parent / "acl" / "others.yml"
    update = h.UpdateAclConfig(access_key="other-account", topic_perms="orders=PUB")
    assert (await ports.ask(ADMIN, update)).code == 0
    assert text_of(file) == ACCOUNTS
    assert (await ports.ask(Credentials("other-account", "other-secret"), SEND, b"x")).code == 0
    assert (await ports.ask(ADMIN, h.DeleteAclConfig(access_key="other-account"))).code == 0
    assert "other-account" not in text_of(others)
    assert (await ports.ask(Credentials("other-account", "other-secret"), SEND, b"x")).code == 1


SHORT = "The accessKey={} and secretKey=****** cannot be null and length should longer than 6"
FORM = (
    "Parse Resource format error for T7.\nThe expected resource format is 'Res=Perm'. For example: topicA=SUB"
)
PERM = (
    "Parse resource permission error for T7=WRITE.\n"
    "The expected permissions are 'SUB' or 'PUB' or 'SUB|PUB' or 'PUB|SUB'."
)
GONE = "The accessKey[nobody-here] corresponding to accessConfig has been deleted failed."
WHITE = "The globalWhiteAddresses[10.0.0.1] has been updated failed."


@pytest.mark.parametrize(
    ("header", "answer"),
    [
        (h.UpdateAclConfig(access_key="new-account"), (209, SHORT.format("new-account"))),
        (h.UpdateAclConfig(access_key="new", secret_key="s3cret-word"), (209, SHORT.format("new"))),
        (h.UpdateAclConfig(access_key="shop-account", topic_perms="T7"), (209, FORM)),
        (h.UpdateAclConfig(access_key="shop-account", group_perms="T7=WRITE"), (209, PERM)),
        (h.DeleteAclConfig(access_key="nobody-here"), (210, GONE)),
        (h.UpdateWhiteAddresses(global_white_addrs="10.0.0.1", acl_file_full_path="/etc/passwd"), (211, WHITE)),
    ],
)  # fmt: skip
async def test_what_cannot_be_done_is_answered_as_rocketmq_does(
    ports: Ports, file: Path, header: Header, answer: tuple[int, str]
) -> None:
    assert said(await ports.ask(ADMIN, header)) == answer
    assert text_of(file) == ACCOUNTS


async def test_a_white_address_that_cannot_be_read_changes_nothing(ports: Ports, file: Path) -> None:
    for wrong in ("10.0.0.0/8", "10.0.0.1*"):
        answer = await ports.ask(ADMIN, h.UpdateWhiteAddresses(global_white_addrs=wrong))
        assert answer.code == 211
    update = h.UpdateAclConfig(access_key="shop-account", white_remote_address="10.0.0.0/8")
    assert (await ports.ask(ADMIN, update)).code == 209
    assert text_of(file) == ACCOUNTS


async def test_white_addresses_are_replaced_whole(ports: Ports, file: Path) -> None:
    white = h.UpdateWhiteAddresses(global_white_addrs="10.0.0.{1,2},127.0.0.1", acl_file_full_path=str(file))
    assert (await ports.ask(ADMIN, white)).code == 0
    assert parse_plain_acl(text_of(file)).white_addresses == ("10.0.0.{1,2}", "127.0.0.1")
    assert (await ports.ask(NOBODY, SEND, b"x")).code == 0, "from a white address"
    assert (await ports.ask(NOBODY, h.UpdateWhiteAddresses(global_white_addrs=""))).code == 0
    assert (await ports.ask(NOBODY, SEND, b"x")).code == 1


async def test_versions_count_the_changes_of_each_file(ports: Ports, file: Path) -> None:
    async def told() -> tuple[int, dict[str, int]]:
        answer = await ports.ask(ADMIN, h.GetAclVersion())
        found = answer.fields(h.GetAclVersionResult)
        assert (found.broker_name, found.cluster_name) == ("broker-a", "DefaultCluster")
        files = bodies.decode((found.all_acl_file_version or "").encode(), dict[str, DataVersion])
        main = bodies.decode(found.version.encode(), DataVersion)
        return main.counter, {name.rpartition("/")[2]: each.counter for name, each in files.items()}

    assert await told() == (0, {"others.yml": 0, "plain_acl.yml": 0})
    for _ in range(2):
        await ports.ask(ADMIN, h.UpdateAclConfig(access_key="shop-account", admin=False))
    assert await told() == (2, {"others.yml": 0, "plain_acl.yml": 2})


async def test_the_list_is_told_to_admins_and_without_secrets_where_they_are_hidden(file: Path) -> None:
    off: dict[str, Any] = {"authentication": False, "authorization": False, "acl": True}
    for hidden, secret in ((False, "0777777777"), (True, "******")):
        async with running(**off, acl_file=str(file), hide_passwords=hidden) as ports:
            told = bodies.decode((await ports.ask(ADMIN, h.GetAclConfig())).body, AclConfig)
            assert told.global_white_addrs == ["10.9.9.9"]
            (shop,) = [each for each in told.plain_access_configs if each.access_key == "shop-account"]
            assert (shop.secret_key, shop.topic_perms, shop.admin) == (secret, ["orders=PUB"], False)


@pytest.mark.parametrize(
    "header",
    [
        h.UpdateAclConfig(access_key="shop-account", admin=True),
        h.DeleteAclConfig(access_key="admin-account"),
        h.GetAclVersion(),
        h.UpdateWhiteAddresses(global_white_addrs="*"),
        h.GetAclConfig(),
    ],
)
async def test_an_ordinary_account_makes_nobody_admin(ports: Ports, file: Path, header: Header) -> None:
    """In RocketMQ below 5.3 it did, and its white list was anybody's up to 5.3.2."""
    answer = await ports.ask(SHOP, header)
    assert f"Need admin permission for request code={int(type(header).code)}" in str(answer.remark)
    assert text_of(file) == ACCOUNTS


async def test_users_and_policies_have_no_such_file() -> None:
    async with running() as ports:
        assert said(await ports.ask(ROOT, h.GetAclVersion())) == (3, " request type 52 not supported")
        assert (await ports.ask(ANN, h.GetAclVersion())).code == 16


def test_addresses_are_split_outside_of_braces() -> None:
    assert split_addresses(" 10.0.0.1, ,192.168.0.{1,2},::1 ") == ["10.0.0.1", "192.168.0.{1,2}", "::1"]
    assert split_addresses("") == []


async def test_no_secret_of_an_account_is_written_down(
    file: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    audit = tmp_path / "audit.jsonl"
    off: dict[str, Any] = {"authentication": False, "authorization": False, "acl": True}
    with caplog.at_level("DEBUG"):
        async with running(**off, acl_file=str(file), audit_log=str(audit)) as ports:
            for name in ("new-account", "new", "shop-account"):
                update = h.UpdateAclConfig(access_key=name, secret_key="s3cret-word")
                await ports.ask(ADMIN, update)
                await ports.ask(SHOP, update)
            await ports.ask(ADMIN, h.GetAclConfig())
    written = [json.loads(line) for line in text_of(audit).splitlines()]
    assert [(each["user"], each["target"], each["result"]) for each in written[:3]] == [
        ("admin-account", "new-account", "allowed"),
        ("shop-account", "new-account", "refused"),
        ("admin-account", "new", "failed"),
    ]
    for text in (caplog.text, text_of(audit)):
        assert "account=" in text or "new-account" in text
        assert [word for word in ("s3cret-word", "admin-secret", "0777777777") if word in text] == []
