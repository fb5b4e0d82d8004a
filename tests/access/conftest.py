# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.access.ports import Ports, running

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@pytest.fixture
async def ports() -> AsyncIterator[Ports]:
    async with running() as made:
        yield made
