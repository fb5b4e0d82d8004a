# SPDX-License-Identifier: Apache-2.0
"""Numbers, names and defaults that peers rely on. No peer tells us when one of ours is wrong: it only does not
understand. tests/golden/numbers_and_names.json has them as RocketMQ has them; what is new may be added there."""

from __future__ import annotations

import ast
import importlib
import inspect
import json
import pkgutil
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from aerobee import protocol
from aerobee.protocol import codes, names, properties

if TYPE_CHECKING:
    from types import ModuleType

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


def plain(value: Any) -> Any:
    if isinstance(value, Enum):
        return value.name
    if isinstance(value, msgspec.Raw):
        return bytes(value).decode()
    return value if value is None or isinstance(value, str | int | float) else repr(value)


MODULES = {
    module.name.removeprefix(f"{protocol.__name__}."): importlib.import_module(module.name)
    for module in pkgutil.walk_packages(protocol.__path__, f"{protocol.__name__}.")
}


def defaults_of(kind: type) -> dict[str, Any]:
    """By the name that travels, of a struct; by its own, of a tuple."""
    if issubclass(kind, msgspec.Struct):
        found = {}
        pairs = zip(reversed(kind.__struct_encode_fields__), reversed(kind.__struct_defaults__), strict=False)
        for name, default in pairs:
            if default is not msgspec.NODEFAULT:
                made = default.factory() if type(default).__name__ == "Factory" else default
                found[name] = plain(made)
        return found
    return {name: plain(default) for name, default in getattr(kind, "_field_defaults", {}).items()}


OURS = {
    f"{short}.{name}": defaults
    for short, module in MODULES.items()
    for name, kind in vars(module).items()
    if isinstance(kind, type) and kind.__module__ == module.__name__ and (defaults := defaults_of(kind))
}


@pytest.mark.parametrize("name", PINNED["defaults"])
def test_what_a_peer_leaves_out_means_the_same_to_us(name: str) -> None:
    pinned, ours = PINNED["defaults"][name], OURS.get(name, {})
    assert {field: ours.get(field, "not there") for field in pinned} == pinned


def test_no_default_is_left_to_chance() -> None:
    """A new one is added to the file, once somebody has looked what RocketMQ takes it for."""
    pinned = {(name, field) for name, fields in PINNED["defaults"].items() for field in fields}
    assert {(name, field) for name, fields in OURS.items() for field in fields} - pinned == set()


def constants(module: ModuleType) -> dict[str, Any]:
    """Its public numbers and texts, those it declares itself."""
    named = [
        target.id
        for statement in ast.parse(inspect.getsource(module)).body
        if isinstance(statement, ast.Assign)
        for each in statement.targets
        for target in ast.walk(each)
        if isinstance(target, ast.Name)
    ]
    return {
        name: plain(value)
        for name in named
        if name.isupper() and not name.startswith("_")
        if isinstance(value := vars(module)[name], int | float | str | bytes)
    }


@pytest.mark.parametrize("name", sorted(MODULES.keys() - {"names", "properties"}))
def test_limits_marks_and_versions_are_what_they_were(name: str) -> None:
    assert constants(MODULES[name]) == PINNED["constants"].get(name, {})


@pytest.mark.parametrize("name", PINNED["words"])
def test_words_are_written_as_rocketmq_writes_them(name: str) -> None:
    module, _, kind = name.rpartition(".")
    ours = getattr(importlib.import_module(f"aerobee.protocol.{module}"), kind).__members__
    pinned = PINNED["words"][name]
    assert {member: ours[member].value if member in ours else None for member in pinned} == pinned
