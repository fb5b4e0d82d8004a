# SPDX-License-Identifier: Apache-2.0
"""What a setting is: one annotation says everything about it, and every door reads it there.

    retention_hours: Annotated[float, setting("age at which ...", "fileReservedTime", unit="hours",
                                              low=0.01, high=876_000, live=True)] = 72

`Field` is that annotation with the field's name, type and default. It reads a value from text, refuses what is out
of range, and writes it back, under our name or RocketMQ's. A struct of settings checks itself when it is made, so
a value that is in one has been checked, whichever door it came through.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cache
from typing import Any, get_type_hints

import msgspec

MEGABYTE = 1024 * 1024
TERABYTE = 1 << 40
# Upper ends that nobody comes near; they keep arithmetic and timers within bounds.
CENTURY_MS = 100 * 365 * 24 * 3600 * 1000
NO_LIMIT = 1 << 60

HIDDEN = "(hidden)"
_SWITCH = {"true": True, "false": False}
NOUNS = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}


@dataclass(frozen=True)
class Setting:
    """`official` is RocketMQ's name where it is not simply the camel-case form of ours; what it counts may differ:
    ours = theirs * `factor` (per cent, seconds). `words` are values that are written differently there. A `secret` is
    shown to nobody."""

    text: str
    official: str = ""
    unit: str = ""
    low: float | None = None
    high: float | None = None
    live: bool = False
    factor: float = 1
    words: dict[str, Any] = field(default_factory=dict)
    secret: bool = False


setting = Setting


def interval(text: str, official: str = "", *, low: int = 1, live: bool = False) -> Setting:
    return Setting(text, official, unit="ms", low=low, high=CENTURY_MS, live=live)


def port_number(text: str, official: str = "", *, low: int = -1) -> Setting:
    return Setting(text, official, low=low, high=65_535)


def size(text: str, official: str = "", *, low: int = 0, high: int = TERABYTE, live: bool = False) -> Setting:
    return Setting(text, official, unit="bytes", low=low, high=high, live=live)


def choice(text: str, *allowed: str, official: str = "") -> Setting:
    return Setting(text, official, words={each: each for each in allowed})


@dataclass(frozen=True)
class Field:
    """A setting where it stands: `table` is [broker], [store] or [namesrv]."""

    table: str
    name: str
    kind: type
    default: Any
    about: Setting

    @property
    def camel(self) -> str:
        head, *rest = self.name.split("_")
        return head + "".join(part.title() for part in rest)

    @property
    def official(self) -> str:
        return self.about.official or self.camel

    @property
    def names(self) -> tuple[str, ...]:
        """Every name it goes by: our own, its camel-case form, RocketMQ's."""
        return tuple(dict.fromkeys((self.name, self.camel, self.official)))

    @property
    def range(self) -> str:
        """In words; empty where any value of the type will do."""
        return self._range_as(self.name)

    def _range_as(self, called: str) -> str:
        about = self.about
        if about.words:
            known = about.words if self._officially(called) else about.words.values()
            return " or ".join(self._shown(each, called) for each in known)
        if about.low is None or about.high is None:
            return ""
        low, high = self._shown(about.low, called), self._shown(about.high, called)
        unit = f" {about.unit}" if about.unit and not self._scaled(called) else ""
        return f"at least {low}{unit}" if about.high in (CENTURY_MS, NO_LIMIT) else f"{low} to {high}{unit}"

    def _officially(self, called: str) -> bool:
        return called == self.official and called != self.name

    def _scaled(self, called: str) -> bool:
        return self.about.factor != 1 and called == self.about.official

    def _shown(self, value: Any, called: str) -> str:
        if isinstance(value, bool):
            return str(value).lower()
        if isinstance(value, (int, float)):
            number = round(value / self.about.factor, 9) if self._scaled(called) else value
            return str(int(number)) if number == int(number) else str(number)
        return str(value)

    def text(self, value: Any) -> str:
        """As it is written under our name for it."""
        return self._shown(self.told(value), self.name)

    def told(self, value: Any) -> Any:
        """What may be shown of it."""
        return HIDDEN if self.about.secret and value else value

    def show(self, value: Any) -> str:
        """As RocketMQ writes it under its own name."""
        for word, own in self.about.words.items():
            if own == value:
                return word
        return self._shown(value, self.official)

    def read(self, given: Any, called: str) -> Any:
        """A value given under one of its names, mostly as text. ValueError with one line that says what may be."""
        value = self.about.words.get(given, given) if isinstance(given, str) else given
        try:
            if self._scaled(called):
                value = self._from_official(value)
            elif isinstance(value, str):
                value = self._from_text(value)
        except (ValueError, OverflowError):  # no number, nan, infinite
            raise self._refused(given, called) from None
        if not self.allows(value):
            raise self._refused(given, called)
        return value

    def check(self, value: Any) -> None:
        if not self.allows(value):
            raise self._refused(value, self.name)

    def _from_text(self, text: str) -> Any:
        if self.kind is bool:
            return _SWITCH.get(text.lower(), text)
        if self.kind is float and text.isdecimal():
            return int(text)  # 48 is read back as 48
        return text if self.kind is str else self.kind(text)

    def _from_official(self, given: Any) -> Any:
        if isinstance(given, bool) or not isinstance(given, (str, int, float)):
            return given
        value = round(float(given) * self.about.factor, 9)
        return math.ceil(value) if self.kind is int else value

    def _is_of_kind(self, value: Any) -> bool:
        if isinstance(value, bool):
            return self.kind is bool
        return isinstance(value, (int, float) if self.kind is float else self.kind)

    def allows(self, value: Any) -> bool:
        about = self.about
        if not self._is_of_kind(value):
            return False
        if about.words:
            return value in about.words.values()
        if about.low is not None and about.high is not None:
            return math.isfinite(value) and about.low <= value <= about.high
        return True

    def _refused(self, given: Any, called: str) -> ValueError:
        known, what = self._range_as(called), NOUNS[self.kind]
        if known:
            joined = f"{what}, {known}" if known.startswith("at least") else f"{what} from {known}"
            what = known if self.about.words else joined
        other = "" if called in (self.name, self.camel) else f" ({self.name})"
        given = self.told(given)
        return ValueError(f"setting '{called}'{other}: {given!r} is not {what}")


class Declared(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A struct of settings: whatever makes one (an argument, a file, a request) gets it checked."""

    def __post_init__(self) -> None:
        for each in fields(type(self)).values():
            each.check(getattr(self, each.name))
        self.check_together()

    def __repr__(self) -> str:
        known = fields(type(self)).values()
        told = ", ".join(f"{each.name}={each.told(getattr(self, each.name))!r}" for each in known)
        return f"{type(self).__name__}({told})"

    def check_together(self) -> None:
        """Raise ValueError when settings, each good, are not good together."""


@cache
def fields(kind: type[Declared]) -> dict[str, Field]:
    """The settings of a struct by our name for them."""
    table = kind.__name__.removesuffix("Config").lower()
    hints = get_type_hints(kind, include_extras=True)
    return {
        each.name: Field(
            table, each.name, hints[each.name].__origin__, each.default, hints[each.name].__metadata__[0]
        )
        for each in msgspec.structs.fields(kind)
    }
