# SPDX-License-Identifier: Apache-2.0
"""Others may not read the files, whatever umask the process has."""

import os
import stat
from collections.abc import Iterator

import pytest

from aerobee.store.metadata import JsonFile
from aerobee.store.timer_wheel import TimerWheel


@pytest.fixture(params=[0o000, 0o022, 0o077])
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def everything_written(kit, root):
    """A store with all kinds of files in it, closed."""
    store = kit.open(root)
    for n in range(40):
        store.append(kit.message(body=bytes(4000), text=f"KEYS\x01k{n}\x02", queue_id=n % 2))
    store.flush()
    file = JsonFile(root / "config" / "topics.json")
    file.save(b"{}")
    file.save(b"{ }")
    now = kit.clock.now()
    wheel = TimerWheel.open(root, now)
    wheel.add(now + 5_000, 0, 100, 7, now)
    wheel.flush()
    wheel.close()
    modes = {path: stat.S_IMODE(path.lstat().st_mode) for path in (root, *root.rglob("*"))}
    store.close()
    return modes


@pytest.mark.parametrize(
    ("access", "file_mode", "directory_mode"), [("none", 0o600, 0o700), ("read", 0o640, 0o750)]
)
def test_files_and_directories_have_the_mode_of_the_setting(
    kit, tmp_path, umask, access, file_mode, directory_mode
):
    kit.config = type(kit.config)(
        group_access=access, commit_log_segment_bytes=1 << 16, index_slots=9, index_entries=99
    )
    data = tmp_path / "new" / "data"
    modes = everything_written(kit, data / "store")
    for parent in (data, data.parent):
        modes[parent] = stat.S_IMODE(parent.stat().st_mode)
    names = {path.name for path in modes}
    assert {
        "lock",
        "abort",
        "checkpoint",
        "timerwheel",
        "timercheck",
        "topics.json",
        "topics.json.bak",
    } < names
    wrong = {
        path: oct(mode)
        for path, mode in modes.items()
        if mode != (directory_mode if path.is_dir() else file_mode)
    }
    assert not wrong


def test_a_store_that_was_open_to_everybody_is_closed_when_it_is_opened(kit, tmp_path):
    root = tmp_path / "old"
    root.mkdir(mode=0o755)
    everything_written(kit, root)
    assert stat.S_IMODE(root.stat().st_mode) == 0o700
