# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from collections.abc import Iterator

# Examples take as long as the machine lets them: how long is no property of the code.
settings.register_profile("unhurried", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("unhurried")


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
