# SPDX-License-Identifier: Apache-2.0
"""Limits, times and defaults are what tests/golden/limits.json says; `python -m tests.pinned` writes it anew."""

from __future__ import annotations

import json

import pytest

from tests.pinned import LIMITS, limits_of

PINNED = json.loads(LIMITS.read_text())
OURS = {package: limits_of(package) for package in PINNED}


def every(kind: str) -> list[tuple[str, str]]:
    """(package, name) of all that were pinned and all that there are."""
    return [
        (each, name)
        for each in PINNED
        for name in sorted(PINNED[each][kind].keys() | OURS[each][kind].keys())
    ]


@pytest.mark.parametrize(("package", "name"), every("constants"))
def test_limits_and_times_are_what_they_were(package: str, name: str) -> None:
    assert OURS[package]["constants"].get(name) == PINNED[package]["constants"].get(name)


@pytest.mark.parametrize(("package", "name"), every("defaults"))
def test_what_is_not_said_means_what_it_meant(package: str, name: str) -> None:
    assert OURS[package]["defaults"].get(name) == PINNED[package]["defaults"].get(name)
