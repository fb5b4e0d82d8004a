# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from aerobee.broker.state.offsets import Offsets
from aerobee.clock import ManualClock
from aerobee.errors import DiskFull

if TYPE_CHECKING:
    from pathlib import Path

    from tests.broker.state.conftest import BrokenDisk


@pytest.fixture
def offsets(tmp_path: Path) -> Offsets:
    return Offsets(tmp_path, ManualClock())


@pytest.mark.seed("S004-85")
def test_offsets_are_kept_per_group_topic_and_queue(offsets: Offsets) -> None:
    offsets.set("billing", "orders", 0, 12)
    offsets.set("shipping", "orders", 0, 3)
    offsets.set("billing", "orders", 1, 7)
    assert offsets.get("billing", "orders", 0) == 12
    assert offsets.get("shipping", "orders", 0) == 3
    assert offsets.get("billing", "orders", 2) == -1
    assert offsets.table("billing", "orders") == {0: 12, 1: 7}
    assert offsets.topics_of("billing") == {"orders"}
    assert offsets.groups_of("orders") == {"billing", "shipping"}


@pytest.mark.seed("S004-3", "S004-55", "S004-56")
def test_offsets_survive_a_restart_and_a_torn_file(tmp_path: Path, offsets: Offsets) -> None:
    offsets.set("billing", "orders", 0, 12)
    offsets.save()
    offsets.set("billing", "orders", 0, 13)
    offsets.save()
    file = tmp_path / "consumerOffset.json"
    assert b'"orders@billing":{0:13}' in file.read_bytes()
    assert Offsets(tmp_path, ManualClock()).get("billing", "orders", 0) == 13
    file.write_bytes(file.read_bytes()[:-30])
    assert Offsets(tmp_path, ManualClock()).get("billing", "orders", 0) == 12


def test_file_of_a_java_broker_is_read(tmp_path: Path) -> None:
    (tmp_path / "consumerOffset.json").write_text(
        '{\n\t"dataVersion":{"counter":5,"stateVersion":0,"timestamp":1},\n'
        '\t"groupTopicMap":{"g":["t"]},\n\t"offsetTable":{"t@g":{0:12,1:7\n},"u@g":{"3":4}}\n}'
    )
    offsets = Offsets(tmp_path, ManualClock())
    assert offsets.table("g", "t") == {0: 12, 1: 7}
    assert offsets.table("g", "u") == {3: 4}
    assert offsets.data_version.counter == 5


def test_file_is_written_only_after_changes(tmp_path: Path, offsets: Offsets) -> None:
    file = tmp_path / "consumerOffset.json"
    offsets.save()
    assert not file.exists()
    offsets.set("g", "t", 0, 1)
    offsets.save()
    text = file.read_bytes()
    offsets.save()
    assert file.read_bytes() == text
    assert offsets.data_version.counter == 1


async def test_failed_write_is_tried_again_and_takes_no_offset_back(
    tmp_path: Path, offsets: Offsets, broken_disk: BrokenDisk
) -> None:
    offsets.set("g", "t", 0, 1)
    broken_disk.refuse = True
    with pytest.raises(DiskFull):
        await offsets.saved()
    broken_disk.refuse = False
    await offsets.saved()
    assert Offsets(tmp_path, ManualClock()).get("g", "t", 0) == 1


async def test_the_log_is_on_disk_before_the_offsets_that_speak_of_it(tmp_path: Path) -> None:
    seen: list[bool] = []

    async def log_on_disk() -> None:
        seen.append((tmp_path / "consumerOffset.json").exists())

    offsets = Offsets(tmp_path, ManualClock(), log_on_disk)
    offsets.set("g", "t", 0, 1)
    await offsets.saved()
    assert seen == [False]
    assert (tmp_path / "consumerOffset.json").exists()


def test_reset_is_told_once_and_committed_at_once(offsets: Offsets) -> None:
    offsets.set("g", "t", 0, 100)
    offsets.set_reset("g", "t", 0, 40)
    assert offsets.get("g", "t", 0) == 40
    assert offsets.has_reset("g", "t", 0)
    assert not offsets.has_reset("g", "t", 1)
    assert offsets.take_reset("g", "t", 0) == 40
    assert offsets.take_reset("g", "t", 0) is None


