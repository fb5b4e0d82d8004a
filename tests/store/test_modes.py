# SPDX-License-Identifier: Apache-2.0
"""Others may not read the files, whatever umask the process has."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from aerobee.store import modes, platform
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
    found = {path: stat.S_IMODE(path.lstat().st_mode) for path in (root, *root.rglob("*"))}
    store.close()
    return found


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
    found = everything_written(kit, data / "store")
    for parent in (data, data.parent):
        found[parent] = stat.S_IMODE(parent.stat().st_mode)
    names = {path.name for path in found}
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
        for path, mode in found.items()
        if mode != (directory_mode if path.is_dir() else file_mode)
    }
    assert not wrong


def test_a_store_that_was_open_to_everybody_is_closed_when_it_is_opened(kit, tmp_path):
    root = tmp_path / "old"
    root.mkdir(mode=0o755)
    everything_written(kit, root)
    assert stat.S_IMODE(root.stat().st_mode) == 0o700


@pytest.mark.parametrize(("folder", "file"), [(0o700, 0o600), (0o750, 0o640), (0o755, 0o600), (0o770, 0o600)])
def test_only_a_folder_whose_group_may_read_and_nobody_else_opens_what_is_made_in_it(
    tmp_path: Path, umask: int, folder: int, file: int
) -> None:
    (tmp_path / "made").mkdir()
    (tmp_path / "made").chmod(folder)
    os.close(modes.open_file(tmp_path / "made" / "file"))
    modes.make_directory(tmp_path / "made" / "sub")
    assert stat.S_IMODE((tmp_path / "made" / "file").stat().st_mode) == file
    assert stat.S_IMODE((tmp_path / "made" / "sub").stat().st_mode) == (0o750 if file == 0o640 else 0o700)


def test_a_folder_that_another_user_owns_stays_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tmp_path.chmod(0o755)
    monkeypatch.setattr(platform, "owns", lambda path: False)
    modes.set_access(tmp_path, "none")
    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o755
    monkeypatch.setattr(platform, "owns", lambda path: True)
    modes.set_access(tmp_path, "none")
    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o700


def test_a_file_in_the_place_of_a_folder_is_told(tmp_path: Path) -> None:
    modes.make_directory(tmp_path / "folder")
    modes.make_directory(tmp_path / "folder")
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(FileExistsError):
        modes.make_directory(tmp_path / "file")
