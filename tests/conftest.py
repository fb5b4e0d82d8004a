# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(autouse=True)
def log_levels_end_with_the_test() -> Iterator[None]:
    """Commands run in this process turn the log down for their user; the next test must hear it again."""
    ours, everyone = logging.getLogger("aerobee"), logging.getLogger()
    before = ours.level, everyone.level, list(everyone.handlers)
    yield
    ours.setLevel(before[0])
    everyone.setLevel(before[1])
    for handler in [h for h in everyone.handlers if h not in before[2]]:
        everyone.removeHandler(handler)
