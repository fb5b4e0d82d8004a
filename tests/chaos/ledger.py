# SPDX-License-Identifier: Apache-2.0
"""What a broker owes: every operation that was acknowledged, and those that were asked and may have been done."""

from __future__ import annotations

import random
import zlib
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any, NamedTuple

ABSENT = None  # the value of a setting that does not exist


class Place(NamedTuple):
    topic: str
    queue_id: int
    offset: int


class Kept(NamedTuple):
    """An acknowledged message: which, and where its record is in the log."""

    name: str
    physical: int


class Timed(NamedTuple):
    due: int
    physical: int


def body_of(name: str) -> bytes:
    """The only body a message of that name may have; its size varies with the name."""
    dice = random.Random(name)
    filling = dice.randbytes(dice.choice((0, 10, 200, 200, 3000)))
    return b"%s|%08x|%s" % (name.encode(), zlib.crc32(filling), filling)


def name_of(body: bytes) -> str:
    """The name of a message; AssertionError when one byte of it is wrong."""
    name = body.partition(b"|")[0].decode(errors="replace")
    assert body == body_of(name), f"wrong bytes in a message: {body[:60]!r}"
    return name


class Settings:
    """Values as they were last acknowledged, and those asked for since without an answer."""

    def __init__(self) -> None:
        self._sure: dict[tuple[str, ...], Any] = {}
        self._asked: dict[tuple[str, ...], list[Any]] = defaultdict(list)

    def ask(self, key: tuple[str, ...], value: Any) -> None:
        self._asked[key].append(value)

    def done(self, key: tuple[str, ...], value: Any) -> None:
        self._sure[key] = value
        self._asked.pop(key, None)

    def known(self) -> list[tuple[str, ...]]:
        return sorted(self._sure.keys() | self._asked.keys())

    def sure(self, key: tuple[str, ...]) -> Any:
        return self._sure.get(key, ABSENT)

    def possible(self, key: tuple[str, ...]) -> list[Any]:
        return [self.sure(key), *self._asked.get(key, [])]

    def found(self, key: tuple[str, ...], value: Any) -> None:
        """From now on it has to stay so."""
        assert value in self.possible(key), f"{key} is {value}; acknowledged or asked: {self.possible(key)}"
        self.done(key, value)


@dataclass
class Ledger:
    messages: dict[Place, Kept] = field(default_factory=dict)
    committed: set[str] = field(default_factory=set)  # transactions
    rolled_back: set[str] = field(default_factory=set)
    timed: dict[str, Timed] = field(default_factory=dict)
    commits: dict[Place, int] = field(
        default_factory=dict
    )  # the highest offset asked for; place's offset is 0
    settings: Settings = field(default_factory=Settings)
    acked: dict[str, int] = field(default_factory=dict)  # popped messages -> when the last ack was answered
    ack_asked: set[str] = field(default_factory=set)  # an ack without an answer may have been kept
    stops: list[int] = field(default_factory=list)  # when the broker was killed
    topics: set[str] = field(default_factory=set)  # whatever was sent to
    refusals: list[str] = field(default_factory=list)  # answers that should not have been
    operations: int = 0
    closed: bool = False  # the power is gone: what is heard now does not count

    def done(self) -> bool:
        """One more acknowledged operation, if it still counts."""
        if not self.closed:
            self.operations += 1
        return not self.closed

    def sent(self, place: Place, name: str, physical: int) -> None:
        if self.done():
            known = self.messages.get(place)
            assert known is None or known.name == name, f"{place} was given to {known} and to {name}"
            self.messages[place] = Kept(name, physical)

    def topic_gone(self, topic: str) -> None:
        """Its deletion was asked for: its messages may be gone from now on."""
        self.messages = {place: kept for place, kept in self.messages.items() if place.topic != topic}
        self.topics.discard(topic)
