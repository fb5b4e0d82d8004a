# SPDX-License-Identifier: Apache-2.0
"""What keeps a machine from running Apache's broker is said, and what keeps it from starting fails; tests/interop runs
it."""

from __future__ import annotations

import shutil
import stat
from typing import TYPE_CHECKING

import pytest

from aerobee.testing import apache
from aerobee.testing.apache import ApacheServer, DidNotStart, NotHere, class_path

if TYPE_CHECKING:
    from pathlib import Path


def test_without_a_java_it_says_so_and_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr(shutil, "which", lambda *_, **__: None)
    server = ApacheServer()
    with pytest.raises(NotHere, match="needs a Java"):
        server.__enter__()
    assert not server._home.exists()


def test_its_jars_are_those_of_rocketmq_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("ROCKETMQ_HOME", str(tmp_path))
    with pytest.raises(NotHere, match=r"which has no lib/rocketmq-broker-\*\.jar"):
        class_path()
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "rocketmq-broker-5.3.3.jar").touch()
    assert class_path() == f"{tmp_path}/lib/*"


def test_without_maven_it_says_where_jars_may_come_from(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ROCKETMQ_HOME", raising=False)
    monkeypatch.setattr(shutil, "which", lambda *_, **__: None)
    with pytest.raises(NotHere, match="set ROCKETMQ_HOME to an unpacked RocketMQ, or install Maven"):
        class_path()


# -- everything is here, but it does not start ---------------------------------------------------------------


@pytest.fixture
def all_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Jars, and room for a `java` and a `mvn` that do what a test writes."""
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "rocketmq-broker-5.3.3.jar").touch()
    monkeypatch.setenv("ROCKETMQ_HOME", str(tmp_path))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    (tmp_path / "bin").mkdir()
    return tmp_path / "bin"


def write_program(path: Path, text: str) -> None:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


def test_one_that_ends_at_once_failed_and_is_not_missing(all_there: Path) -> None:
    write_program(all_there / "java", "echo 'Address already in use'; exit 1")
    server = ApacheServer()
    with pytest.raises(DidNotStart, match=r"Apache's namesrv ended with code 1.*Address already in use"):
        server.__enter__()
    assert not server._home.exists()


def test_one_that_is_slow_failed_and_is_not_missing(all_there: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apache, "START_MS", 100)
    write_program(all_there / "java", "echo 'loading'; exec sleep 60")
    with pytest.raises(DidNotStart, match=r"namesrv has not started within 100 ms.*busy.*loading"):
        ApacheServer().__enter__()


def test_a_maven_that_fails_is_not_missing(all_there: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ROCKETMQ_HOME")
    write_program(all_there / "mvn", "echo 'no route to host'; exit 1")
    monkeypatch.setenv("PATH", str(all_there), prepend=":")
    with pytest.raises(
        DidNotStart, match=r"Maven does not get RocketMQ 5\.3\.3.*ROCKETMQ_HOME.*no route to host"
    ):
        class_path()


def test_a_broker_gets_ports_with_room_around_them() -> None:
    namesrv, broker = apache._free_ports()
    assert abs(namesrv - broker) > 3
    assert all(apache._is_free(broker + step) for step in (-2, 0, 1))
