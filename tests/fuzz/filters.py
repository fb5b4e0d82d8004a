# SPDX-License-Identifier: Apache-2.0
"""SQL filters put together from the grammar's words, and messages to try them on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aerobee.errors import SubscriptionParseFailed
from aerobee.protocol.filters.sql_eval import compile_sql

if TYPE_CHECKING:
    from random import Random

WORDS = [
    "a", "b", "TAGS", "$x_1", "AND", "OR", "NOT", "BETWEEN", "IN", "IS", "NULL", "TRUE", "FALSE", "CONTAINS",
    "STARTSWITH", "ENDSWITH", "(", ")", ",", "=", "<>", "<", "<=", ">", ">=", "+", "-", "'x'", "''", "'it''s'", "5",
    "0", "5.5", ".5", "5E3", "1e999", "9223372036854775807", "9223372036854775808", "9" * 50, "9" * 5000, "007", "5L",
    "-- c\n", "/* c */", "/*", "'", "²", "🐝", "\0", ";", "a b", "x" * 300,
]  # fmt: skip
SOUND = [
    "a = 1", "a BETWEEN 1 AND 5", "a IN ('x', 'y') OR b IS NOT NULL", "NOT (a > 5.5) AND b = 'x'", "a CONTAINS 'x'",
    "(a >= -3 AND a <= 9223372036854775807) OR TAGS = 'A'", "a IS NULL", "b STARTSWITH 'x' AND TRUE",
]  # fmt: skip
VALUES = [
    "",
    "1",
    "-1",
    "5.5",
    "x",
    "9" * 5000,
    "²",
    "٣",
    "1e999",
    "nan",
    "inf",
    " 1 ",
    "1_0",
    "true",
    "0x1",
    "-",
]


def check(chance: Random) -> str:
    """One filter, compiled and tried; returns its text. Only SubscriptionParseFailed may come of it, and is allowed."""
    text = _text(chance)
    try:
        accept = compile_sql(text)
    except SubscriptionParseFailed:
        return text
    for _ in range(3):
        accept({name: chance.choice(VALUES) for name in ("a", "b", "TAGS", "$x_1") if chance.random() < 0.8})
    return text


def _text(chance: Random) -> str:
    if chance.random() < 0.4:
        words = chance.choice(SOUND).split(" ")
        for _ in range(chance.randint(0, 3)):
            words[chance.randrange(len(words))] = chance.choice(WORDS)
        return " ".join(words)
    if chance.random() < 0.02:
        return "(" * chance.randint(100, 5000) + "a = 1"
    return " ".join(chance.choice(WORDS) for _ in range(chance.randint(0, 20)))
