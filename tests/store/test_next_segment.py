# SPDX-License-Identifier: Apache-2.0
"""The next file of the commit log is made ahead, and nothing depends on whether it was."""

import shutil

import pytest

from aerobee.store import commit_log, next_segment

pytestmark = pytest.mark.slow

SEGMENT = 16 << 20
BODY = bytes(3 << 20)


def log_files(root):
    return sorted(int(path.name) for path in (root / "commitlog").iterdir())


def nearly_full(kit):
    """A store whose first file has less than a quarter left, and whose next one is made."""
    store = kit.open(commit_log_segment_bytes=SEGMENT)
    for _ in range(3):
        store.append(kit.message(body=BODY))
    store.tick(kit.clock.now())
    assert log_files(kit.root) == [0]
    store.append(kit.message(body=BODY))
    store.tick(kit.clock.now())
    store._log._next._made.result()
    return store


def test_the_next_file_is_made_before_the_current_one_is_full(kit):
    nearly_full(kit)
    assert log_files(kit.root) == [0, SEGMENT]
    assert (kit.root / "commitlog" / f"{SEGMENT:020d}").stat().st_size == SEGMENT


def test_the_loop_does_not_wait_for_the_name_of_a_file_made_ahead(kit, monkeypatch):
    store = nearly_full(kit)
    synced: list[object] = []
    monkeypatch.setattr(
        commit_log, "sync_directory", lambda path: path.parent == kit.root and synced.append(path)
    )
    store.append(kit.message(body=BODY))
    store.append(kit.message(body=BODY))
    assert store.log_max > SEGMENT
    assert synced == []
    assert kit.bodies(store) == [BODY] * 6


def test_a_file_that_was_not_needed_is_gone_after_a_clean_stop(kit):
    nearly_full(kit).close()
    assert log_files(kit.root) == [0]


def test_a_file_made_ahead_of_a_kill_is_no_part_of_the_log(kit, tmp_path):
    store = nearly_full(kit)
    end, killed = store.log_max, tmp_path / "killed"
    shutil.copytree(kit.root, killed)
    store.close()
    shutil.rmtree(kit.root)
    shutil.copytree(killed, kit.root)
    again = kit.open(commit_log_segment_bytes=SEGMENT)
    assert (again.log_max, log_files(kit.root)) == (end, [0])
    for _ in range(2):
        again.append(kit.message(body=BODY))
    assert kit.bodies(again) == [BODY] * 6


def test_a_file_that_the_disk_refused_is_tried_again_when_it_is_needed(kit, monkeypatch):
    def refuse(path):
        assert path.parent == kit.root
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(next_segment, "sync_directory", refuse)
        store = nearly_full(kit)
        assert log_files(kit.root) == [0]
    store.append(kit.message(body=BODY))
    store.append(kit.message(body=BODY))
    assert log_files(kit.root) == [0, SEGMENT]
