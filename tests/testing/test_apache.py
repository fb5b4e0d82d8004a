# SPDX-License-Identifier: Apache-2.0
"""What keeps a machine from running Apache's broker is said; tests/interop runs it."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from aerobee.testing import apache
from aerobee.testing.apache import ApacheServer, NotHere, class_path

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


def test_a_broker_gets_ports_with_room_around_them() -> None:
    namesrv, broker = apache._free_ports()
    assert abs(namesrv - broker) > 3
    assert all(apache._is_free(broker + step) for step in (-2, 0, 1))
