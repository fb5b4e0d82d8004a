# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from aerobee.broker.state.groups import Groups
from aerobee.clock import ManualClock
from aerobee.errors import DiskFull, GroupNotFound
from aerobee.protocol.bodies import GroupConfig
from aerobee.settings import BrokerConfig, InForce

if TYPE_CHECKING:
    from pathlib import Path

    from tests.broker.state.conftest import BrokenDisk


@pytest.mark.seed("S004-3", "S004-66", "S004-85")
def test_group_is_created_on_first_use_with_default_settings_and_kept(tmp_path: Path) -> None:
    groups = Groups(tmp_path, ManualClock())
    group = groups.require("billing")
    assert (group.retry_max_times, group.retry_queue_nums, group.consume_enable) == (16, 1, True)
    groups.save()
    assert (tmp_path / "subscriptionGroup.json").exists(), "RocketMQ's name for it"
    assert Groups(tmp_path, ManualClock()).get("billing") == group


NOT_CREATED = InForce(BrokerConfig(auto_create_groups=False))


def test_group_is_not_created_when_that_is_off_or_the_name_is_illegal(tmp_path: Path) -> None:
    with pytest.raises(GroupNotFound, match="billing"):
        Groups(tmp_path, ManualClock(), NOT_CREATED).require("billing")
    with pytest.raises(GroupNotFound, match="characters"):
        Groups(tmp_path, ManualClock()).require("bill ing")


def test_system_groups_are_always_there(tmp_path: Path) -> None:
    groups = Groups(tmp_path, ManualClock(), NOT_CREATED)
    assert groups.get("TOOLS_CONSUMER") is not None
    assert groups.require("CID_RMQ_SYS_SOMETHING").group_name == "CID_RMQ_SYS_SOMETHING"


def test_what_an_operator_set_for_a_group_of_the_systems_is_kept(tmp_path: Path) -> None:
    groups = Groups(tmp_path, ManualClock())
    groups.put(GroupConfig(group_name="TOOLS_CONSUMER", consume_enable=False))
    groups.save()
    again = Groups(tmp_path, ManualClock())
    assert again.require("TOOLS_CONSUMER").consume_enable is False
    assert again.data_version == groups.data_version


def test_group_may_be_forbidden_to_read_a_topic(tmp_path: Path) -> None:
    groups = Groups(tmp_path, ManualClock())
    groups.forbid("billing", "orders", 4)
    assert groups.forbidden("billing", "orders")
    assert not groups.forbidden("billing", "other")
    groups.save()
    assert Groups(tmp_path, ManualClock()).forbidden("billing", "orders")
    groups.forbid("billing", "orders", 0)
    assert not groups.forbidden("billing", "orders")


def test_deleted_group_is_gone(tmp_path: Path) -> None:
    clock = ManualClock()
    groups = Groups(tmp_path, clock)
    groups.put(GroupConfig(group_name="billing", retry_max_times=3))
    groups.save()
    groups.delete("billing")
    assert groups.get("billing") is None
    groups.save()
    assert Groups(tmp_path, clock).get("billing") is None


async def test_what_cannot_be_saved_is_taken_back(tmp_path: Path, broken_disk: BrokenDisk) -> None:
    groups = Groups(tmp_path, ManualClock())
    groups.put(GroupConfig(group_name="billing", retry_max_times=3))
    groups.forbid("billing", "orders", 4)
    await groups.saved()
    broken_disk.refuse = True
    groups.put(GroupConfig(group_name="billing", consume_enable=False))
    groups.put(GroupConfig(group_name="new"))
    groups.forbid("billing", "orders", 0)
    with pytest.raises(DiskFull):
        await groups.saved()
    assert groups.get("billing") == GroupConfig(group_name="billing", retry_max_times=3)
    assert groups.get("new") is None
    assert groups.forbidden("billing", "orders")


def test_only_reading_can_be_forbidden(tmp_path: Path) -> None:
    groups = Groups(tmp_path, ManualClock())
    groups.forbid("billing", "orders", 2)
    assert not groups.forbidden("billing", "orders")
    groups.forbid("billing", "orders", 6)
    assert groups.forbidden("billing", "orders")


async def test_what_was_forbidden_to_a_deleted_group_is_not_forbidden_to_a_new_one(tmp_path: Path) -> None:
    groups = Groups(tmp_path, ManualClock())
    groups.require("billing")
    groups.forbid("billing", "orders", 4)
    await groups.saved()
    before = groups.data_version
    groups.delete("billing")
    assert groups.data_version != before
    await groups.saved()
    groups.require("billing")
    assert not groups.forbidden("billing", "orders")
    assert Groups(tmp_path, ManualClock()).get("billing") is None
    groups.delete("unknown")
    assert "unknown" not in groups.unsaved


async def test_who_remembers_a_groups_settings_by_their_version_sees_that_they_were_taken_back(
    tmp_path: Path, broken_disk: BrokenDisk
) -> None:
    groups = Groups(tmp_path, ManualClock())
    groups.put(GroupConfig(group_name="billing"))
    await groups.saved()
    broken_disk.refuse = True
    seen = [groups.data_version]
    groups.put(GroupConfig(group_name="billing", consume_enable=False))
    seen.append(groups.data_version)
    with pytest.raises(DiskFull):
        await groups.saved()
    assert groups.data_version not in seen


def test_what_is_put_as_it_is_changes_nothing(tmp_path: Path) -> None:
    groups = Groups(tmp_path, ManualClock())
    groups.put(GroupConfig(group_name="billing"))
    groups.save()
    version = groups.data_version
    groups.put(GroupConfig(group_name="billing"))
    assert (groups.data_version, groups.unsaved) == (version, {})
