# SPDX-License-Identifier: Apache-2.0
"""A struct of settings made of several others has the settings of all, and is each of them."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
import pytest

from aerobee.settings.declare import Declared, fields, setting
from aerobee.settings.parts import Parts


class Named(Declared, metaclass=Parts, frozen=True, kw_only=True):
    name: Annotated[str, setting("what it is called")] = "x"


class Sends(Named, frozen=True, kw_only=True):
    tries: Annotated[int, setting("how often", low=1, high=9)] = 2


class Reads(Named, frozen=True, kw_only=True):
    batch: Annotated[int, setting("how many", low=1, high=32)] = 8


class Both(Sends, Reads, frozen=True, kw_only=True):
    pause: Annotated[int, setting("how long")] = 5


class Below(Both, frozen=True, kw_only=True):
    """Has nothing of its own."""


def test_it_has_every_setting_once_with_its_default() -> None:
    assert msgspec.structs.asdict(Below()) == {"name": "x", "tries": 2, "batch": 8, "pause": 5}
    assert fields(Below)["batch"].about == fields(Reads)["batch"].about


def test_settings_of_every_part_are_checked() -> None:
    cases: tuple[dict[str, Any], ...] = ({"tries": 10}, {"batch": 33})
    for wrong in cases:
        with pytest.raises(ValueError, match="is not a whole number from"):
            Both(**wrong)
    with pytest.raises(ValueError, match="33"):
        msgspec.structs.replace(Both(), batch=33)
    with pytest.raises(AttributeError):
        Both().batch = 3  # type: ignore[misc]


def test_it_counts_as_each_of_its_parts() -> None:
    for kind in (Both, Below):
        for part in (Named, Sends, Reads, Declared, msgspec.Struct):
            assert issubclass(kind, part)
            assert isinstance(kind(), part)
    assert not isinstance(Sends(), Reads)
    assert not issubclass(Named, Both)
    assert not isinstance(1, Named)
