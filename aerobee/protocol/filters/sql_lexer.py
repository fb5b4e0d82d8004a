# SPDX-License-Identifier: Apache-2.0
"""SQL92 filters, step one: text to tokens, each with its column.

Words are letters, digits, `_` and `$`, as RocketMQ's grammar has them: a property whose name holds anything
else cannot be named in a filter. Keywords are case-insensitive, property names are not. `--` and `/* */` are
comments.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from aerobee.errors import SubscriptionParseFailed
from aerobee.protocol.properties import whole_number

MAX_LENGTH = 32_768  # characters; a filter longer than all properties of a message can be is a mistake

KEYWORDS = frozenset(
    "AND OR NOT BETWEEN IN IS NULL TRUE FALSE CONTAINS STARTSWITH ENDSWITH".split()  # noqa: SIM905 reads better
)

_TOKEN = re.compile(
    r"""(?P<skip>[ \t\n\r\f]+ | --[^\n\r]* | /\*.*?\*/)
      | (?P<text>'(?:''|[^'])*')
      | (?P<decimal>(?:(?:[0-9]+\.[0-9]* | \.[0-9]+)(?:[eE][+-]?[0-9]+)? | [0-9]+[eE][+-]?[0-9]+)
            (?![A-Za-z0-9_$.]))
      | (?P<integer>(?:0|[1-9][0-9]*)[lL]?(?![A-Za-z0-9_$.]))
      | (?P<word>[A-Za-z_$][A-Za-z0-9_$]*)
      | (?P<sign><>|<=|>=|[=<>(),+\-])""",
    re.VERBOSE | re.DOTALL,
)

_HINTS = (
    ("!=", "write <> for 'not equal'"),
    ('"', "write text in single quotes"),
    ("'", "the text is not closed; a quote inside text is written ''"),
    ("&", "write AND"),
    ("|", "write OR"),
    ("/*", "the comment is not closed"),
    ("*", "there is no arithmetic"),
    ("/", "there is no arithmetic"),
    ("%", "there is no LIKE; use CONTAINS, STARTSWITH or ENDSWITH"),
)


class Token(NamedTuple):
    kind: str  # a keyword or sign itself, or: text, number, name, end
    value: str | int | float
    at: int  # column, from 1

    def __str__(self) -> str:
        if self.kind == "end":
            return "the end"
        return f"'{self.value}'" if self.kind in ("text", "name") else str(self.value)


def refuse(at: int, problem: str) -> SubscriptionParseFailed:
    return SubscriptionParseFailed(f"SQL92 filter, column {at}: {problem}")


def tokens(text: str) -> list[Token]:
    """All tokens, the last of kind `end`."""
    if len(text) > MAX_LENGTH:
        raise refuse(MAX_LENGTH, f"the filter has {len(text)} characters, limit {MAX_LENGTH}")
    found: list[Token] = []
    at = 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise refuse(at + 1, _unreadable(text[at:]))
        if match.lastgroup != "skip":
            found.append(_token(match, at + 1))
        at = match.end()
    found.append(Token("end", "", at + 1))
    return found


def _unreadable(rest: str) -> str:
    for start, hint in _HINTS:
        if rest.startswith(start):
            return f"cannot read {rest[:10]!r}: {hint}"
    if rest[0].isdigit() or rest[0] == ".":
        return (
            f"cannot read the number {rest[:20].split(' ')[0]!r}: write 5, 5.5 or 5E3, without leading zeros"
        )
    return f"cannot read {rest[:10]!r}: property names are letters, digits, _ and $"


def _token(match: re.Match[str], at: int) -> Token:
    image = match.group()
    match match.lastgroup:
        case "text":
            return Token("text", image[1:-1].replace("''", "'"), at)
        case "integer":
            value = whole_number(image.rstrip("lL"))
            if value is None:
                raise refuse(at, f"{image[:64]} is outside the 64-bit integers")
            return Token("number", value, at)
        case "decimal":
            decimal = float(image)
            if decimal == float("inf"):
                raise refuse(at, f"{image} is outside the 64-bit decimals")
            return Token("number", decimal, at)
        case "word" if image.upper() in KEYWORDS:
            return Token(image.upper(), image, at)
        case "word":
            return Token("name", image, at)
        case _:
            return Token(image, image, at)