def test_removed_topics_and_groups_leave_nothing(offsets: Offsets) -> None:
    for group in ("g1", "g2"):
        for topic in ("t1", "t2"):
            offsets.set(group, topic, 0, 5)
    offsets.pulled("g1", "t1", 0, 9)
    offsets.remove_topic("t1")
    assert offsets.topics_of("g1") == {"t2"}
    assert offsets.pull_offset("g1", "t1", 0) == -1
    offsets.remove_group("g1")
    assert offsets.groups() == {"g2"}
    assert offsets.groups_of("t2") == {"g2"}


def test_clone_gives_the_other_group_the_same_offsets(offsets: Offsets) -> None:
    offsets.set("g1", "t", 0, 5)
    offsets.set("g1", "t", 3, 6)
    offsets.clone("g1", "g2", "t")
    assert offsets.table("g2", "t") == {0: 5, 3: 6}
    offsets.clone("none", "g2", "t")
    assert offsets.table("g2", "t") == {0: 5, 3: 6}


def test_a_deleted_group_is_told_of_no_reset_when_it_comes_again(offsets: Offsets) -> None:
    for remove, name in ((offsets.remove_group, "billing"), (offsets.remove_topic, "orders")):
        offsets.set_reset("billing", "orders", 0, 5)
        offsets.pulled("billing", "orders", 0, 9)
        remove(name)
        assert not offsets.has_reset("billing", "orders", 0)
        assert offsets.take_reset("billing", "orders", 0) is None
        assert offsets.pull_offset("billing", "orders", 0) == -1
        assert (offsets.groups(), offsets.groups_of("orders")) == (set(), set())


def test_a_reset_that_was_taken_leaves_nothing_behind(offsets: Offsets) -> None:
    offsets.pulled("billing", "orders", 0, 9)
    offsets.set_reset("billing", "orders", 0, 5)
    assert offsets.pull_offset("billing", "orders", 0) == -1, "what was read on from is moved too"
    offsets.set_reset("billing", "orders", 1, 6)
    assert offsets.take_reset("billing", "orders", 0) == 5
    assert offsets.has_reset("billing", "orders", 1)
    assert offsets.take_reset("billing", "orders", 1) == 6
    assert offsets._resets == {}


async def test_a_copy_of_another_groups_offsets_is_kept(tmp_path: Path, offsets: Offsets) -> None:
    offsets.set("billing", "orders", 0, 5)
    await offsets.saved()
    offsets.clone("billing", "audit", "orders")
    offsets.clone("unknown", "other", "orders")
    await offsets.saved()
    again = Offsets(tmp_path, ManualClock())
    assert (again.get("audit", "orders", 0), again.groups()) == (5, {"audit", "billing"})


def test_who_asks_for_names_may_do_with_them_what_he_likes(offsets: Offsets) -> None:
    offsets.set("billing", "orders", 0, 5)
    for names in (offsets.groups_of("orders"), offsets.topics_of("billing"), offsets.groups()):
        names.clear()
    offsets.table("billing", "orders").clear()
    assert offsets.groups_of("orders") == {"billing"}
    assert (offsets.topics_of("billing"), offsets.groups()) == ({"orders"}, {"billing"})
    assert offsets.get("billing", "orders", 0) == 5


@pytest.mark.parametrize(
    "change",
    [
        lambda offsets: offsets.set("g", "t", 0, 6),
        lambda offsets: offsets.set_reset("g", "t", 0, 3),
        lambda offsets: offsets.clone("g", "h", "t"),
        lambda offsets: offsets.remove_group("g"),
        lambda offsets: offsets.remove_topic("t"),
    ],
)
def test_whatever_becomes_of_an_offset_is_to_be_written_down(tmp_path: Path, change: Any) -> None:
    offsets = Offsets(tmp_path, ManualClock())
    offsets.set("g", "t", 0, 5)
    offsets.save()
    assert not offsets.unsaved
    change(offsets)
    assert offsets.unsaved
    offsets.save()
    again = Offsets(tmp_path, ManualClock())
    for group in ("g", "h"):
        assert again.table(group, "t") == offsets.table(group, "t")
