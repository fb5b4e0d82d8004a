# SPDX-License-Identifier: Apache-2.0
"""Metadata files survive a crash at any step, a torn file and a full disk."""

from __future__ import annotations

import errno
import json
import logging
import os
from typing import TYPE_CHECKING, Any

import pytest

from aerobee.errors import DiskFull, StoreError
from aerobee.store import platform
from aerobee.store.metadata import JsonFile, PrivateFile

if TYPE_CHECKING:
    from pathlib import Path

OLD, NEW, NEWER = b'{"v":1}', b'{"v":2}', b'{"v":3}'


class Crash(BaseException):
    """The process ends here; BaseException, so no cleanup of ours runs by way of `except OSError`."""


@pytest.fixture
def file(tmp_path: Path) -> JsonFile:
    return JsonFile(tmp_path / "config" / "topics.json", json.loads)


def test_a_missing_file_loads_as_none(file: JsonFile) -> None:
    assert file.load() is None


@pytest.mark.seed("S004-55")
def test_what_was_saved_is_loaded_and_the_previous_text_is_kept_as_bak(file: JsonFile) -> None:
    file.save(OLD)
    assert not file.backup.exists()
    file.save(NEW)
    assert file.load() == NEW
    assert file.backup.read_bytes() == OLD
    assert sorted(p.name for p in file.path.parent.iterdir()) == ["topics.json", "topics.json.bak"]


def test_a_large_text_is_written_whole(file: JsonFile) -> None:
    data = json.dumps({"k": "x" * 3_000_000}).encode()
    file.save(data)
    assert file.load() == data


STEPS = ("open", "write", "fsync", "close", "replace")


@pytest.mark.seed("S004-55", "S004-56", "S004-57")
@pytest.mark.parametrize("name", STEPS)
@pytest.mark.parametrize("call", [0, 1, 2])
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_crash_at_any_step_leaves_the_old_or_the_new_text(
    file: JsonFile, monkeypatch: pytest.MonkeyPatch, name: str, call: int, when: str
) -> None:
    file.save(OLD)
    file.save(NEW)
    real, calls = getattr(os, name), 0

    def cut(*args: Any, **kwargs: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls - 1 != call:
            return real(*args, **kwargs)
        if when == "after":
            real(*args, **kwargs)
        raise Crash

    with monkeypatch.context() as patch:
        patch.setattr(os, name, cut)
        try:
            file.save(NEWER)
        except Crash:
            pass
        else:
            assert calls <= call  # this step happens less often: the save ended
    assert JsonFile(file.path, json.loads).load() in (NEW, NEWER)
    file.save(OLD)  # and the next save works
    assert file.load() == OLD


@pytest.mark.seed("S004-56", "S004-57")
@pytest.mark.seed("S004-55", "S004-57")
def test_a_text_is_on_the_disk_before_it_takes_the_name_and_the_names_are_before_the_save_ends(
    file: JsonFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    file.save(OLD)
    draft, told = file.path.with_name("topics.json.tmp"), list[Any]()

    def data(fd: int) -> None:
        told.append((os.path.samestat(os.fstat(fd), draft.stat()), draft.read_bytes()))
        assert (file.path.read_bytes(), file.backup.exists()) == (OLD, False), "the old one serves meanwhile"

    def names(path: Any) -> None:
        told.append((path, file.path.read_bytes(), file.backup.read_bytes()))

    monkeypatch.setattr(platform, "sync_data", data)
    monkeypatch.setattr(platform, "sync_names", names)
    file.save(NEW)
    assert told == [(True, NEW), (file.path.parent, NEW, OLD)]


@pytest.mark.parametrize("size", range(len(NEW)))
def test_a_torn_file_is_kept_aside_and_the_backup_is_used(
    file: JsonFile, caplog: pytest.LogCaptureFixture, size: int
) -> None:
    file.save(OLD)
    file.save(NEW)
    file.path.write_bytes(NEW[:size])
    with caplog.at_level(logging.WARNING):
        assert file.load() == OLD
    assert file.path.with_name("topics.json.bad").read_bytes() == NEW[:size]
    assert "kept as topics.json.bad" in caplog.text
    file.save(NEWER)
    assert file.backup.read_bytes() == OLD, "a broken file must not replace a good backup"


def test_both_broken_loads_as_none(file: JsonFile) -> None:
    file.save(OLD)
    file.save(NEW)
    file.path.write_bytes(b"{")
    file.backup.write_bytes(b"\xff")
    assert file.load() is None


def test_the_default_check_accepts_javas_bare_integer_keys_and_refuses_torn_text(tmp_path: Path) -> None:
    file = JsonFile(tmp_path / "consumerOffset.json")
    file.save(b'{"offsetTable":{"t@g":{0:12}}}\n')
    assert file.load() == b'{"offsetTable":{"t@g":{0:12}}}\n'
    file.path.write_bytes(b'{"offsetTable":{"t@g":{0:1')
    assert file.load() is None


@pytest.mark.seed("S004-55")
@pytest.mark.parametrize(
    ("number", "expected"), [(errno.ENOSPC, DiskFull), (errno.EDQUOT, DiskFull), (errno.EIO, StoreError)]
)
def test_a_failed_save_says_why_and_leaves_the_old_text(
    file: JsonFile, monkeypatch: pytest.MonkeyPatch, number: int, expected: type[StoreError]
) -> None:
    file.save(OLD)

    def refuse(handle: int, data: object) -> int:
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", refuse)
        with pytest.raises(expected, match=r"topics\.json") as caught:
            file.save(NEW)
    assert type(caught.value) is expected
    assert file.load() == OLD
    assert [p.name for p in file.path.parent.iterdir()] == ["topics.json"]


def test_nothing_of_a_longer_draft_that_was_left_behind_is_in_the_new_text(file: JsonFile) -> None:
    file.save(OLD)
    file.path.with_name("topics.json.tmp").write_bytes(b"x" * 100)
    file.save(NEW)
    assert file.path.read_bytes() == NEW


def test_a_file_that_cannot_be_read_is_no_missing_one(file: JsonFile) -> None:
    """Else a broker would start without its topics, and save that."""
    file.save(OLD)
    file.path.unlink()
    file.path.mkdir()
    with pytest.raises(StoreError, match=r"cannot read .*topics\.json: Is a directory"):
        file.load()


def test_whatever_a_check_raises_the_text_is_not_used(tmp_path: Path) -> None:
    def check(data: bytes) -> None:
        if data == NEW:
            raise KeyError("v")

    file = JsonFile(tmp_path / "topics.json", check)
    file.save(OLD)
    file.save(NEW)
    assert file.load() == OLD


def test_secrets_are_their_owners_alone_whoever_may_read_the_folder(tmp_path: Path) -> None:
    folder = tmp_path / "config"
    folder.mkdir()
    folder.chmod(0o750)
    file = PrivateFile(folder / "accounts.json")
    draft = folder / "accounts.json.tmp"
    draft.write_bytes(b"x" * 100)
    draft.chmod(0o666)
    with draft.open("rb") as spy:
        for text in (OLD, NEW):
            file.save(text)
        assert spy.read() == b"x" * 100, "who has the old draft open sees none of the new"
    assert (file.load(), file.backup.read_bytes()) == (NEW, OLD)
    assert [path.stat().st_mode & 0o777 for path in (file.path, file.backup)] == [0o600, 0o600]
