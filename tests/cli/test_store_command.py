# SPDX-License-Identifier: Apache-2.0
"""`aerobee store check`: what it prints, and its exit code."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from aerobee.cli.main import run
from aerobee.clock import ManualClock
from aerobee.protocol.message import Record
from aerobee.settings import StoreConfig
from aerobee.store.message_store import MessageStore

if TYPE_CHECKING:
    from pathlib import Path

SIZES = {
    "commit_log_segment_bytes": 1 << 16,
    "consume_queue_units": 16,
    "index_slots": 64,
    "index_entries": 256,
}


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data directory with twenty messages, and the settings it was made with."""
    for name, value in SIZES.items():
        monkeypatch.setenv(f"AEROBEE_STORE__{name.upper()}", str(value))
    store = MessageStore.open(tmp_path / "data/store", StoreConfig(**SIZES), ManualClock())  # type: ignore[arg-type]
    for n in range(20):
        store.append(Record("orders", b"%d" % n, f"KEYS\x01k{n}\x02"))
    store.close()
    return tmp_path / "data"


def checked(capfd: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    code = run(["store", "check", *arguments])
    return code, capfd.readouterr().out


def queue_file(data: Path) -> Path:
    return data / "store/consumequeue/orders/0" / ("0" * 20)


def test_a_sound_store(data: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for directory in (data, data / "store"):
        code, out = checked(capfd, str(directory))
        assert code == 0
        assert "20 messages in 1 files" in out
        assert out.splitlines()[-1].split() == ["result", "sound"]


def test_damage_is_shown_and_repaired(data: Path, capfd: pytest.CaptureFixture[str]) -> None:
    queue_file(data).write_bytes(b"")
    code, out = checked(capfd, str(data))
    assert code == 1
    assert "damaged; --repair makes queues and index again" in out
    assert out.splitlines()[-1].split() == ["orders", "0", "0", "16", "0", "0"]
    code, out = checked(capfd, "--repair", str(data))
    assert (code, out.splitlines()[-1].split()) == (0, ["result", "repaired"])
    assert checked(capfd, str(data))[0] == 0


def test_json(data: Path, capfd: pytest.CaptureFixture[str]) -> None:
    queue_file(data).write_bytes(b"")
    code, out = checked(capfd, "--json", str(data))
    report: dict[str, Any] = json.loads(out)
    assert (code, report["sound"], report["repaired"]) == (1, False, False)
    assert report["queues"]["damaged"] == [
        {"topic": "orders", "queue": 0, "first_offset": 0, "missing": 16, "wrong": 0, "surplus": 0}
    ]
    assert report["log"]["messages"] == 20


def test_a_directory_without_a_store(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["store", "check", str(tmp_path)]) == 1
    assert "holds no store" in capfd.readouterr().err
