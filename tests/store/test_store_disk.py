# SPDX-License-Identifier: Apache-2.0
"""Retention, and a disk that fills up."""

import errno
import json
import os
import shlex
import subprocess
import sys
import textwrap

import pytest

from aerobee.errors import DiskFull
from aerobee.store import platform, segment
from aerobee.store.message_store import ReadLimit, ReadStatus
from aerobee.store.platform import Disk, disk_of

HOUR = 3_600_000


def log_files(kit):
    return sorted(path.name for path in (kit.root / "commitlog").iterdir())


def fill(kit, store, count, **fields):
    for _ in range(count):
        store.append(kit.message(body=bytes(8000), text="KEYS\x01k\x02", **fields))


def tick(kit, store, ms=1000):
    kit.clock.advance(ms)
    store.tick(kit.clock.now())
    store._flush.wait()


# -- retention -----------------------------------------------------------------------------------------


def test_old_files_go_and_the_current_one_stays(kit):
    store = kit.open(retention_hours=1)
    fill(kit, store, 20)  # three files
    kit.clock.advance(hours=0.5)
    fill(kit, store, 16)
    tick(kit, store, 31 * 60_000)
    assert store.log_min == 2 << 16  # the third file has messages of both times
    tick(kit, store, 2 * HOUR)
    assert len(log_files(kit)) == 1
    assert store.log_min == store.log_max - store.log_max % (1 << 16)
    assert store.min_offset("orders", 0) + len(kit.bodies(store)) == store.max_offset("orders", 0) == 36


def test_the_oldest_files_go_when_the_log_is_larger_than_allowed(kit):
    store = kit.open(retention_bytes=3 << 16)
    fill(kit, store, 80)
    for _ in range(4):
        tick(kit, store)
    assert len(log_files(kit)) == 3
    assert kit.bodies(store) == [bytes(8000)] * (80 - store.min_offset("orders", 0))


def test_queues_and_index_follow_the_log(kit):
    store = kit.open(retention_bytes=2 << 16)
    for _ in range(30):
        fill(kit, store, 10)
        store.append(kit.message("rare"))
        tick(kit, store)
    first = min(path.name for path in (kit.root / "consumequeue/orders/0").iterdir())
    low = store.min_offset("orders", 0)
    assert int(first) // 20 <= low < int(first) // 20 + 16
    assert len(list((kit.root / "index").iterdir())) == 1
    assert store.index_last_update[1] > store.log_min
    assert len(store.find_by_key("orders", "k", 500, 0, 1 << 60)) == 300 - low


def test_a_queue_goes_on_after_all_its_messages_are_gone(kit):
    store = kit.open(retention_bytes=2 << 16)
    for n in range(20):
        store.append(kit.message("rare", b"%d" % n))
    fill(kit, store, 60)
    for _ in range(5):
        tick(kit, store)
    assert store.min_offset("rare", 0) == store.max_offset("rare", 0) == 20
    assert store.read("rare", 0, 5, ReadLimit()).status is ReadStatus.OFFSET_TOO_SMALL
    assert store.read("rare", 0, 20, ReadLimit()).status is ReadStatus.OFFSET_OVERFLOW_ONE
    store.close()
    store = kit.open()
    assert store.min_offset("rare", 0) == store.max_offset("rare", 0) == 20
    record = kit.message("rare", b"next")
    store.append(record)
    assert record.queue_offset == 20
    assert kit.bodies(store, "rare") == [b"next"]
    kit.crash(store)
    assert kit.bodies(kit.open(), "rare") == [b"next"]


# -- a disk that fills ---------------------------------------------------------------------------------


def test_a_disk_nearly_full_loses_old_files_whatever_their_age(kit):
    store = kit.open()
    fill(kit, store, 60)
    kit.disk = Disk(used=84, free=16)
    tick(kit, store)
    assert store.log_min == 0
    kit.disk = Disk(used=86, free=14)
    for _ in range(5):
        tick(kit, store)
    assert len(log_files(kit)) == 1
    assert store.writable


