# SPDX-License-Identifier: Apache-2.0
"""Limits, times and defaults are what tests/golden/limits.json says; `python -m tests.pinned` writes it anew."""

from __future__ import annotations

import json

import pytest

from tests.pinned import LIMITS, limits_of

PINNED, OURS = json.loads(LIMITS.read_text())["client"], limits_of("client")


@pytest.mark.parametrize("name", sorted(PINNED["constants"].keys() | OURS["constants"].keys()))
def test_limits_and_times_are_what_they_were(name: str) -> None:
    assert OURS["constants"].get(name) == PINNED["constants"].get(name)


@pytest.mark.parametrize("name", sorted(PINNED["defaults"].keys() | OURS["defaults"].keys()))
def test_what_is_not_said_means_what_it_meant(name: str) -> None:
    assert OURS["defaults"].get(name) == PINNED["defaults"].get(name)
