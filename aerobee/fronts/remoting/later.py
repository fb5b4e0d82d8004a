# SPDX-License-Identifier: Apache-2.0
"""Answers that wait: for the disk."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from aerobee.net.connection import Answer
    from aerobee.net.routes import Later


def answer_after(waiting: Coroutine[Any, Any, None] | None, answer: Answer) -> Answer | Later:
    """The answer at once when there is nothing to wait for, a coroutine of it when there is."""
    return answer if waiting is None else _after(waiting, answer)


async def _after(waiting: Coroutine[Any, Any, None], answer: Answer) -> Answer:
    await waiting
    return answer
