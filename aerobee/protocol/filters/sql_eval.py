# SPDX-License-Identifier: Apache-2.0
"""SQL92 filters, step three: the tree to one Python closure per node, run once for every message looked at.

Values follow RocketMQ's evaluator, because the same group must get the same messages from either broker:

- a property is text, or NULL when the message lacks it; a condition is true, false or unknown (None);
- text against a number is read as that number's Java type: `a > 5` wants a 32-bit integer in `a`,
  `a > 5000000000` a 64-bit one, `a > 5.0` a decimal. Text that is none makes the *whole* filter not match, as
  an exception does there;
- two properties are ordered as decimals, and compared for equality as text;
- against TRUE and FALSE text counts as true when it says "true" in any case;
- NULL on the left of = makes it unknown, on the right false; NULL on both sides is equal.
"""

from __future__ import annotations

import operator
import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from aerobee.protocol.filters import sql_parser as tree
from aerobee.protocol.filters.sql_lexer import refuse
from aerobee.protocol.properties import whole_number

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Evaluate = Callable[[Mapping[str, str]], Any]  # a truth value, text, a number, or None

_DECIMAL = re.compile(
    r"[\x00-\x20]*[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[fFdD]?[\x00-\x20]*"
).fullmatch
_ORDER = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}


class _Incomparable(Exception):
    """A property that cannot be read as what it is compared with: the message does not match."""


class _Number(NamedTuple):
    """A constant, and how text is read to be compared with it."""

    value: int | float
    read: Callable[[str], int | float]


def _read_int32(text: str) -> int:
    if len(text) < 10 and text.isascii() and text.isdigit():
        return int(text)  # nearly always, and without the pattern
    return _read_long(text, 2**31)


def _read_int64(text: str) -> int:
    return _read_long(text, 2**63)


def _read_long(text: str, end: int) -> int:
    value = whole_number(text, -end, end - 1)
    if value is None:
        raise _Incomparable
    return value


def _read_decimal(text: str) -> float:
    if _DECIMAL(text):
        return float(text.strip().rstrip("fFdD"))
    raise _Incomparable


def _number(value: int | float) -> _Number:
    if type(value) is float:
        return _Number(value, _read_decimal)
    return _Number(value, _read_int32 if -(2**31) <= value < 2**31 else _read_int64)


@lru_cache(maxsize=1024)
def compile_sql(text: str) -> Callable[[Mapping[str, str]], bool]:
    """A test of a message's properties; SubscriptionParseFailed when the text is no filter."""
    try:
        evaluate = _compile(tree.parse(text))
    except (
        RecursionError
    ):  # the depth limit makes this unlikely; a caller deep in its own stack may still meet it
        raise refuse(1, "nested too deeply") from None

    def matches(properties: Mapping[str, str]) -> bool:
        try:
            return evaluate(properties) is True
        except _Incomparable:
            return False

    return matches


def _compile(node: tree.Node) -> Evaluate:
    return _COMPILE[type(node)](node)


def _literal(node: tree.Literal) -> Evaluate:
    constant = _constant(node.value)
    return lambda _: constant


def _property(node: tree.Property) -> Evaluate:
    name = node.name
    return lambda properties: properties.get(name)


def _cast(node: tree.Cast) -> Evaluate:
    name = node.operand.name
    return lambda properties: False if name in properties else None


def _is_null(node: tree.IsNull) -> Evaluate:
    inner = _compile(node.operand)
    return lambda properties: inner(properties) is None


def _logic(node: tree.Logic) -> Evaluate:
    parts = tuple(_compile(operand) for operand in node.operands)
    return _all(parts) if node.kind == "AND" else _any(parts)


def _constant(value: tree.Value) -> Any:
    return _number(value) if isinstance(value, int | float) and not isinstance(value, bool) else value


def _negate(node: tree.Negate) -> Evaluate:
    operand = node.operand
    if isinstance(operand, tree.Literal | tree.Negate):
        inner = _compile(operand)({})
        if isinstance(inner, _Number):
            # The type stays that of the positive constant, as in Java: -2147483648 reads 64-bit integers.
            negative = _Number(-inner.value, inner.read)
            return lambda _: negative
    return lambda _: None  # text and conditions have no negative


