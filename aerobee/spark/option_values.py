# SPDX-License-Identifier: Apache-2.0
"""What the text of one option may say. Each reader takes the text and raises ValueError telling what it expected."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from aerobee.clock import SystemClock
from aerobee.protocol.durations import UNITS_MS, relative, written
from aerobee.protocol.filters import compile_filter
from aerobee.protocol.names import check_group, check_topic
from aerobee.spark import schema
from aerobee.spark.reading import plan

if TYPE_CHECKING:
    from collections.abc import Callable

Offsets = dict[str, dict[str, dict[str, int]]]  # topic -> broker -> queue -> offset
Assignment = dict[str, dict[str, list[int]]]  # topic -> broker -> queues
EARLIEST, LATEST = -2, -1

_ADDRESS = re.compile(r"(\[[0-9a-fA-F:]+\]|[^:\s]+):(\d{1,5})")
_DURATION = re.compile(r"(\d+)\s*(ms|s|m|h|d)?")


class Position(msgspec.Struct, frozen=True):
    """Where reading starts or ends: a word, offsets per queue, a time for all, or times per topic."""

    word: str = ""
    offsets: Offsets | None = None
    timestamp: int | None = None
    timestamps: dict[str, int] | None = None


def text(raw: str) -> str:
    return raw.strip()


AS_IS = "text:"  # before a secret that may look like one of the other forms


def secret(raw: str) -> str:
    """The secret itself, `@file` with it, or `env:NAME`: so that it need not stand on a command line."""
    if raw.startswith(AS_IS):
        return raw.removeprefix(AS_IS)
    kind, name = (raw[:1], raw[1:]) if raw.startswith("@") else (raw[:4], raw[4:])
    if kind == "@":
        try:
            return Path(name).expanduser().read_text().strip()
        except OSError as error:
            raise ValueError(f"the file {name!r} cannot be read: {error.strerror}") from None
    if kind == "env:":
        if name not in os.environ:
            raise ValueError(f"the environment has no variable {name!r}")
        return os.environ[name]
    return raw.strip()


def whole(low: int) -> Callable[[str], int]:
    """A whole number, at least `low`."""

    def read(raw: str) -> int:
        try:
            value = int(raw)
        except ValueError:
            raise ValueError("expected a whole number") from None
        if value < low:
            raise ValueError(f"expected at least {low}")
        return value

    return read


def flag(raw: str) -> bool:
    if raw.strip().lower() not in ("true", "false"):
        raise ValueError("expected true or false")
    return raw.strip().lower() == "true"


_SWITCH = {"on": True, "true": True, "off": False, "false": False}


def is_on(raw: str) -> bool:
    """A switch as clients write it, on or off, or as Spark's users do, true or false."""
    if raw.strip().lower() not in _SWITCH:
        raise ValueError("expected on or off")
    return _SWITCH[raw.strip().lower()]


def file(raw: str) -> str:
    """Its whole path: Spark's processes need not have the directory of who names it."""
    return str(Path(raw.strip()).expanduser().absolute())


def word_of(*words: str) -> Callable[[str], str]:
    def read(raw: str) -> str:
        if raw.strip().lower() not in words:
            raise ValueError(f"expected {' or '.join(words)}")
        return raw.strip().lower()

    return read


def duration_ms(raw: str) -> int:
    match = _DURATION.fullmatch(raw.strip())
    if not match:
        raise ValueError("expected a duration such as 15m or 500ms")
    return int(match[1]) * UNITS_MS[match[2] or "ms"]


def addresses(raw: str) -> str:
    found = [address.strip() for address in raw.split(";")]
    for address in found:
        match = _ADDRESS.fullmatch(address)
        if not match or not 0 < int(match[2]) < 1 << 16:
            raise ValueError("expected host:port;host:port")
    return ";".join(found)


def topics(raw: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in raw.split(",") if name.strip())
    if not names:
        raise ValueError("names no topic")
    for name in names:
        check_topic(name)
    return names


def pattern(raw: str) -> str:
    try:
        re.compile(raw.strip())
    except re.error as error:
        raise ValueError(str(error)) from None
    return raw.strip()


def group(raw: str) -> str:
    check_group(raw.strip())
    return raw.strip()


def any_of_tags(given: Any) -> str:
    """A text as it is, or one for several texts: any of them. What else it is would be a tag that nothing has."""
    if isinstance(given, str):
        return given
    if not isinstance(given, (list, tuple, set, frozenset)):
        raise ValueError("expected a text or a list of texts")
    for each in given:
        if not isinstance(each, str) or not each.strip():
            raise ValueError(f"{each!r} is no tag")
    if not given:
        raise ValueError("names no tag")
    return "||".join(sorted(given) if isinstance(given, (set, frozenset)) else given)


def tags(raw: str) -> str:
    return raw.strip() or "*"


def sql(raw: str) -> str:
    try:
        compile_filter("SQL92", raw.strip())
    except Exception as error:
        raise ValueError(str(error)) from None
    return raw.strip()


def columns(raw: str) -> tuple[str, ...]:
    names = schema.check(tuple(name.strip() for name in raw.split(",") if name.strip()))
    if not names:
        raise ValueError("names no column")
    return names


def assignment(raw: str) -> Assignment:
    found: Assignment = _json(raw, Assignment, '{"topic": {"broker-a": [0, 1]}}')
    if not any(queues for brokers in found.values() for queues in brokers.values()):
        raise ValueError("names no queue")
    return found


def place(raw: str) -> Position:
    """Offsets by a word, or by JSON for each queue (-2 earliest, -1 latest)."""
    word = raw.strip().lower()
    if word in ("earliest", "latest", "group"):
        return Position(word=word)
    if not word.startswith("{"):
        raise ValueError("expected earliest, latest, group or JSON offsets")
    offsets = _json(raw, Offsets, '{"topic": {"broker-a": {"0": 123}}}')
    for topic, broker, queue, offset in plan.flat(offsets):
        if not queue.isdigit():
            raise ValueError(f"queue {queue!r} of {topic}/{broker} is no number")
        if offset < EARLIEST:
            raise ValueError(f"offset {offset} of {topic}/{broker}/{queue} is not possible")
    return Position(offsets=offsets)


def time(raw: str) -> Position:
    """Epoch milliseconds, a date, or a time from now on or back."""
    raw = raw.strip()
    if (meant := relative(raw, SystemClock().wall())) is not None:
        return Position(timestamp=meant)
    is_date = not raw.isdigit() or len(raw) == 14  # 20261119214900, as RocketMQ's tools write it
    if is_date and (meant := written(raw)) is not None:
        return Position(timestamp=meant)
    try:
        return Position(timestamp=whole(0)(raw))
    except ValueError:
        raise ValueError(
            "expected epoch milliseconds, a time such as '2026-08-01 12:30', or one before now such as -1h, -30m or -2d"
        ) from None


def times(raw: str) -> Position:
    found = _json(raw, dict[str, int], '{"topic": 1700000000000}')
    for topic, timestamp in found.items():
        if timestamp < 0:
            raise ValueError(f"time {timestamp} of {topic} is not possible")
    return Position(timestamps=found)


def _json(raw: str, kind: Any, example: str) -> Any:
    try:
        return msgspec.convert(json.loads(raw), kind)
    except msgspec.ValidationError:
        raise ValueError(f"expected {example}") from None
    except ValueError as error:
        raise ValueError(f"no JSON ({error}), expected {example}") from None
