# SPDX-License-Identifier: Apache-2.0
"""Users' look at consuming: called before and after every handler call. A failing hook stops nothing."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING

from aerobee.client.consume.handler import ConsumeResult

if TYPE_CHECKING:
    from aerobee.client.consume.handler import Outcome
    from aerobee.client.message import ReceivedMessage

log = logging.getLogger("aerobee.client.consumer")


class ReturnType(StrEnum):
    SUCCESS = "SUCCESS"
    TIME_OUT = "TIME_OUT"
    EXCEPTION = "EXCEPTION"
    FAILED = "FAILED"


Before = Callable[["Sequence[ReceivedMessage]"], None]
After = Callable[["Sequence[ReceivedMessage]", ReturnType, int], None]


class Hooks:
    def __init__(self, timeout_ms: int) -> None:
        self._before: list[Before] = []
        self._after: list[After] = []
        self._timeout_ms = timeout_ms
        self.active = False

    def add(self, before: Before | None = None, after: After | None = None) -> None:
        if before is not None:
            self._before.append(before)
        if after is not None:
            self._after.append(after)
        self.active = bool(self._before or self._after)

    def before(self, messages: Sequence[ReceivedMessage], now: int) -> None:
        for hook in self._before:
            try:
                hook(messages)
            except Exception:
                log.exception("hook before consuming failed")

    def after(self, messages: Sequence[ReceivedMessage], outcome: Outcome, now: int) -> None:
        took_ms = now - messages[0].consume_started
        kind = self.return_type(outcome, took_ms)
        for hook in self._after:
            try:
                hook(messages, kind, took_ms)
            except Exception:
                log.exception("hook after consuming failed")

    def return_type(self, outcome: Outcome, took_ms: int) -> ReturnType:
        if outcome.error is not None:
            return ReturnType.EXCEPTION
        if took_ms >= self._timeout_ms:
            return ReturnType.TIME_OUT
        good = outcome.result in (ConsumeResult.SUCCESS, ConsumeResult.COMMIT)
        return ReturnType.SUCCESS if good else ReturnType.FAILED