def _not(node: tree.Not) -> Evaluate:
    inner = _compile(node.operand)

    def negation(properties: Mapping[str, str]) -> bool | None:
        value = inner(properties)
        return None if value is None else not value

    return negation


def _all(parts: tuple[Evaluate, ...]) -> Evaluate:
    def conjunction(properties: Mapping[str, str]) -> bool | None:
        answer: bool | None = True
        for part in parts:
            value = part(properties)
            if value is False:
                return False
            if value is None:
                answer = None
        return answer

    return conjunction


def _any(parts: tuple[Evaluate, ...]) -> Evaluate:
    def disjunction(properties: Mapping[str, str]) -> bool | None:
        answer: bool | None = False
        for part in parts:
            value = part(properties)
            if value is True:
                return True
            if value is None:
                answer = None
        return answer

    return disjunction


def _in(node: tree.In) -> Evaluate:
    name, values, wanted = node.name, node.values, node.wanted

    def member(properties: Mapping[str, str]) -> bool | None:
        value = properties.get(name)
        return None if value is None else (value in values) is wanted

    return member


_TEXT_TESTS: dict[str, Callable[[str, str], bool]] = {
    "CONTAINS": operator.contains,
    "STARTSWITH": lambda value, search: value.startswith(search),
    "ENDSWITH": lambda value, search: value.endswith(search),
}


def _text(node: tree.Text) -> Evaluate:
    inner, search, wanted, test = _compile(node.operand), node.search, node.wanted, _TEXT_TESTS[node.kind]

    def found(properties: Mapping[str, str]) -> bool:
        # Nothing to look for, or an absent property: false for both the plain and the NOT form.
        return search != "" and isinstance(value := inner(properties), str) and test(value, search) is wanted

    return found


# -- comparing ---------------------------------------------------------------------------------------------


def _equal(node: tree.Equal) -> Evaluate:
    left, right = _compile(node.left), _compile(node.right)
    if isinstance(node.left, tree.Property) and isinstance(node.right, tree.Literal):
        # The two common forms without the general comparison: a = 'text', a = 5.
        name, constant = node.left.name, _constant(node.right.value)
        if isinstance(constant, str):
            return lambda properties: None if (value := properties.get(name)) is None else value == constant
        if isinstance(constant, _Number):
            number, read = constant
            return lambda properties: (
                None if (value := properties.get(name)) is None else read(value) == number
            )
    return lambda properties: _same(left(properties), right(properties))


def _same(left: Any, right: Any) -> bool | None:
    if left is None:
        return True if right is None else None
    if right is None:
        return False
    if isinstance(left, _Number):
        if isinstance(right, str):
            return left.read(right) == left.value
        return isinstance(right, _Number) and left.value == right.value
    if isinstance(right, _Number):
        return isinstance(left, str) and right.read(left) == right.value
    if type(left) is type(right):
        return bool(left == right)
    if isinstance(left, bool):
        raise _Incomparable  # TRUE = a: a cast that fails in RocketMQ; a = TRUE works
    return bool((left.lower() == "true") is right)


def _ordered(node: tree.Ordered) -> Evaluate:
    order = _ORDER[node.sign]
    left, right = _compile(node.left), _compile(node.right)
    if isinstance(node.left, tree.Property) and isinstance(node.right, tree.Literal):
        name, (number, read) = node.left.name, _constant(node.right.value)
        return lambda properties: (
            None if (value := properties.get(name)) is None else order(read(value), number)
        )

    def ordered(properties: Mapping[str, str]) -> bool | None:
        first, second = left(properties), right(properties)
        if first is None or second is None:
            return None
        if isinstance(first, _Number):
            return bool(
                order(first.value, second.value if isinstance(second, _Number) else first.read(second))
            )
        if isinstance(second, _Number):
            return bool(order(second.read(first), second.value))
        return bool(order(_read_decimal(first), _read_decimal(second)))

    return ordered


_COMPILE: dict[type[tree.Node], Callable[[Any], Evaluate]] = {
    tree.Literal: _literal,
    tree.Property: _property,
    tree.Negate: _negate,
    tree.Not: _not,
    tree.Cast: _cast,
    tree.Logic: _logic,
    tree.Equal: _equal,
    tree.Ordered: _ordered,
    tree.IsNull: _is_null,
    tree.In: _in,
    tree.Text: _text,
}
