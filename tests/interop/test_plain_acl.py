# SPDX-License-Identifier: Apache-2.0
"""mqadmin of RocketMQ 5.2.0, and a Java client, on a server that decides by plain_acl.yml."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

import peers
import pytest
from servers import JAVA_SMALL, Aerobee

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from conftest import Running

ADMIN, SECRET = "admin-account", "admin-secret"
SHOP = {"accessKey": "shop-account", "secretKey": "shop-secret"}
MAIN = "org.apache.rocketmq.tools.command.MQAdminStartup"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Aerobee]:
    data = tmp_path_factory.mktemp("acl") / "data"
    made = Aerobee(data, {"aclEnable": "true"})
    file(made).parent.mkdir(parents=True)
    file(made).write_text(
        f"# of the house\naccounts:\n- accessKey: {ADMIN}\n  secretKey: {SECRET}\n  admin: true\n"
    )
    made.start()
    yield made
    made.discard()


def file(server: Aerobee) -> Path:
    return server.data / "conf" / "plain_acl.yml"


@pytest.fixture(scope="module")
def mqadmin(server: Aerobee, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., str]:
    home = tmp_path_factory.mktemp("home")
    (home / "conf").mkdir()
    (home / "conf" / "tools.yml").write_text(f"accessKey: {ADMIN}\nsecretKey: {SECRET}\n")
    path = peers.java_class_path(peers.HERE / "java/acl", "acl")
    java = ["java", *JAVA_SMALL, "-Xmx256m", f"-Drocketmq.home.dir={home}", "-cp", path, MAIN]

    def call(command: str, *arguments: str) -> str:
        done = subprocess.run(
            [*java, command, "-n", server.namesrv, *arguments],
            capture_output=True, text=True, timeout=120, check=False, env={**os.environ, "HOME": str(home)},
        )  # fmt: skip
        return done.stdout + done.stderr

    return call


def test_an_account_of_mqadmins_making_sends_and_one_that_it_deleted_does_not(
    server: Aerobee, mqadmin: Callable[..., str], running: Running
) -> None:
    at = ("-b", server.broker)
    account = ("-a", SHOP["accessKey"], "-s", SHOP["secretKey"], "-t", "acl-topic=PUB", "-i", "DENY")
    assert "success" in mqadmin("updateTopic", *at, "-t", "acl-topic", "-r", "4", "-w", "4")
    made = mqadmin("updateAclConfig", *at, *account)
    assert "success" in made, made
    session = peers.Session(running.get("java"), server.namesrv)
    try:
        session.producer("acl-p", **SHOP).send({"topic": "acl-topic", "body": "by its own right"})
        with pytest.raises(peers.PeerError, match="No default permission for topic:TopicTest"):
            session.producer("acl-q", **SHOP).send({"topic": "TopicTest", "body": "not stored"})
        assert "success" in mqadmin("deleteAclConfig", *at, "-a", SHOP["accessKey"])
        with pytest.raises(peers.PeerError, match="No acl config for shop-account"):
            session.producer("acl-r", **SHOP).send({"topic": "acl-topic", "body": "not stored"})
    finally:
        session.close_all()
    text = file(server).read_text()
    assert "dataVersion" in text
    assert SHOP["accessKey"] not in text


def test_mqadmin_reads_versions_and_changes_white_addresses(
    server: Aerobee, mqadmin: Callable[..., str]
) -> None:
    assert "success" in mqadmin("updateGlobalWhiteAddr", "-b", server.broker, "-g", "10.9.8.7,10.9.8.6")
    assert "10.9.8.6" in file(server).read_text()
    told = mqadmin("clusterAclConfigVersion", "-c", "DefaultCluster")
    assert "broker-a" in told
    assert "success" in told
    refused = mqadmin("deleteAclConfig", "-b", server.broker, "-a", "nobody-here")
    assert "CODE: 210" in refused
    assert "has been deleted failed" in refused
