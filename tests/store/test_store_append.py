# SPDX-License-Identifier: Apache-2.0
import struct
from types import SimpleNamespace as Thing

import pytest

from aerobee.errors import MessageIllegal, StoreInUse
from aerobee.protocol.message import MAGIC_V1, MAGIC_V2, decode, pack_host, verify
from aerobee.protocol.names import SCHEDULE_TOPIC
from aerobee.protocol.properties import tag_code
from aerobee.store.message_store import MessageStore, ReadLimit, Unit
from aerobee.store.results import EVERY_QUEUE


def test_an_append_stamps_the_record_with_its_place(kit):
    store = kit.open()
    store.store_host = pack_host("10.0.0.1", 10911)
    first, second = kit.message(), kit.message(body=b"two")
    store.append(first)
    store.append(second)
    assert (first.queue_offset, first.physical_offset, first.store_timestamp) == (0, 0, kit.clock.now())
    assert (second.queue_offset, second.physical_offset) == (1, first.size)
    assert second.store_host == pack_host("10.0.0.1", 10911)
    assert store.log_max == first.size + second.size


@pytest.mark.seed("S004-24")
def test_the_queue_offset_grows_by_one_per_message_and_queue(kit):
    store = kit.open()
    for number in range(10):
        for queue_id in (0, 7):
            record = kit.message(queue_id=queue_id)
            store.append(record)
            assert record.queue_offset == number
    assert store.queue_ids("orders") == [0, 7]
    assert store.max_offset("orders", 7) == 10


def test_a_stored_record_reads_back_with_every_field(kit):
    store = kit.open()
    sent = kit.message(
        "orders", b"\x00\xff" * 40, "TAGS\x01paid\x02KEYS\x01a b\x02", queue_id=3, flag=-7, sys_flag=1,
        born_timestamp=1_699_999_999_999, born_host=pack_host("192.168.1.9", 50123), reconsume_times=4,
        prepared_offset=99,
    )  # fmt: skip
    store.append(sent)
    got = store.record_of("orders", 3, 0)
    assert got is not None
    check = got.properties_text[len(sent.properties_text) :]
    assert len(check) == 20 and check.startswith("__CRC32#\x01")
    got.properties_text = sent.properties_text
    assert got == sent
    assert got.properties == {"TAGS": "paid", "KEYS": "a b"}


def test_records_are_as_rocketmq_writes_them_without_the_record_check(kit):
    store = kit.open(record_check=False)
    store.append(kit.message(text="TAGS\x01a\x02"))
    raw = store.raw_at(0)
    assert raw is not None and len(raw) == 91 + len("orders") + len("body") + len("TAGS_a_")
    assert decode(raw).properties_text == "TAGS\x01a\x02"
    assert kit.bodies(store) == [b"body"]


def test_the_record_check_follows_a_properties_text_without_its_last_separator(kit):
    store = kit.open()
    store.append(kit.message(text="a\x01b"))
    record = store.record_at(0)
    assert record is not None and record.properties == {"a": "b"}


def test_a_record_read_and_appended_again_has_one_check(kit):
    store = kit.open()
    store.append(kit.message(text="a\x01b\x02"))
    again = store.record_at(0)
    assert again is not None
    again.properties_text += "c\x01d\x02"  # what delivery of a delayed message does
    store.append(again)
    raw = store.raw_at(again.physical_offset)
    assert raw is not None and raw.count(b"__CRC32#") == 1
    verify(raw)
    assert decode(raw).properties == {"a": "b", "c": "d"}


@pytest.mark.parametrize("born", ["10.1.1.1", "fe80::1"])
@pytest.mark.parametrize("stored", ["10.1.1.2", "2001:db8::7"])
def test_hosts_may_be_ipv6(kit, born, stored):
    store = kit.open()
    store.store_host = pack_host(stored, 1)
    store.append(kit.message(born_host=pack_host(born, 2), text="TAGS\x01x\x02"))
    got = store.record_of("orders", 0, 0)
    assert got is not None
    assert (got.born_host, got.store_host) == (pack_host(born, 2), pack_host(stored, 1))
    assert store.store_time("orders", 0, 0) == kit.clock.now()
    assert kit.bodies(store) == [b"body"]


@pytest.mark.parametrize(("length", "magic"), [(127, MAGIC_V1), (128, MAGIC_V2), (255, MAGIC_V2)])
def test_long_topic_names_use_the_second_format(kit, length, magic):
    store = kit.open()
    topic = ("%RETRY%" + "g" * 300)[:length]
    store.append(kit.message(topic))
    assert store._log.header(0)[1] == magic
    assert kit.bodies(store, topic) == [b"body"]


