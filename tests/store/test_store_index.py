# SPDX-License-Identifier: Apache-2.0
import os
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aerobee.protocol.message import decode
from aerobee.protocol.properties import java_hash
from aerobee.store import platform
from aerobee.store.key_hash import KeyHash
from aerobee.store.key_index import name_for

FOREVER = 1 << 60


def bodies(store, topic, key, limit=99, begin=0, end=FOREVER):
    return [decode(raw).body for raw in store.find_by_key(topic, key, limit, begin, end)]


def slow_hash(topic, key):
    value = abs(java_hash(f"{topic}#{key}"))
    return 0 if value == 1 << 31 else value


@given(st.text(max_size=12), st.text(max_size=40), st.text("0123456789ABCDEF", min_size=32, max_size=32))
def test_the_fast_hash_is_javas(topic, key, unique):
    fast = KeyHash()
    for _ in range(2):
        assert fast(topic, key) == slow_hash(topic, key)
        assert fast(topic, unique) == slow_hash(topic, unique)


def test_what_the_hash_remembers_is_bounded():
    fast = KeyHash()
    for n in range(20_000):
        assert fast(f"topic{n}", f"{n:028}0007") == slow_hash(f"topic{n}", f"{n:028}0007")
    assert len(fast._runs) <= 4096 and len(fast._topics) <= 16_384


def test_messages_are_found_by_unique_key_and_every_word_of_keys(kit):
    store = kit.open()
    store.append(kit.message(body=b"1", text="UNIQ_KEY\x01u1\x02KEYS\x01red  blue\x02"))
    store.append(kit.message(body=b"2", text="KEYS\x01blue\x02"))
    store.append(kit.message("other", body=b"3", text="KEYS\x01blue\x02"))
    assert bodies(store, "orders", "u1") == [b"1"]
    assert bodies(store, "orders", "red") == [b"1"]
    assert bodies(store, "orders", "blue") == [b"1", b"2"]
    assert bodies(store, "orders", "blue", limit=1) == [b"2"]  # the newest
    assert bodies(store, "orders", "green") == bodies(store, "orders", "") == []
    assert store.index_last_update == (kit.clock.now(), store.unit("other", 0, 0).physical_offset)


def test_keys_whose_hashes_meet_are_told_apart(kit):
    store = kit.open()
    store.append(kit.message(body=b"1", text="KEYS\x01Aa\x02"))
    store.append(kit.message(body=b"2", text="KEYS\x01BB\x02"))  # the same hashCode as Aa
    assert (bodies(store, "orders", "Aa"), bodies(store, "orders", "BB")) == ([b"1"], [b"2"])


def test_a_search_by_key_keeps_to_its_time(kit):
    store = kit.open()
    times = []
    for n in range(4):
        times.append(kit.clock.now())
        store.append(kit.message(body=b"%d" % n, text="KEYS\x01k\x02"))
        kit.clock.advance(1500)
    assert bodies(store, "orders", "k", begin=times[1], end=times[2]) == [b"1", b"2"]
    assert bodies(store, "orders", "k", begin=times[1] + 1, end=times[2] - 1) == []


def test_the_file_is_laid_out_as_rocketmqs(kit):
    store = kit.open()
    start = kit.clock.now()
    store.append(kit.message(text="KEYS\x01k\x02"))
    kit.clock.advance(2500)
    second = kit.message(text="KEYS\x01k\x02")
    store.append(second)
    store.close()
    (path,) = (kit.root / "index").iterdir()
    data = path.read_bytes()
    assert len(data) == 40 + 64 * 4 + 256 * 20
    assert struct.unpack_from(">qqqqii", data) == (start, start + 2500, 0, second.physical_offset, 1, 3)
    key_hash = slow_hash("orders", "k")
    assert struct.unpack_from(">i", data, 40 + key_hash % 64 * 4) == (2,)
    assert data[296:316] == bytes(20)  # entry 0 is never used
    assert struct.unpack_from(">iqii", data, 316) == (key_hash, 0, 0, 0)
    assert struct.unpack_from(">iqii", data, 336) == (key_hash, second.physical_offset, 2, 1)


