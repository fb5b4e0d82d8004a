# SPDX-License-Identifier: Apache-2.0
"""What is synced, and in which order: a name after its bytes, a word after the deed it tells of. No power is cut here;
tests/chaos does that. Each test says what a loss of power may not find."""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path
from typing import Any

import pytest

from aerobee.errors import DiskFull, StoreError
from aerobee.store import platform
from aerobee.store.lock_file import StoreLock
from aerobee.store.metadata import JsonFile
from aerobee.store.recovery import Recovery
from aerobee.store.segment import Segment
from aerobee.store.timer_wheel import TimerWheel
from tests.own_files import is_under

FIRST = f"{0:020}"


class Order:
    """Files, folders (with a slash at their end) and names given or taken, in the order it happened."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.seen: list[str] = []

    def name(self, path: Path | str) -> str:
        return os.path.relpath(path, self.root)

    def clear(self) -> None:
        self.seen.clear()

    def before(self, one: str, other: str) -> bool:
        """The last of one, before the first of the other that follows it."""
        return self.seen.index(one) < len(self.seen) - 1 - self.seen[::-1].index(other)


@pytest.fixture
def order(kit: Any, monkeypatch: pytest.MonkeyPatch) -> Order:
    order = Order(kit.root)

    def data(fd: int) -> None:
        if is_under(kit.root, fd):
            order.seen.append(order.name(os.readlink(f"/proc/self/fd/{fd}").removesuffix(" (deleted)")))

    def names(path: Any) -> None:
        if kit.root.is_relative_to(path) or Path(path).is_relative_to(kit.root):
            order.seen.append(f"{order.name(path)}/")

    def gone(path: Any, *more: Any, **named: Any) -> None:
        if Path(path).is_relative_to(kit.root):
            order.seen.append(f"-{order.name(path)}")
        unlink(path, *more, **named)

    def renamed(old: Any, new: Any) -> None:
        if Path(new).is_relative_to(kit.root):
            order.seen.append(f"{order.name(old)}>{order.name(new)}")
        replace(old, new)

    unlink, replace = os.unlink, os.replace
    monkeypatch.setattr(platform, "sync_data", data)

    def everything(root: Path) -> None:
        if root == kit.root:
            order.seen.append("everything")

    monkeypatch.setattr(platform, "sync_names", names)
    monkeypatch.setattr(platform, "sync_all", everything)
    monkeypatch.setattr(os, "unlink", gone)
    monkeypatch.setattr(os, "replace", renamed)
    return order


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


# -- a store --------------------------------------------------------------------------------------------------------


def test_the_folders_of_a_new_store_have_names_that_stay(kit: Any, order: Order) -> None:
    kit.open()
    assert {"../", "./", "commitlog/", "index/"} <= set(order.seen)


def test_that_it_runs_is_on_disk_before_anything_is_written(kit: Any, order: Order) -> None:
    StoreLock(kit.root).mark_running()
    assert order.seen[-1] == "./", "the name of the file that says so"
    assert (kit.root / "abort").read_text() == str(os.getpid())


def test_a_checkpoint_is_the_last_word_about_all_it_tells_of(kit: Any, order: Order) -> None:
    store = kit.open()
    store.append(kit.message("a", text="KEYS\x01k\x02"))
    order.clear()
    store.flush()
    (index,) = (f"index/{name}" for name in os.listdir(kit.root / "index"))
    told = [f"commitlog/{FIRST}", index, f"consumequeue/a/0/{FIRST}", "consumequeue.sums.tmp"]
    folders = ["consumequeue/", "consumequeue/a/", "consumequeue/a/0/"]
    assert {*told, *folders} <= set(order.seen)
    last = max(order.seen.index(each) for each in (*told, *folders))
    assert last < order.seen.index("checkpoint")
    assert order.seen.index("consumequeue.sums.tmp>consumequeue.sums") < order.seen.index("checkpoint")
    assert order.seen[-2:] == ["checkpoint", "./"], "a new file's own name too"
    order.clear()
    store.append(kit.message("a", text="KEYS\x01k\x02"))
    store.flush()
    assert order.seen == [
        f"commitlog/{FIRST}", index, f"consumequeue/a/0/{FIRST}", "consumequeue.sums", "checkpoint",
    ]  # fmt: skip


def test_every_file_that_is_synced_is_open_for_writing(kit: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows flushes no other."""
    modes: dict[str, int] = {}

    def sync(fd: int) -> None:
        if is_under(kit.root, fd):
            path = Path(os.readlink(f"/proc/self/fd/{fd}"))
            modes[path.relative_to(kit.root).parts[0]] = fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_ACCMODE

    monkeypatch.setattr(platform, "sync_data", sync)
    wheel = TimerWheel.open(kit.root, 1_000_000)
    wheel.add(1_060_000, 100, 10, 0, 1_000_000)
    wheel.close()
    store = kit.open()
    for _ in range(2):  # sums are begun anew, then added to
        store.append(kit.message(text="KEYS\x01k\x02"))
        store.flush()
    assert {"timerlog", "timerwheel", "config", "commitlog", "consumequeue", "index", "checkpoint"} < set(
        modes
    )
    assert [name for name, mode in modes.items() if mode == os.O_RDONLY] == []


