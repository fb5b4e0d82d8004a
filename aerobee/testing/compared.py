# SPDX-License-Identifier: Apache-2.0
"""What a condition compared, as it was in the end: `lambda: attempts == [1, 2]` is looked into for `attempts`."""

from __future__ import annotations

import ast
import inspect
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MOST_CHARACTERS = 500  # of one value


def told(condition: Callable[[], object], last: object) -> str:
    """The condition in the test's own words, where Python knows them, and the values in it."""
    try:
        words = inspect.getsource(condition).strip()
    except (OSError, TypeError):
        words = repr(condition)
    values = [f"{name} is {_shown(value)}" for name, value in _values(condition, words)]
    return "; ".join([words, *(values or [f"it returned {_shown(last)}"])])


def _values(condition: Callable[[], object], words: str) -> Iterator[tuple[str, object]]:
    """Asked for once more: who waits has asked for them all the time."""
    body = _body(words)
    if body is None:
        return
    known = inspect.getclosurevars(condition)
    names = {**known.builtins, **known.globals, **known.nonlocals}
    for operand in _operands(body):
        name = ast.unparse(operand)
        try:
            yield name, eval(name, names)
        except Exception as error:
            yield name, error


def _body(words: str) -> ast.expr | None:
    """Of the only lambda in these lines, which may begin before it and end behind it."""
    begin = words.find("lambda:")
    if begin < 0 or words.count("lambda") > 1:
        return None
    for end in range(len(words), begin, -1):
        with suppress(SyntaxError):
            found = ast.parse(words[begin:end], mode="eval").body
            if isinstance(found, ast.Lambda):
                return found.body
    return None


def _operands(node: ast.expr) -> Iterator[ast.expr]:
    """Sides of comparisons that are no literals."""
    if isinstance(node, ast.BoolOp):
        for part in node.values:
            yield from _operands(part)
    elif isinstance(node, ast.UnaryOp):
        yield from _operands(node.operand)
    elif isinstance(node, ast.Compare):
        for side in (node.left, *node.comparators):
            if any(isinstance(part, ast.Name) for part in ast.walk(side)):
                yield side


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= MOST_CHARACTERS else f"{text[:MOST_CHARACTERS]}..."
