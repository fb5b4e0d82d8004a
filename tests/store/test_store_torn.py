# SPDX-License-Identifier: Apache-2.0
"""A write that did not come to its end: a record or a batch is in the log as a whole or not at all."""

import mmap
import shutil
from itertools import product

import pytest

from aerobee.protocol.batch import Batch, Columns
from aerobee.protocol.message import decode

BEFORE = [b"first", b"second"]
LOG = "commitlog/" + "0" * 20


class Stores(mmap.mmap):
    """The mapped log, noting what is stored into it: a copy is not one step, only its pieces are."""

    noted: list[tuple[int, bytes]]

    def __setitem__(self, part, data):
        super().__setitem__(part, data)
        self.noted.append((part.start, bytes(data)))


def one(kit, store, bodies):
    store.append(kit.message(body=bodies[0], text="KEYS\x01k\x02"))


def records(kit, store, bodies):
    store.append_batch([kit.message(body=body, text="KEYS\x01k\x02") for body in bodies])


def columns(kit, store, bodies):
    texts = ["KEYS\x01k\x02"] * len(bodies)
    store.append_columns(Batch("orders", 0, Columns([0] * len(bodies), bodies, texts), born_host=b"\x7f" * 8))


def stores_of(kit, write, bodies, *, checkpoint):
    """The file before the write, and the stores it was made of."""
    store = kit.open()
    for body in BEFORE:
        store.append(kit.message(body=body))
    if checkpoint:
        store.flush()
    segment = store._log.segments[-1]
    store._log.map = noting = Stores(segment.fd, segment.size)
    noting.noted = []
    before = (kit.root / LOG).read_bytes()
    write(kit, store, bodies)
    noting.flush()
    kit.crash(store)
    return before, noting.noted


def opened_after(kit, image, to):
    """What is served from that log file, and where it ends."""
    copy = kit.copy(to)
    (copy / LOG).write_bytes(image)
    store = kit.open(copy)
    found = kit.bodies(store), store.log_max
    follower = kit.message(body=b"later")
    store.append(follower)
    assert follower.queue_offset == len(found[0])
    assert kit.bodies(store)[-1] == b"later"
    store.close()
    shutil.rmtree(copy)
    return found


def apply(before, noted, count, order):
    """The file when the process dies after `count` bytes of the stores."""
    image = bytearray(before)
    for start, data in noted:
        if count <= 0:
            break
        # The last eight bytes are one store of the processor; a longer copy may go either way.
        if order == "backward" and len(data) > 8:
            part = data[-count:] if count < len(data) else data
            image[start + len(data) - len(part) : start + len(data)] = part
        else:
            image[start : start + min(count, len(data))] = data[:count]
        count -= len(data)
    return bytes(image)


def assert_all_or_none(kit, write, order, counts, *, checkpoint, to):
    bodies = [b"batch%d" % n * 5 for n in range(3)]
    before, noted = stores_of(kit, write, bodies, checkpoint=checkpoint)
    written = bodies[:1] if write is one else bodies
    end, total = min(start for start, _ in noted), sum(len(data) for _, data in noted)
    for count in counts(total):
        served, log_max = opened_after(kit, apply(before, noted, count, order), to)
        assert served == (BEFORE + written if count == total else BEFORE), count
        assert log_max == end + (total if count == total else 0), count


WRITES = [one, records, columns]


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("order", ["forward", "backward"])
@pytest.mark.parametrize("checkpoint", [True, False])
def test_a_write_cut_short_leaves_nothing(kit, write, order, checkpoint, tmp_path):
    def counts(total):
        return [*range(0, total, 61), *range(total - 8, total + 1)]

    assert_all_or_none(kit, write, order, counts, checkpoint=checkpoint, to=tmp_path / "cut")


@pytest.mark.slow
@pytest.mark.parametrize("with_check", [True, False])
@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("order", ["forward", "backward"])
def test_a_write_cut_short_after_every_byte_leaves_nothing(kit, write, order, with_check, tmp_path):
    kit.open(tmp_path / "settings", record_check=with_check, commit_log_segment_bytes=1 << 12)
    assert_all_or_none(
        kit, write, order, lambda total: range(total + 1), checkpoint=True, to=tmp_path / "cut"
    )


@pytest.mark.parametrize("write", [records, columns])
def test_pages_that_land_in_any_order_never_leave_a_hole_in_a_batch(kit, write, tmp_path):
    """A power cut keeps any of the pages. What is left of a batch is its beginning, each message whole."""
    bodies = [b"%d" % n * 1500 for n in range(8)]
    before, _ = stores_of(kit, write, bodies, checkpoint=True)
    after = (kit.root / LOG).read_bytes()
    pages = len(after.rstrip(b"\0")) // 4096 + 1
    assert pages == 4
    for landed in product([True, False], repeat=pages - 1):
        image = bytearray(before)
        for page, is_there in enumerate((True, *landed)):
            if is_there:
                image[page * 4096 : (page + 1) * 4096] = after[page * 4096 : (page + 1) * 4096]
        served, _ = opened_after(kit, bytes(image), tmp_path / "cut")
        assert served == (BEFORE + bodies)[: len(served)], landed
        assert len(served) < len(BEFORE + bodies) or all(landed)


def test_what_follows_a_torn_batch_in_the_file_is_not_found_again(kit, tmp_path):
    """Whole records behind the place where the first one never got its head: they are zeros after the start."""
    bodies = [b"never%d" % n for n in range(3)]
    before, noted = stores_of(kit, columns, bodies, checkpoint=True)
    (kit.root / LOG).write_bytes(apply(before, noted, sum(len(data) for _, data in noted) - 8, "forward"))
    store = kit.open()
    assert store.recovery.truncated_bytes > 0
    store.append(kit.message(body=b"third"))
    kit.crash(store)
    assert kit.bodies(kit.open()) == [*BEFORE, b"third"]
    assert b"never" not in (kit.root / LOG).read_bytes()


@pytest.mark.parametrize("write", WRITES)
def test_the_head_is_the_last_store_and_a_single_one(kit, write):
    _, noted = stores_of(kit, write, [b"a", b"b"], checkpoint=True)
    assert [len(data) for _, data in noted[1:]] == [8]
    first = min(start for start, _ in noted)
    assert noted[-1][0] == first
    assert decode(b"".join(data for _, data in sorted(noted)))


def test_damage_before_the_checkpoint_is_no_torn_end(kit, caplog):
    """Synced once, so it was whole: the records after it are kept."""
    store = kit.open()
    for n in range(6):
        store.append(kit.message(body=b"body%d" % n))
    store.flush()
    size = store.unit("orders", 0, 0).size
    store._log.map[2 * size : 2 * size + 8] = bytes(8)
    kit.crash(store)
    shutil.rmtree(kit.root / "consumequeue")
    assert kit.bodies(kit.open()) == [b"body%d" % n for n in (0, 1, 3, 4, 5)]