def test_nothing_is_left_open_by_a_checkpoint(kit: Any, order: Order) -> None:
    store = kit.open()
    for n in range(3):
        store.append(kit.message(text="KEYS\x01k\x02"))
        store.flush()
        if n == 0:
            before = open_files()
    assert open_files() == before


def test_after_a_crash_the_first_checkpoint_syncs_everything(kit: Any, order: Order) -> None:
    store = kit.open()
    store.append(kit.message())
    store.flush()
    assert "everything" not in order.seen, "what is written by this run is known"
    kit.crash(store)
    order.clear()
    store = kit.open()
    store.append(kit.message())
    store.flush()
    assert order.before("everything", "checkpoint")
    order.clear()
    store.append(kit.message())
    store.flush()
    assert "everything" not in order.seen
    store.close()
    order.clear()
    kit.open().flush()
    assert "everything" not in order.seen, "after a clean stop nothing is unknown"


@pytest.mark.parametrize(("files", "folders", "whole"), [(32, 32, False), (32, 33, True), (33, 32, True)])
def test_very_many_files_and_folders_are_synced_at_once(
    kit: Any, order: Order, files: int, folders: int, whole: bool
) -> None:
    store = kit.open()
    store.flush()
    order.clear()
    store._queues.written_paths = {f"/x{n}" for n in range(files)}  # gone since, with their topics
    store._queues.files.changed_directories = {f"/y{n}" for n in range(folders)}
    store.flush()
    assert ("everything" in order.seen) is whole


def test_a_new_file_of_the_log_has_its_name_before_anything_is_promised_of_it(kit: Any, order: Order) -> None:
    store = kit.open()
    store.append(kit.message(body=bytes(60_000)))
    order.clear()
    store.append(kit.message(body=bytes(60_000)))
    assert order.seen == ["commitlog/"]


def test_a_new_index_file_has_its_name_and_the_full_one_is_synced(kit: Any, order: Order) -> None:
    store = kit.open(index_entries=8)
    for n in range(7):
        store.append(kit.message(text=f"UNIQ_KEY\x01{n}\x02"))
    store.flush()
    (full,) = (f"index/{name}" for name in os.listdir(kit.root / "index"))
    kit.clock.advance(1)
    store.append(kit.message(text="UNIQ_KEY\x01next\x02"))
    assert order.seen[-1] == "index/", "before any of its keys is promised"
    order.clear()
    store.append(kit.message(text="UNIQ_KEY\x01more\x02"))
    store.append(kit.message(text="UNIQ_KEY\x01most\x02"))
    store.flush()
    files = {f"index/{name}" for name in os.listdir(kit.root / "index")}
    assert len(files) == 2
    assert files <= set(order.seen), "the old one got its last keys and its header"
    order.clear()
    store.append(kit.message(text="UNIQ_KEY\x01last\x02"))
    store.flush()
    assert full not in order.seen, "once"


def test_a_topic_is_forgotten_before_its_files_go(kit: Any, order: Order) -> None:
    store = kit.open()
    store.append(kit.message("a"))
    store.flush()
    order.clear()
    store.delete_topic("a")
    assert order.seen[0] == "consumequeue.sums"
    assert order.before("consumequeue/", "checkpoint"), "and the name is gone before that is told"
    assert not (kit.root / "consumequeue" / "a").exists()


def test_a_queue_file_is_forgotten_before_it_goes(kit: Any, order: Order) -> None:
    store = kit.open()
    for _ in range(40):
        store.append(kit.message(body=bytes(4_000)))
    store.flush()
    store._log.delete_first()
    order.clear()
    assert store._queues.find("orders", 0).trim(store._log.min_offset) == 0
    store._log.delete_first()
    assert store._queues.find("orders", 0).trim(store._log.min_offset) == 1
    assert order.seen.index("consumequeue.sums") < order.seen.index(f"-consumequeue/orders/0/{FIRST}")


def test_a_store_that_cannot_be_opened_lets_go_of_its_folder(
    kit: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: Any, **__: Any) -> None:
        raise StoreError("no")

    released: list[StoreLock] = []
    release = StoreLock.release
    monkeypatch.setattr(StoreLock, "release", lambda self: (released.append(self), release(self))[1])
    with monkeypatch.context() as broken:
        broken.setattr(Recovery, "run", fails)
        with pytest.raises(StoreError):
            kit.open()
    assert len(released) == 1
    store = kit.open()
    assert not store.recovery.clean, "it may have begun to change things"


