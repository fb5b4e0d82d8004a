# SPDX-License-Identifier: Apache-2.0
"""The pytest plugin as a user meets it: a test file of their own, no conftest, no configuration."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

EXAMPLE = Path(__file__).parents[2] / "examples" / "test_with_pytest.py"

SAMPLE = '''
import asyncio

import pytest

from aerobee import Message, Producer, PullConsumer, PushConsumer
from aerobee.testing import eventually

seen_topics, seen_groups = [], []


async def test_a_topic_of_its_own(aerobee_server, aerobee_topic, aerobee_group):
    seen_topics.append(aerobee_topic)
    seen_groups.append(aerobee_group)
    assert aerobee_group.startswith("test_a_topic_of_its_own_")
    async with Producer(aerobee_server.namesrv, group="g") as producer:
        assert len(await producer.queues(aerobee_topic)) == 4


async def test_each_test_has_another_topic_on_the_same_server(aerobee_server, aerobee_topic, aerobee_group):
    assert aerobee_topic not in seen_topics
    assert aerobee_group not in seen_groups
    consumer = PullConsumer(aerobee_server.namesrv, group=aerobee_group, topics={aerobee_topic: "*"}, start="first")
    async with Producer(aerobee_server.namesrv, group="g") as producer:
        await producer.send(Message(aerobee_topic, b"x"))
    async with consumer:
        assert [message.body for message in await consumer.poll(timeout_ms=5_000)] == [b"x"]
    assert aerobee_server.clock.now() > 0


@pytest.mark.parametrize("again", [False, True])
async def test_fixed_names_on_a_server_of_its_own(aerobee_fresh_server, aerobee_server, again):
    server = aerobee_fresh_server
    assert server.namesrv != aerobee_server.namesrv
    assert server.messages_of("orders") == []
    async with Producer(server.namesrv, group="g") as producer:
        await producer.send(Message("orders", b"x"))
    assert [message.body for message in server.messages_of("orders")] == [b"x"]


async def test_a_delayed_message_comes_when_the_clock_is_moved(aerobee_manual_server):
    server = aerobee_manual_server
    server.create_topic("later")
    got = []

    async def handle(message):
        got.append(message.body)

    async with Producer(server.namesrv, group="g", clock=server.clock) as producer:
        await producer.send(Message("later", b"level", delay_level=16))
        await producer.send(Message("later", b"timer", deliver_at=server.clock.now() + 45 * 60_000))
        async with PushConsumer(server.namesrv, group="c", topics={"later": "*"}, handler=handle, start="first",
                                clock=server.clock):
            server.clock.advance(minutes=29)
            assert got == []
            server.clock.advance(minutes=2)
            await eventually(lambda: got == [b"level"])
            server.clock.advance(minutes=20)
            await eventually(lambda: got == [b"level", b"timer"])


async def test_every_retry_of_a_hopeless_message_up_to_the_dead_letters(aerobee_manual_server):
    """RocketMQ's delays: 10 s, 30 s, 1 min, 2 min ... 2 h: four and three quarter hours altogether."""
    server = aerobee_manual_server
    attempts = []

    async def fail(message):
        attempts.append(message.attempt)
        raise RuntimeError("never")

    async with Producer(server.namesrv, group="g", clock=server.clock) as producer:
        await producer.send(Message("doomed", b"x"))
    async with PushConsumer(server.namesrv, group="c", topics={"doomed": "*"}, handler=fail, start="first",
                            clock=server.clock):
        for attempt in range(1, 18):
            await eventually(lambda: attempts == list(range(1, attempt + 1)))
            await eventually(lambda: server.lag("c").delayed == 1 or server.lag("c").dead == 1)
            server.clock.advance(hours=2, seconds=1)
        await eventually(lambda: server.lag("c").dead == 1)
    assert attempts == list(range(1, 18))
