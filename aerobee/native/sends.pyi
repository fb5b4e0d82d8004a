# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable
from typing import Any, Protocol

from aerobee.broker.state.stats import Meter
from aerobee.broker.state.topics import Topics
from aerobee.native.answers import Template
from aerobee.native.drafts import Draft
from aerobee.native.texts import Texts
from aerobee.protocol.bodies import TopicConfig

class Ask(Protocol):
    """What only Python knows."""
    @property
    def plain(self) -> Callable[[str], TopicConfig | None]: ...
    @property
    def choose(self) -> Callable[[int, TopicConfig, str], int]: ...
    @property
    def topics(self) -> Topics: ...
    @property
    def begin(self) -> Callable[[], bool]: ...
    def new_key(self) -> str: ...

class SendLane:
    calls: int
    answered: int
    code: int
    def __init__(
        self, fields: dict[int, Any], batches: frozenset[int], ask: Ask, draft: Draft, most_members: int
    ) -> None: ...
    def prepare(
        self,
        texts: Texts,
        sent: tuple[Template, Template],
        batch_sent: tuple[Template, Template],
        stamps: str,
        host_digits: str,
    ) -> None: ...
    def forget(self, name: str) -> None: ...
    def take(self, data: bytes, at: int, born_host: bytes, most: int) -> int: ...
    @property
    def answers(self) -> bytes: ...
    def count(
        self, meter_of: Callable[[str], Meter], large_run: Callable[[str, tuple[int, ...]], None]
    ) -> tuple[int, int, int]: ...