def test_prepared_and_rolled_back_records_have_no_unit(kit):
    store = kit.open()
    for flag in (0x0, 0x4, 0xC, 0x8):
        store.append(kit.message(body=b"%d" % flag, sys_flag=flag, text="UNIQ_KEY\x01u\x02"))
    assert kit.bodies(store) == [b"0", b"8"]
    # A rolled-back record is not found by key either.
    assert [decode(raw).body for raw in store.find_by_key("orders", "u", 9, 0, 1 << 60)] == [b"0", b"4", b"8"]


def test_units_carry_place_size_and_tags_code(kit):
    store = kit.open()
    record = kit.message(text="TAGS\x01TagA\x02")
    store.append(record)
    assert store.unit("orders", 0, 0) == Unit(0, record.size, 2598919)
    assert store.unit("orders", 0, 1) is None


def test_the_tags_code_of_a_delayed_message_is_the_time_it_is_due(kit):
    store = kit.open()
    for level in (1, 3, 18):
        store.append(kit.message(SCHEDULE_TOPIC, queue_id=level - 1, text="TAGS\x01x\x02"))
    now = kit.clock.now()
    due = [store.unit(SCHEDULE_TOPIC, level - 1, 0).tags_code - now for level in (1, 3, 18)]
    assert due == [1_000, 10_000, 7_200_000]


@pytest.mark.parametrize(
    ("text", "tag"),
    [("TAGS\x01a\x02", "a"), ("MYTAGS\x01no\x02TAGS\x01a\x02", "a"), ("XTAGS\x01a\x02", None), ("x\x01TAGS\x02", None),
     ("TAGS\x01\x02", None), ("x\x01y\x02TAGS\x01a", "a")],
)  # fmt: skip
def test_the_tag_is_found_in_any_properties_text(kit, text, tag):
    store = kit.open()
    store.append(kit.message(text=text))
    assert store.unit("orders", 0, 0).tags_code == tag_code(tag)


@pytest.mark.seed("S002-28")
def test_listeners_hear_of_a_message_after_it_can_be_read(kit):
    store = kit.open()
    heard = []

    def hear(record, code):
        end = store.max_offset("orders", 0)
        heard.append((record.queue_offset, code, end, record.properties_text, record.store_timestamp))

    store.listeners.append(Thing(count=1, arrived=hear, awaited=lambda: EVERY_QUEUE))
    store.append(kit.message(text="TAGS\x01TagA\x02"))
    store.append_batch([kit.message(), kit.message()])
    now = kit.clock.now()
    assert heard == [(0, 2598919, 1, "TAGS\x01TagA\x02", now), (1, 0, 3, "", now), (2, 0, 3, "", now)]


def test_a_listener_may_append(kit):
    store = kit.open()

    def copy(record, _code):
        if record.topic == "orders":
            store.append(kit.message("copy", record.body))

    store.listeners.append(Thing(count=1, arrived=copy, awaited=lambda: {("orders", 0)}))
    store.append_batch([kit.message(body=b"%d" % n) for n in range(3)])
    assert kit.bodies(store) == kit.bodies(store, "copy") == [b"0", b"1", b"2"]


# -- files ---------------------------------------------------------------------------------------------


def test_a_record_that_does_not_fit_starts_the_next_file_after_a_blank(kit):
    store = kit.open()
    for _ in range(40):
        store.append(kit.message(body=bytes(4000)))
    first = sorted((kit.root / "commitlog").iterdir())[0].read_bytes()
    assert len(first) == 1 << 16
    at = 0
    while struct.unpack_from(">i", first, at + 4)[0] == MAGIC_V1:
        at += struct.unpack_from(">i", first, at)[0]
    assert struct.unpack_from(">iI", first, at) == ((1 << 16) - at, 0xCBD43194)
    second = store.record_at(1 << 16)
    assert second is not None and second.physical_offset == 1 << 16
    assert len(kit.bodies(store)) == 40


def test_eight_bytes_always_stay_for_the_blank(kit):
    """The largest record that fits leaves room for the blank exactly; one byte more starts a new file."""
    store = kit.open()
    overhead = 91 + 6 + 20
    store.append(kit.message(body=bytes((1 << 16) - 8 - overhead)))
    assert store.log_max == (1 << 16) - 8
    store.append(kit.message())
    assert store.unit("orders", 0, 1).physical_offset == 1 << 16
    with pytest.raises(MessageIllegal, match="do not fit one commit-log file"):
        store.append(kit.message(body=bytes((1 << 16) - 8 - overhead + 1)))
    assert store.max_offset("orders", 0) == 2