'''


def run_pytest(
    directory: Path, file: Path, mode: str, *options: str, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Away from this repository: the entry point alone brings the fixtures."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    environment = {**kept, **environment}
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-W", "error", "-o", f"asyncio_mode={mode}",
         "-o", "asyncio_default_fixture_loop_scope=function", "-p", "no:cacheprovider",
         "--rootdir", str(directory), "--durations=0", *options, str(file)],
        cwd=directory, env=environment, capture_output=True, text=True, timeout=300,
    )  # fmt: skip


def test_a_users_test_file_finds_the_fixtures_and_moves_time(tmp_path: Path) -> None:
    file = tmp_path / "test_sample.py"
    file.write_text(SAMPLE)
    done = run_pytest(tmp_path, file, "auto")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "6 passed" in done.stdout


def test_the_documented_example_works(tmp_path: Path) -> None:
    file = tmp_path / EXAMPLE.name
    file.write_text(EXAMPLE.read_text())
    done = run_pytest(tmp_path, file, "strict")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "3 passed" in done.stdout


ON_APACHE = """
import pytest


@pytest.fixture(scope="session")
def aerobee_apache_settings():
    return {"recallMessageEnable": "true"}


def test_it(aerobee_apache_server):
    pass
"""

# A name server that starts, and a broker that prints its settings and ends.
HALF_A_ROCKETMQ = """#!/bin/sh
for settings; do :; done
case $settings in
    *namesrv.conf) echo 'boot success'; exec sleep 60;;
    *) cat "$settings"; exit 3;;
esac
"""


def test_without_a_java_a_test_on_apaches_broker_is_skipped(tmp_path: Path) -> None:
    file = tmp_path / "test_apache.py"
    file.write_text(ON_APACHE)
    done = run_pytest(tmp_path, file, "auto", PATH="", JAVA_HOME="")
    assert "1 skipped" in done.stdout, done.stdout + done.stderr


def test_with_one_a_broker_that_does_not_start_fails_its_test(tmp_path: Path) -> None:
    file = tmp_path / "test_apache.py"
    file.write_text(ON_APACHE)
    with_java(tmp_path, HALF_A_ROCKETMQ)
    done = run_pytest(tmp_path, file, "auto", ROCKETMQ_HOME=str(tmp_path), JAVA_HOME=str(tmp_path))
    assert "1 error" in done.stdout, done.stdout + done.stderr
    assert "Apache's broker ended with code 3" in done.stdout
    assert "recallMessageEnable=true" in done.stdout, "the settings of the test's own fixture"


# Two neighbours for each of two workers, as xdist gives them out first: one of either kind.
IN_PARALLEL = """
import os
import pathlib

import pytest


@pytest.mark.parametrize("kind", ["", "apache_", "", "apache_"])
def test_a_server(request, kind):
    server = request.getfixturevalue(f"aerobee_{kind}server")
    server.create_topic("orders")  # the same name, wherever it runs
    pathlib.Path(os.environ["PYTEST_XDIST_WORKER"]).with_suffix(".address").write_text(server.namesrv)
"""

# It ends at once, and leaves a file behind for each time it was started.
COUNTED_STARTS = """#!/bin/sh
touch "$STARTS/start.$$"
exit 3
"""


@pytest.mark.parametrize(("how", "servers"), [("load", 2), ("loadfile", 1)])
def test_each_worker_of_xdist_has_servers_of_its_own(tmp_path: Path, how: str, servers: int) -> None:
    pytest.importorskip("xdist")
    file = tmp_path / "test_parallel.py"
    file.write_text(IN_PARALLEL)
    rocketmq = {"ROCKETMQ_HOME": str(tmp_path), "JAVA_HOME": str(tmp_path), "STARTS": str(tmp_path)}
    with_java(tmp_path, COUNTED_STARTS)
    done = run_pytest(tmp_path, file, "auto", "-n", "2", "--dist", how, **rocketmq)
    assert "2 failed, 2 passed" in done.stdout, done.stdout + done.stderr
    assert len({found.read_text() for found in tmp_path.glob("*.address")}) == servers
    assert len(list(tmp_path.glob("start.*"))) == servers


def with_java(home: Path, program: str) -> None:
    """A machine that has everything, were it not for its Java."""
    for folder in ("bin", "lib"):
        (home / folder).mkdir()
    (home / "lib" / "rocketmq-broker-5.3.3.jar").touch()
    (home / "bin" / "java").write_text(program)
    (home / "bin" / "java").chmod(0o700)


def test_the_plugin_costs_nothing_until_a_fixture_is_used() -> None:
    script = (
        "import sys, aerobee.testing.plugin\n"
        "print([name for name in ('aerobee.server', 'aerobee.client.session.session', 'uvloop') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "[]", done
