# SPDX-License-Identifier: Apache-2.0
"""Numbers, names and defaults of a package as its modules declare them, to be held against a file in tests/golden.

No test of behaviour looks at most of them: a limit that became another, a time ten times as long. Whoever changes one
changes the file too, and so says that it was meant: `python -m tests.pinned` writes tests/golden/limits.json anew, and
the difference is to be read before it is committed.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import inspect
import json
import pkgutil
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from types import ModuleType

LIMITS = Path(__file__).parent / "golden" / "limits.json"
PACKAGES = {
    "broker": (),
    "client": (),
    "fronts": ("grpc.generated",),
    "spark": (),
}  # and what is not ours in them
_PLAIN = (int, float, str, bytes)


def modules_of(package: ModuleType, *without: str) -> dict[str, ModuleType]:
    """By their names within the package; without those that only load where the lane is compiled."""
    start = f"{package.__name__}."
    named = (found.name for found in pkgutil.walk_packages(package.__path__, start))
    return {
        name.removeprefix(start): importlib.import_module(name)
        for name in named
        if not name.removeprefix(start).startswith(without) and not _needs_the_lane(name)
    }


def _needs_the_lane(name: str) -> bool:
    spec = importlib.util.find_spec(name)
    assert spec is not None
    assert spec.origin is not None
    return "\nfrom aerobee.native." in Path(spec.origin).read_text()


def plain(value: Any) -> Any:
    """As JSON has it, or as Python writes it."""
    if isinstance(value, Enum):
        return value.name
    if isinstance(value, msgspec.Raw):
        return bytes(value).decode()
    return value if value is None or isinstance(value, str | int | float) else repr(value)


def constants(module: ModuleType) -> dict[str, Any]:
    """The public numbers and texts, and tuples of them, that the module declares itself."""
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
        if name.isupper() and not name.startswith("_") and _is_plain(value := vars(module)[name])
    }


def _is_plain(value: Any) -> bool:
    if type(value) is tuple:
        return all(isinstance(each, _PLAIN) for each in value)
    return isinstance(value, _PLAIN)


def defaults(modules: dict[str, ModuleType]) -> dict[str, dict[str, Any]]:
    """`module.Class` -> field -> default, of every struct, tuple and data class that has any."""
    return {
        f"{short}.{name}": found
        for short, module in modules.items()
        for name, kind in vars(module).items()
        if isinstance(kind, type) and kind.__module__ == module.__name__ and (found := defaults_of(kind))
    }


def defaults_of(kind: type) -> dict[str, Any]:
    """By the name that travels, of a struct; by its own, of the others."""
    if issubclass(kind, msgspec.Struct):
        pairs = zip(reversed(kind.__struct_encode_fields__), reversed(kind.__struct_defaults__), strict=False)
        return {
            name: plain(default.factory() if type(default).__name__ == "Factory" else default)
            for name, default in pairs
            if default is not msgspec.NODEFAULT
        }
    if is_dataclass(kind):
        return {each.name: plain(each.default) for each in fields(kind) if each.default is not MISSING}
    return {name: plain(default) for name, default in getattr(kind, "_field_defaults", {}).items()}


def limits_of(package: str) -> dict[str, dict[str, Any]]:
    modules = modules_of(importlib.import_module(f"aerobee.{package}"), *PACKAGES[package])
    found = {name: table for name in sorted(modules) if (table := constants(modules[name]))}
    return {"constants": found, "defaults": dict(sorted(defaults(modules).items()))}


if __name__ == "__main__":
    LIMITS.write_text(json.dumps({package: limits_of(package) for package in PACKAGES}, indent=1) + "\n")