def test_a_full_disk_refuses_sends_and_serves_reads_until_space_returns(kit, caplog):
    store = kit.open()
    fill(kit, store, 3)
    kit.disk = Disk(used=91, free=9)
    tick(kit, store)
    assert (store.writable, store.disk_ratio()) == (False, 0.91)
    for _ in range(2):
        with pytest.raises(DiskFull, match="91% full, sends stop at 90%"):
            store.append(kit.message())
    with pytest.raises(DiskFull):
        store.append_batch([kit.message()])
    tick(kit, store)
    assert caplog.text.count("store takes no more writes") == 1
    assert len(kit.bodies(store)) == 3
    kit.disk = Disk(used=50, free=50)
    tick(kit, store)
    store.append(kit.message())
    assert store.max_offset("orders", 0) == 4
    assert "takes writes again" in caplog.text


def test_a_store_opened_on_a_full_disk_refuses_at_once(kit):
    kit.disk = Disk(used=95, free=5)
    store = kit.open()
    with pytest.raises(DiskFull):
        store.append(kit.message())


def test_a_least_free_space_can_be_set(kit):
    kit.disk = Disk(used=1, free=1000)
    store = kit.open(min_free_bytes=1001)
    with pytest.raises(DiskFull, match="1000 bytes free"):
        store.append(kit.message())


@pytest.mark.parametrize("part", ["commitlog", "index"])
def test_no_space_for_a_file_changes_nothing(kit, monkeypatch, part):
    """ENOSPC from the file system itself, in the middle of a message's way: nothing is half done."""
    store = kit.open()
    fill(kit, store, 5)
    before = (store.log_max, store.max_offset("orders", 0), store.index_last_update)
    real, full = os.posix_fallocate, True

    def posix_fallocate(fd, start, length):
        if full and part in os.readlink(f"/proc/self/fd/{fd}"):
            raise OSError(errno.ENOSPC, "No space left on device")
        real(fd, start, length)

    monkeypatch.setattr(os, "posix_fallocate", posix_fallocate)
    text = "KEYS\x01" + " ".join(map(str, range(255))) + "\x02"
    for _ in range(2):
        blocked = (
            [kit.message(text=text)] if part == "index" else [kit.message(body=bytes(8000)) for _ in range(8)]
        )
        with pytest.raises(DiskFull, match="no space for"):
            list(map(store.append, blocked))
        with pytest.raises(DiskFull, match="no space for"):
            store.append_batch([kit.message(body=bytes(50_000), text=text)])
        if part == "index":
            assert (store.log_max, store.max_offset("orders", 0), store.index_last_update) == before
    count = store.max_offset("orders", 0)
    full = False
    store.append(kit.message(text=text))
    assert len(kit.bodies(store)) == count + 1
    kit.crash(store)
    assert len(kit.bodies(kit.open())) == count + 1


def test_units_that_cannot_be_written_wait_in_memory(kit, monkeypatch, caplog):
    store = kit.open()
    fill(kit, store, 5)

    def pwrite(fd, data, at):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(platform, "pwrite", pwrite)
        tick(kit, store)
        assert "wait in memory" in caplog.text
        assert len(kit.bodies(store)) == 5
    tick(kit, store)
    store.close()
    assert len(kit.bodies(kit.open())) == 5


def test_the_disk_is_measured_without_roots_share(tmp_path, monkeypatch):
    facts = os.statvfs(tmp_path)  # others write to the disk meanwhile: looked at once
    monkeypatch.setattr(os, "statvfs", lambda root: facts)
    disk = disk_of(tmp_path)
    assert 0 < disk.ratio < 1
    assert disk.free == facts.f_bavail * facts.f_frsize
    assert disk.used == (facts.f_blocks - facts.f_bfree) * facts.f_frsize