def test_a_full_file_is_followed_by_another(kit):
    store = kit.open()
    for n in range(600):
        store.append(kit.message(body=b"%d" % n, text=f"KEYS\x01k{n} every\x02"))
        if n % 100 == 0:
            kit.clock.advance(10)
            store.tick(kit.clock.now())
    assert len(list((kit.root / "index").iterdir())) == 5  # 1200 keys, 254 or 255 a file
    assert all(bodies(store, "orders", f"k{n}") == [b"%d" % n] for n in range(0, 600, 7))
    assert len(bodies(store, "orders", "every", limit=1000)) == 600
    store.close()
    store = kit.open()
    assert bodies(store, "orders", "k3") == [b"3"]
    assert len(bodies(store, "orders", "every", limit=10)) == 10


def test_more_keys_than_a_file_holds_do_not_stop_a_message(kit):
    store = kit.open()
    store.append(kit.message(text="KEYS\x01" + " ".join(map(str, range(300))) + "\x02"))
    store.append(kit.message(body=b"next", text="KEYS\x01a\x02"))
    assert len(kit.bodies(store)) == 2
    assert bodies(store, "orders", "a") == [b"next"]


def test_a_file_of_other_settings_is_left_aside(kit, caplog):
    store = kit.open()
    store.append(kit.message(text="KEYS\x01a\x02"))
    store.close()
    store = kit.open(index_entries=512)
    assert "left aside" in caplog.text
    assert bodies(store, "orders", "a") == []
    store.append(kit.message(text="KEYS\x01a\x02"))
    assert len(bodies(store, "orders", "a")) == 1


def test_index_files_are_named_by_local_time_and_never_alike():
    name = name_for(1_700_000_000_123, set())
    assert len(name) == 17 and name.endswith("123") and name.isdigit()
    assert name_for(1_700_000_000_123, {name}) != name


@pytest.mark.parametrize("lost", ["header", "slots", "all"])
def test_after_power_loss_slots_and_header_come_from_the_entries(kit, lost):
    """Whatever of the index did not reach the disk after the checkpoint is made again."""
    store = kit.open()
    for n in range(20):
        store.append(kit.message(body=b"%d" % n, text=f"KEYS\x01k{n}\x02"))
    store.flush()
    for n in range(20, 40):
        store.append(kit.message(body=b"%d" % n, text=f"KEYS\x01k{n}\x02"))
    before = kit.copy(kit.root.parent / "copy")
    expected = kit.snapshot(store)
    kit.crash(store)
    (path,) = (before / "index").iterdir()
    with path.open("r+b") as file:
        if lost in ("header", "all"):
            file.seek(8)
            file.write(b"\xff" * 32)
        if lost in ("slots", "all"):
            file.seek(40)
            file.write(b"\x01" * 256)
        if lost == "all":
            file.seek(40 + 256 + 21 * 20)
            file.write(b"\x7f" * 200)
    again = kit.open(before)
    assert kit.snapshot(again) == expected
    assert bodies(again, "orders", "k7") == [b"7"]


def test_a_checkpoint_writes_by_a_descriptor_whose_place_is_its_own(kit, monkeypatch):
    """Where nothing can be written at a place, descriptors are moved: the thread's must not move the loop's."""
    monkeypatch.setattr(platform, "pwrite", platform._pwrite)
    monkeypatch.setattr(platform, "pread", platform._pread)
    store = kit.open()
    store.append(kit.message(body=b"1", text="KEYS\x01k\x02"))
    store._index.settle()
    fd = store._index.files[-1].fd
    os.lseek(fd, 7, os.SEEK_SET)
    store._index.sync_job()()
    assert os.lseek(fd, 0, os.SEEK_CUR) == 7
    assert bodies(store, "orders", "k") == [b"1"]