def test_an_index_that_could_not_be_rebuilt_is_built_by_the_next_start(
    kit: Any, order: Order, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No checkpoint tells of it as complete, and no stop is clean."""
    store = kit.open()
    store.append(kit.message(text="KEYS\x01k\x02"))
    kit.crash(store)
    with monkeypatch.context() as full:
        full.setattr(
            "aerobee.store.key_index.KeyIndex.room", lambda *_: (_ for _ in ()).throw(DiskFull("full"))
        )
        store = kit.open()
        order.clear()
        store.flush()
        assert "checkpoint" not in order.seen
        store.close()
    assert (kit.root / "abort").exists()
    store = kit.open()
    assert [len(store.find_by_key("orders", "k", 10, 0, 1 << 62))] == [1]


# -- tables ---------------------------------------------------------------------------------------------------------


def test_a_table_is_on_disk_before_it_takes_its_name(kit: Any, order: Order) -> None:
    kit.root.mkdir()
    table = JsonFile(kit.root / "t.json")
    table.save(b"{1}")
    assert order.seen == ["t.json.tmp", "t.json.tmp>t.json", "./"]
    order.clear()
    table.save(b"{2}")
    assert order.seen == ["t.json.tmp", "t.json>t.json.bak", "t.json.tmp>t.json", "./"]
    assert ((kit.root / "t.json.bak").read_bytes(), table.load()) == (b"{1}", b"{2}")


def test_a_table_that_could_not_be_written_leaves_nothing(kit: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    kit.root.mkdir()
    table = JsonFile(kit.root / "t.json")

    def fails(fd: int) -> None:
        raise OSError(5, "no")

    monkeypatch.setattr(platform, "sync_data", fails)
    before = open_files()
    with pytest.raises(StoreError, match="cannot save"):
        table.save(b"{1}")
    assert os.listdir(kit.root) == []
    assert open_files() == before


def test_a_table_is_written_however_little_the_disk_takes_at_once(
    kit: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    kit.root.mkdir()
    write = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: write(fd, bytes(data)[:3]))
    table = JsonFile(kit.root / "t.json")
    table.save(b'{"a": "long enough"}')
    assert table.load() == b'{"a": "long enough"}'


# -- timers ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("refuses", ["pwrite", "sync_data", "sync_names"])
def test_a_wheels_first_word_that_was_refused_is_whole_and_has_a_name_when_it_is_taken(
    kit: Any, order: Order, monkeypatch: pytest.MonkeyPatch, refuses: str
) -> None:
    def refuse(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    now, check = 1_700_000_000_000, kit.root / "config" / "timercheck"
    check.parent.mkdir(parents=True)
    wheel = TimerWheel.open(kit.root, now)
    with monkeypatch.context() as broken:
        broken.setattr(platform, refuses, refuse)
        with pytest.raises(DiskFull):
            wheel.add(now + 5_000, 100, 10, 1, now)
    order.clear()
    wheel.add(now + 5_000, 100, 10, 1, now)
    assert order.seen[:2] == ["config/timercheck", "config/"]
    assert check.stat().st_size == 4096
    wheel.close()


def test_the_wheel_is_on_disk_before_it_says_how_far_it_is(kit: Any, order: Order) -> None:
    now = 1_700_000_000_000
    wheel = TimerWheel.open(kit.root, now)
    wheel.add(now + 5_000, 100, 10, 1, now)
    assert {"config/timercheck", "config/", "./"} <= set(order.seen), (
        "from which second on a crash is to look"
    )
    order.clear()
    wheel.flush()
    assert order.seen == [f"timerlog/{FIRST}", "timerwheel", "config/timercheck"]
    order.clear()
    wheel.flush()
    assert order.seen == [], "nothing has changed"
    wheel.lag = 7
    wheel.flush()
    assert order.seen == [f"timerlog/{FIRST}", "timerwheel", "config/timercheck"]
    wheel.close()
    again = TimerWheel.open(kit.root, now)
    assert (again.lag, again.progress, again.pending) == (7, now, 1)
    again.close()


@pytest.mark.parametrize("how", ["dropped", "failed"])
def test_a_flush_that_did_not_happen_is_made_up_for(
    kit: Any, order: Order, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1_700_000_000_000
    wheel = TimerWheel.open(kit.root, now)
    wheel.add(now + 5_000, 100, 10, 1, now)
    before = open_files()
    flushing = wheel.prepare_flush()
    if how == "dropped":
        flushing.drop()
    else:
        with monkeypatch.context() as broken:
            broken.setattr(platform, "sync_data", lambda fd: (_ for _ in ()).throw(OSError(5, "no")))
            with pytest.raises(StoreError, match="cannot sync the timer files"):
                flushing.run()
    assert open_files() == before
    order.clear()
    wheel.flush()
    assert order.seen[-1] == "config/timercheck"
    wheel.close()


# -- the log's files ------------------------------------------------------------------------------------------------


def test_a_file_that_gets_no_space_leaves_no_trace(kit: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    store = kit.open()
    store.append(kit.message(body=bytes(60_000)))
    before = open_files()

    def full(self: Any, end: int) -> None:
        raise DiskFull("no space")

    with monkeypatch.context() as broken:
        broken.setattr(Segment, "reserve", full)
        with pytest.raises(DiskFull):
            store.append(kit.message(body=bytes(60_000)))
    assert os.listdir(kit.root / "commitlog") == [FIRST]
    assert open_files() == before
    store.append(kit.message(body=bytes(60_000)))
    assert len(kit.bodies(store)) == 2
