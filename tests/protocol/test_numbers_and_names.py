# SPDX-License-Identifier: Apache-2.0
"""Numbers, names and defaults that peers rely on. No peer tells us when one of ours is wrong: it only does not
understand. tests/golden/numbers_and_names.json has them as RocketMQ has them; what is new may be added there."""

from __future__ import annotations

import importlib
import json
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from aerobee import protocol
from aerobee.protocol import codes, names, properties
from tests.pinned import constants, defaults, modules_of

if TYPE_CHECKING:
    from enum import Enum

PINNED = json.loads((Path(__file__).parents[1] / "golden" / "numbers_and_names.json").read_text())


@pytest.mark.parametrize(
    ("table", "kind"),
    [
        ("requests", codes.RequestCode),
        ("responses", codes.ResponseCode),
        ("SysFlag", codes.SysFlag),
        ("PullFlag", codes.PullFlag),
        ("Perm", codes.Perm),
        ("Serialize", codes.Serialize),
    ],
)
def test_codes_and_flags_are_rocketmqs(table: str, kind: type[Enum]) -> None:
    ours = {name: member.value for name, member in kind.__members__.items()}
    assert {name: ours.get(name) for name in PINNED[table]} == PINNED[table]


def test_languages_are_numbered_as_rocketmq_numbers_them() -> None:
    assert list(codes.LANGUAGES)[: len(PINNED["languages"])] == PINNED["languages"]


@pytest.mark.parametrize(("table", "module"), [("properties", properties), ("names", names)])
def test_names_of_properties_topics_and_groups_are_rocketmqs(table: str, module: object) -> None:
    assert {name: getattr(module, name, None) for name in PINNED[table]} == PINNED[table]


MODULES = modules_of(protocol)
OURS = defaults(MODULES)


@pytest.mark.parametrize("name", PINNED["defaults"])
def test_what_a_peer_leaves_out_means_the_same_to_us(name: str) -> None:
    pinned, ours = PINNED["defaults"][name], OURS.get(name, {})
    assert {field: ours.get(field, "not there") for field in pinned} == pinned


def test_no_default_is_left_to_chance() -> None:
    """A new one is added to the file, once somebody has looked what RocketMQ takes it for."""
    pinned = {(name, field) for name, fields in PINNED["defaults"].items() for field in fields}
    assert {(name, field) for name, fields in OURS.items() for field in fields} - pinned == set()


@pytest.mark.parametrize("name", sorted(MODULES.keys() - {"names", "properties"}))
def test_limits_marks_and_versions_are_what_they_were(name: str) -> None:
    assert constants(MODULES[name]) == PINNED["constants"].get(name, {})


@pytest.mark.parametrize("name", PINNED["words"])
def test_words_are_written_as_rocketmq_writes_them(name: str) -> None:
    module, _, kind = name.rpartition(".")
    ours = getattr(importlib.import_module(f"aerobee.protocol.{module}"), kind).__members__
    pinned = PINNED["words"][name]
    assert {member: ours[member].value if member in ours else None for member in pinned} == pinned


def test_no_word_is_left_to_chance() -> None:
    """A new one is added to the file, once somebody has looked how RocketMQ writes it."""
    not_written = {"access.Pattern"}  # only kept in memory
    ours = {
        f"{name}.{kind.__name__}"
        for name, module in MODULES.items()
        for kind in vars(module).values()
        if isinstance(kind, type) and issubclass(kind, StrEnum) and kind.__module__ == module.__name__
    }
    assert ours - not_written == PINNED["words"].keys()
