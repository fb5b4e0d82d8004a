# SPDX-License-Identifier: Apache-2.0
"""`aerobee serve` as a user runs it: a process, its one line, its signals, its data directory."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import socket
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from aerobee.errors import NetworkError
from aerobee.net.pool import Pool
from aerobee.protocol.bodies import TopicRoute, decode
from aerobee.protocol.command import request
from aerobee.protocol.headers.consume import PullMessage
from aerobee.protocol.headers.offsets import GetMaxOffset, OffsetResult
from aerobee.protocol.headers.produce import SendMessageV2
from aerobee.protocol.headers.route import GetRoute

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

pytestmark = pytest.mark.slow

ANY_PORTS = ["--namesrv-port", "0", "--broker-port", "0", "--grpc-port", "-1", "--http-port", "-1"]


class Process:
    def __init__(self, *arguments: str, environment: dict[str, str] | None = None) -> None:
        self.popen = subprocess.Popen(
            [sys.executable, "-m", "aerobee.cli.main", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **(environment or {})},
        )

    def ready(self) -> dict[str, str]:
        assert self.popen.stdout is not None
        line = self.popen.stdout.readline()
        assert line.startswith("aerobee ready "), line + self.errors()
        return dict(re.findall(r"(\w+)=(\S+)", line))

    def errors(self) -> str:
        self.popen.kill()
        return self.popen.communicate()[1]

    def end(self, number: int = signal.SIGTERM) -> int:
        self.popen.send_signal(number)
        self.popen.communicate(timeout=20)
        return self.popen.returncode


@pytest.fixture
def start() -> Iterator[Callable[..., Process]]:
    started: list[Process] = []

    def run(*arguments: str, **more: Any) -> Process:
        started.append(Process(*arguments, **more))
        return started[-1]

    yield run
    for process in started:
        if process.popen.poll() is None:
            process.errors()


async def test_serve_says_where_it_listens_and_keeps_messages_over_a_restart(
    start: Callable[..., Process], tmp_path: Path
) -> None:
    data = str(tmp_path / "data")
    first = start("serve", "--data", data, *ANY_PORTS)
    where = first.ready()
    assert (where["grpc"], where["http"], where["data"]) == ("off", "off", data)
    pool = Pool()
    broker = await pool.get(where["broker"])
    sent = await broker.call(request(SendMessageV2(topic="orders", queue_id=0), b"kept"))
    assert sent.code == 0
    names = await pool.get(where["namesrv"])
    route = decode((await names.call(request(GetRoute(topic="orders")))).body, TopicRoute)
    assert [d.broker_addrs for d in route.broker_datas] == [{0: where["broker"]}]
    await pool.close()
    assert first.end(signal.SIGTERM) == 0

    second = start("serve", "--data", data, *ANY_PORTS)
    where = second.ready()
    pool = Pool()
    broker = await pool.get(where["broker"])
    pull = PullMessage(
        consumer_group="g", topic="orders", queue_id=0, queue_offset=0, sys_flag=4, subscription="*"
    )
    assert b"kept" in (await broker.call(request(pull))).body
    await pool.close()
    assert second.end(signal.SIGINT) == 0


def test_data_directory_in_use_is_refused_with_one_line(
    start: Callable[..., Process], tmp_path: Path
) -> None:
    data = str(tmp_path / "data")
    start("serve", "--data", data, *ANY_PORTS).ready()
    second = start("serve", "--data", data, *ANY_PORTS, "--log-level", "ERROR")
    out, errors = second.popen.communicate(timeout=20)
    assert (second.popen.returncode, out) == (1, "")
    assert len(errors.strip().splitlines()) == 1
    assert data in errors


def test_port_in_use_is_refused_with_one_line(start: Callable[..., Process], tmp_path: Path) -> None:
    where = start("serve", "--ephemeral", *ANY_PORTS).ready()
    port = where["broker"].rpartition(":")[2]
    second = start(
        "serve",
        "--ephemeral",
        "--namesrv-port",
        "-1",
        "--broker-port",
        port,
        "--grpc-port",
        "-1",
        "--log-level",
        "ERROR",
    )
    _, errors = second.popen.communicate(timeout=20)
    assert second.popen.returncode == 1
    assert len(errors.strip().splitlines()) == 1
    assert port in errors


async def test_broker_and_name_server_run_apart(start: Callable[..., Process], tmp_path: Path) -> None:
    names = start("namesrv", "--namesrv-port", "0", "--data", str(tmp_path / "names"))
    namesrv = names.ready()["namesrv"]
    broker = start(
        "broker",
        "--namesrv",
        namesrv,
        "--ephemeral",
        "--broker-port",
        "0",
        "--grpc-port",
        "-1",
        "--name",
        "b-7",
    )
    address = broker.ready()["broker"]
    pool = Pool()
    asked = await pool.get(namesrv)
    route = decode((await asked.call(request(GetRoute(topic="TBW102")))).body, TopicRoute)
    assert route.broker_datas[0].broker_addrs == {0: address}
    assert route.broker_datas[0].broker_name == "b-7"
    await pool.close()
    assert broker.end() == 0
    assert names.end() == 0


def test_settings_come_from_file_environment_and_flags(start: Callable[..., Process], tmp_path: Path) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text(
        "brokerClusterName = FromFile\nbrokerName=file\nbrokerRole=ASYNC_MASTER\nflushDiskType=SYNC_FLUSH\n"
        "deleteWhen=04\nhaListenPort=10912\n"
    )
    process = start(
        "serve", "--ephemeral", *ANY_PORTS, "--config", str(conf), "--name", "flag",
        environment={"AEROBEE_BROKER__CLUSTER": "FromEnvironment"},
    )  # fmt: skip
    process.ready()
    errors = process.errors()
    assert "topic=FromEnvironment " in errors
    assert "topic=flag " in errors
    assert errors.count("have no effect here") == 1
    assert "have no effect here: deleteWhen, haListenPort" in errors


def test_wrong_setting_is_wrong_usage(start: Callable[..., Process], tmp_path: Path) -> None:
    toml = tmp_path / "settings.toml"
    toml.write_text("[broker]\nautocreate_topics = true\n")
    process = start("serve", "--ephemeral", "--config", str(toml))
    _, errors = process.popen.communicate(timeout=20)
    assert process.popen.returncode == 2
    assert "did you mean 'auto_create_topics'?" in " ".join(errors.replace("│", " ").split())


def test_the_data_directory_of_a_broker_conf_is_used_unless_a_flag_names_another(
    start: Callable[..., Process], tmp_path: Path
) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text(f"storePathRootDir={tmp_path / 'file'}\n")
    first = start("serve", *ANY_PORTS, "--config", str(conf))
    assert first.ready()["data"] == str(tmp_path / "file")
    first.end()
    second = start("serve", *ANY_PORTS, "--config", str(conf), "--data", str(tmp_path / "flag"))
    assert second.ready()["data"] == str(tmp_path / "flag")
    second.end()
    assert (tmp_path / "file" / "store").is_dir()
    assert (tmp_path / "flag" / "store").is_dir()


def test_a_server_that_shall_check_accounts_and_cannot_read_them_does_not_start(
    start: Callable[..., Process], tmp_path: Path
) -> None:
    conf = tmp_path / "broker.conf"
    accounts = tmp_path / "plain_acl.yml"
    accounts.write_text("accounts:\n- accessKey: short\n")
    conf.write_text(f"aclEnable=true\nacl_file={accounts}\n")
    process = start("serve", "--ephemeral", "--config", str(conf))
    _, errors = process.popen.communicate(timeout=20)
    assert process.popen.returncode == 1
    assert "at least 7 characters" in " ".join(errors.replace("│", " ").split())


async def acknowledged(address: str, name: str, until: int) -> int:
    """Send one message after the other until that many were acknowledged or the broker goes."""
    pool = Pool()
    try:
        broker = await pool.get(address)
        for number in range(until):
            answer = await broker.call(request(SendMessageV2(topic=name, queue_id=0), b"%d" % number))
            if answer.code:
                return number
        return until
    except NetworkError:
        return number
    finally:
        await pool.close()


async def stored(address: str, name: str) -> int:
    pool = Pool()
    broker = await pool.get(address)
    answer = await broker.call(request(GetMaxOffset(topic=name, queue_id=0)))
    await pool.close()
    return answer.fields(OffsetResult).offset


async def test_what_was_acknowledged_survives_a_kill(start: Callable[..., Process], tmp_path: Path) -> None:
    data = str(tmp_path / "data")
    first = start("serve", "--data", data, *ANY_PORTS)
    where = first.ready()
    counts = [await acknowledged(where["broker"], f"topic-{n}", 20) for n in range(10)]
    assert counts == [20] * 10
    assert first.end(signal.SIGKILL) == -signal.SIGKILL

    where = start("serve", "--data", data, *ANY_PORTS).ready()
    assert [await stored(where["broker"], f"topic-{n}") for n in range(10)] == counts
    pool = Pool()
    names = await pool.get(where["namesrv"])
    for number in range(10):  # also those created in the second before the kill
        assert (await names.call(request(GetRoute(topic=f"topic-{number}")))).code == 0
    await pool.close()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
async def test_nothing_acknowledged_is_lost_when_the_broker_goes_under_load(
    start: Callable[..., Process], tmp_path: Path, number: int
) -> None:
    data = str(tmp_path / "data")
    first = start("serve", "--data", data, *ANY_PORTS)
    where = first.ready()
    senders = [asyncio.create_task(acknowledged(where["broker"], f"topic-{n}", 10**9)) for n in range(4)]
    while await stored(where["broker"], "topic-3") < 50:  # noqa: ASYNC110 - only the broker knows
        await asyncio.sleep(0.01)
    first.popen.send_signal(number)
    counts = await asyncio.gather(*senders)
    first.popen.communicate(timeout=20)

    where = start("serve", "--data", data, *ANY_PORTS).ready()
    kept = [await stored(where["broker"], f"topic-{n}") for n in range(4)]
    assert all(got >= said for got, said in zip(kept, counts, strict=True)), (kept, counts)


def test_tls_required_without_a_certificate_does_not_start(
    start: Callable[..., Process], tmp_path: Path
) -> None:
    process = start("serve", "--data", str(tmp_path / "data"), *ANY_PORTS, "--set", "tls_required=true")
    out, errors = process.popen.communicate(timeout=20)
    assert (process.popen.returncode, out) == (2, "")
    (line,) = errors.splitlines()
    assert "'tls_required' needs a certificate: give tls_cert and tls_key" in line


@pytest.mark.parametrize("command", ["serve", "namesrv"])
def test_a_closed_terminal_stops_it_like_any_other_signal(
    start: Callable[..., Process], tmp_path: Path, command: str
) -> None:
    ports = ANY_PORTS if command == "serve" else ["--namesrv-port", "0"]
    process = start(command, "--data", str(tmp_path / "data"), *ports)
    process.ready()
    assert process.end(signal.SIGHUP) == 0


def test_a_port_that_is_taken_is_told_alone_and_before_the_store_is_opened(
    start: Callable[..., Process], tmp_path: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        process = start("serve", "--data", str(tmp_path / "data"), "--namesrv-port", "0", "--broker-port", "0",
                        "--grpc-port", "-1", "--http-port", str(port))  # fmt: skip
        _, told = process.popen.communicate(timeout=20)
    assert process.popen.returncode == 1
    assert told.startswith(f"aerobee: cannot listen on 127.0.0.1:{port}: ")
    assert told.count("\n") == 1
    assert not (tmp_path / "data").exists()


def test_the_last_line_of_a_server_says_that_it_has_stopped(
    start: Callable[..., Process], tmp_path: Path
) -> None:
    process = start("namesrv", "--data", str(tmp_path / "data"), "--namesrv-port", "0")
    process.ready()
    process.popen.send_signal(signal.SIGTERM)
    _, told = process.popen.communicate(timeout=20)
    assert told.splitlines()[-1].endswith("aerobee.server stopped")