def test_a_batch_gets_consecutive_offsets_and_is_placed_whole(kit):
    store = kit.open()
    store.append(kit.message(body=bytes(40_000)))
    batch = [kit.message(body=bytes(9_000), text=f"TAGS\x01{n}\x02") for n in range(3)]
    store.append_batch(batch)
    assert [record.queue_offset for record in batch] == [1, 2, 3]
    assert batch[0].physical_offset == 1 << 16  # 27 KB did not fit behind 40 KB
    assert [record.physical_offset - batch[0].physical_offset for record in batch] == [
        0, batch[0].size, batch[0].size + batch[1].size,
    ]  # fmt: skip
    assert [store.unit("orders", 0, at).tags_code for at in (1, 2, 3)] == [48, 49, 50]
    with pytest.raises(MessageIllegal):
        store.append_batch([kit.message(body=bytes(30_000)) for _ in range(3)])
    assert store.max_offset("orders", 0) == 4
    store.append_batch([])


def test_consume_queue_files_are_laid_out_as_rocketmq_does(kit):
    store = kit.open()
    for _ in range(20):
        store.append(kit.message())
    store.close()
    files = sorted((kit.root / "consumequeue/orders/0").iterdir())
    assert [path.name for path in files] == ["0" * 20, f"{16 * 20:020d}"]
    assert [path.stat().st_size for path in files] == [320, 320]
    first = files[0].read_bytes()
    assert struct.unpack_from(">qiq", first, 20) == (121, 121, 0)
    assert files[1].read_bytes()[4 * 20 :] == bytes(320 - 80)


def test_default_files_have_rocketmqs_sizes(tmp_path, kit):
    from aerobee.settings import StoreConfig

    store = MessageStore.open(tmp_path / "big", StoreConfig(), kit.clock)
    store.append(kit.message(text="UNIQ_KEY\x01k\x02"))
    store.close()
    sizes = {path.name: path.stat().st_size for path in (tmp_path / "big").rglob("*") if path.is_file()}
    assert sizes.pop("consumequeue.sums") < 100  # ours, which RocketMQ leaves alone
    index = next(name for name in sizes if len(name) == 17)
    assert sizes == {"checkpoint": 4096, "lock": 4, "0" * 20: sizes["0" * 20], index: 420_000_040}
    assert (tmp_path / "big/commitlog" / ("0" * 20)).stat().st_size == 1 << 30
    assert (tmp_path / "big/consumequeue/orders/0" / ("0" * 20)).stat().st_size == 6_000_000
    used = sum(path.stat().st_blocks * 512 for path in (tmp_path / "big").rglob("*") if path.is_file())
    assert used < 64 << 20  # the files are sparse


# -- refusals ------------------------------------------------------------------------------------------


def test_what_no_record_can_hold_is_refused_before_anything_is_written(kit):
    store = kit.open(max_message_bytes=1000)
    for bad in (
        kit.message(body=bytes(1001)),
        kit.message(text="a\x01" + "b" * 33_000),
        kit.message("t" * 300),
    ):
        with pytest.raises(MessageIllegal, match="limit is"):
            store.append(bad)
        with pytest.raises(MessageIllegal, match="limit is"):
            store.append_batch([kit.message(bad.topic), bad])
    assert store.log_max == 0


def test_a_store_in_use_is_refused_and_says_who_has_it(kit):
    import os

    store = kit.open()
    with pytest.raises(StoreInUse, match=f"{kit.root} is in use by process {os.getpid()}"):
        kit.open()
    store.append(kit.message())
    store.close()
    assert kit.bodies(kit.open()) == [b"body"]


def test_closing_twice_is_harmless(kit):
    store = kit.open()
    store.close()
    store.close()


def test_a_deleted_topic_begins_again_at_zero(kit):
    store = kit.open()
    for topic in ("orders", "kept"):
        store.append_batch([kit.message(topic, queue_id=1) for _ in range(20)])
    store.tick(kit.clock.now())
    store.delete_topic("orders")
    assert (store.topics(), store.queue_ids("orders"), store.max_offset("orders", 1)) == (["kept"], [], 0)
    assert not (kit.root / "consumequeue/orders").exists()
    kit.crash(store)
    store = kit.open()  # recovery does not tell its messages again
    assert store.topics() == ["kept"]
    store.append(kit.message(body=b"new", queue_id=1))
    assert kit.bodies(store, "orders", 1) == [b"new"]
    store.read("orders", 1, 0, ReadLimit())
    store.delete_topic("never was")