SMALL_DISK = textwrap.dedent("""
    import json, os, sys
    from pathlib import Path
    from aerobee.clock import ManualClock
    from aerobee.settings import StoreConfig
    from aerobee.errors import DiskFull
    from aerobee.protocol.message import Record, decode
    from aerobee.store.message_store import MessageStore, ReadLimit
    from aerobee.store.platform import Disk

    root, ballast = Path(sys.argv[1]) / "store", Path(sys.argv[1]) / "ballast"
    config = StoreConfig(commit_log_segment_bytes=1 << 20, consume_queue_units=300, index_slots=1000,
                         index_entries=2000)
    clock = ManualClock()
    roomy = Disk(used=0, free=1)                        # no ratio steps in before the file system does
    store = MessageStore.open(root, config, clock, disk=lambda: roomy)

    def send_until_full():
        for number in range(100_000):
            try:
                store.append(Record("t", b"x" * 2000, f"KEYS\\x01k{number}\\x02"))
            except DiskFull:
                return number
            if number % 100 == 0:
                clock.advance(1000); store.tick(clock.now()); store._flush.wait()

    def served():
        offset = count = 0
        while offset < store.max_offset("t", 0):
            found = store.read("t", 0, offset, ReadLimit(max_messages=1000, max_bytes=1 << 30))
            offset, count = found.next_offset, count + len(found.messages)
        return count

    ballast.write_bytes(bytes(4 << 20))
    first = send_until_full()
    for _ in range(50):
        try: store.append(Record("t", b"y")); first += 1
        except DiskFull: break
    else: raise SystemExit("never full")
    reads_when_full = served()
    ballast.unlink()                                    # space returns
    second = send_until_full()
    assert second > 1000, second
    total = served()
    expected = first + second
    store.close()                                       # on a full disk: as after a crash
    store = MessageStore.open(root, config, clock, disk=lambda: roomy)
    print(json.dumps({"first": first, "reads_when_full": reads_when_full, "total": total, "expected": expected,
                      "after_restart": served(), "corrupt": store.corrupt_records}))
""")


@pytest.mark.slow
def test_a_small_file_system_filled_to_the_last_byte(tmp_path):
    """A tmpfs of 16 MiB, mounted in a namespace of its own; the tests above cover machines that refuse even that."""
    small = tmp_path / "small"
    small.mkdir()
    script = tmp_path / "script.py"
    script.write_text(SMALL_DISK)
    mount = f"mount -t tmpfs -o size=16m tmpfs {shlex.quote(str(small))}"
    for unshare in (["unshare", "-m"], ["unshare", "-rm"]):
        if subprocess.run([*unshare, "sh", "-c", mount], capture_output=True, check=False).returncode == 0:
            break
    else:
        pytest.skip("no right to mount a tmpfs here, not even in a user namespace")
    done = subprocess.run(
        [*unshare, "sh", "-c", f'{mount} && exec "$0" "$@"', sys.executable, str(script), str(small)],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    report = json.loads(done.stdout)
    assert report["first"] == report["reads_when_full"] > 1000
    assert report["total"] == report["expected"] == report["after_restart"]
    assert report["corrupt"] == 0


def test_a_log_that_gets_no_next_file_goes_on_in_the_old_one_and_then_in_a_new_one(kit, monkeypatch):
    store = kit.open()
    sent = [b"%04d" % n + bytes(4_000) for n in range(40)]
    real, is_full, refused = segment.reserve_range, [True], []

    def reserve(fd, start, length, path):
        if "commitlog" in path and not path.endswith(f"{0:020d}") and is_full:
            raise DiskFull(f"no space for {path}")
        return real(fd, start, length, path)

    monkeypatch.setattr(segment, "reserve_range", reserve)
    for body in sent:
        try:
            store.append(kit.message(body=body))
        except DiskFull:
            refused.append(body)
            assert len(log_files(kit)) == 1, "what could not be made is not left behind"
            is_full.clear()
            store.append(kit.message(body=body))
    assert len(refused) == 1
    assert kit.bodies(store) == sent
    kit.crash(store)
    assert kit.bodies(kit.open()) == sent
