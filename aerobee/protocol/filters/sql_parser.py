# SPDX-License-Identifier: Apache-2.0
"""SQL92 filters, step two: tokens to a tree. Recursive descent over the grammar RocketMQ accepts:

    filter     := or
    or         := and (OR and)*                 and := equality (AND equality)*
    equality   := comparison ( = comparison | <> comparison | IS [NOT] NULL )*
    comparison := unary ( > unary | >= unary | < unary | <= unary
                        | [NOT] BETWEEN unary AND unary | [NOT] IN (text, ...)
                        | [NOT] CONTAINS text | [NOT] STARTSWITH text | [NOT] ENDSWITH text )*
    unary      := + unary | - unary | NOT unary | primary
    primary    := text | number | TRUE | FALSE | NULL | name | ( or )

NOT binds tighter than the comparisons, as there: `NOT a = 5` reads `(NOT a) = 5`; write `NOT (a = 5)`. Unlike
there, text after a complete filter is refused instead of ignored.
"""

from __future__ import annotations

import msgspec

from aerobee.protocol.filters.sql_lexer import Token, refuse, tokens

MAX_DEPTH = 32  # nesting of parentheses, signs and NOT, plus links of chained comparisons (a = b = c)

Value = str | int | float | bool | None


class Node(msgspec.Struct, frozen=True):
    at: int  # column, for messages


class Literal(Node, frozen=True):
    value: Value


class Property(Node, frozen=True):
    name: str


class Negate(Node, frozen=True):
    operand: Node


class Not(Node, frozen=True):
    operand: Node


class Cast(Node, frozen=True):
    """A property where a truth value is wanted: values are text, so it is false, or unknown when absent."""

    operand: Property


class Logic(Node, frozen=True):
    kind: str  # AND, OR
    operands: tuple[Node, ...]


class Equal(Node, frozen=True):
    left: Node
    right: Node


class Ordered(Node, frozen=True):
    sign: str  # < <= > >=
    left: Node
    right: Node


class IsNull(Node, frozen=True):
    operand: Node


class In(Node, frozen=True):
    name: str
    values: frozenset[str]
    wanted: bool  # False for NOT IN


class Text(Node, frozen=True):
    kind: str  # CONTAINS, STARTSWITH, ENDSWITH
    operand: Node
    search: str
    wanted: bool  # False for NOT CONTAINS ...


_TRUTH = (Not, Cast, Logic, Equal, Ordered, IsNull, In, Text)
_TEXT_TESTS = ("CONTAINS", "STARTSWITH", "ENDSWITH")


def parse(text: str) -> Node:
    """The filter's tree, whose value is a truth value; SubscriptionParseFailed when it is no filter."""
    if not text.strip():
        raise refuse(1, "the filter is empty; use the tag filter * to take everything")
    parser = _Parser(tokens(text))
    tree = _truth(parser.either())
    if (rest := parser.peek()).kind != "end":
        hint = "; there is no LIKE, use CONTAINS" if str(rest.value).upper() == "LIKE" else ""
        raise refuse(rest.at, f"expected AND, OR, a comparison or the end, found {rest}{hint}")
    return tree


def _is_truth(node: Node) -> bool:
    return isinstance(node, _TRUTH) or (isinstance(node, Literal) and isinstance(node.value, bool | None))


def _truth(node: Node) -> Node:
    if _is_truth(node):
        return node
    if isinstance(node, Property):
        return Cast(node.at, node)
    raise refuse(node.at, "expected a condition that is true or false, found a plain value")


class _Parser:
    def __init__(self, found: list[Token]) -> None:
        self._tokens = found
        self._next = 0
        self._depth = 0

    def peek(self) -> Token:
        return self._tokens[self._next]

    def _take(self) -> Token:
        token = self._tokens[self._next]
        self._next += 1
        return token

    def _skip(self, kind: str) -> bool:
        if self.peek().kind != kind:
            return False
        self._next += 1
        return True

    def _expect(self, kind: str, what: str) -> Token:
        token = self._take()
        if token.kind != kind:
            raise refuse(token.at, f"expected {what}, found {token}")
        return token

    def _deeper(self, at: int) -> None:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise refuse(at, f"nested deeper than {MAX_DEPTH}")

    def _chained(self, links: int, at: int) -> int:
        """A first comparison is free; each further one of a chain deepens the tree for good."""
        if links:
            self._deeper(at)
        return links + 1

    # -- from loose to tight -----------------------------------------------------------------------------

    def either(self) -> Node:
        operands = [self._both()]
        while self._skip("OR"):
            operands.append(self._both())
        return self._logic("OR", operands)

    def _both(self) -> Node:
        operands = [self._equality()]
        while self._skip("AND"):
            operands.append(self._equality())
        return self._logic("AND", operands)

    @staticmethod
    def _logic(kind: str, operands: list[Node]) -> Node:
        if len(operands) == 1:
            return operands[0]
        return Logic(operands[0].at, kind, tuple(_truth(operand) for operand in operands))

    def _equality(self) -> Node:
        left, links = self._comparison(), 0
        while (token := self.peek()).kind in ("=", "<>", "IS"):
            self._take()
            links = self._chained(links, token.at)
            if token.kind == "IS":
                negated = self._skip("NOT")
                self._expect("NULL", "NULL")
                left = IsNull(token.at, left)
            else:
                negated = token.kind == "<>"
                left = Equal(token.at, _equal_operand(left), _equal_operand(self._comparison()))
                _check_equal(left)
            if negated:
                left = Not(token.at, left)
        return left

    def _comparison(self) -> Node:
        left, links = self._unary(), 0
        while True:
            token = self.peek()
            negated = token.kind == "NOT" and self._tokens[self._next + 1].kind in (
                "IN",
                "BETWEEN",
                *_TEXT_TESTS,
            )
            kind = self._tokens[self._next + 1].kind if negated else token.kind
            if kind not in ("<", "<=", ">", ">=", "BETWEEN", "IN", *_TEXT_TESTS):
                return left
            links = self._chained(links, token.at)
            self._next += 2 if negated else 1
            left = self._compared(left, Token(kind, kind, token.at), "" if negated else kind)

    def _compared(self, left: Node, token: Token, plain: str) -> Node:
        """One comparison of `left`; `plain` is empty for the NOT form."""
        if token.kind == "IN":
            if not isinstance(left, Property):
                raise refuse(left.at, "IN wants a property name on its left")
            return In(token.at, left.name, self._text_list(), bool(plain))
        if token.kind == "BETWEEN":
            return self._between(left, token.at, plain)
        if token.kind in _TEXT_TESTS:
            search = str(self._expect("text", "text in single quotes").value)
            return Text(token.at, token.kind, left, search, bool(plain))
        return Ordered(token.at, token.kind, _number_operand(left), _number_operand(self._unary()))

    def _text_list(self) -> frozenset[str]:
        self._expect("(", "( after IN")
        values = [self._expect("text", "text in single quotes").value]
        while self._skip(","):
            values.append(self._expect("text", "text in single quotes").value)
        self._expect(")", ", or )")
        return frozenset(map(str, values))

    def _between(self, value: Node, at: int, plain: str) -> Node:
        value, low = _number_operand(value), _number_operand(self._unary())
        self._expect("AND", "AND between the two bounds")
        high = _number_operand(self._unary())
        if not plain:
            return Logic(at, "OR", (Ordered(at, "<", value, low), Ordered(at, ">", value, high)))
        if (
            isinstance(low, Literal)
            and isinstance(high, Literal)
            and isinstance(low.value, int | float)
            and isinstance(high.value, int | float)
            and high.value < low.value
        ):
            raise refuse(
                high.at, f"BETWEEN {low.value} AND {high.value} is empty: write the smaller bound first"
            )
        return Logic(at, "AND", (Ordered(at, ">=", value, low), Ordered(at, "<=", value, high)))

    def _unary(self) -> Node:
        token = self.peek()
        if token.kind not in ("+", "-", "NOT"):
            return self._primary()
        self._take()
        self._deeper(token.at)
        operand = self._unary()
        self._depth -= 1
        match token.kind:
            case "+":
                return operand
            case "-":
                return Negate(token.at, operand)
            case _:
                return Not(token.at, _truth(operand))

    def _primary(self) -> Node:
        token = self._take()
        match token.kind:
            case "text" | "number":
                return Literal(token.at, token.value)
            case "TRUE" | "FALSE":
                return Literal(token.at, token.kind == "TRUE")
            case "NULL":
                return Literal(token.at, None)
            case "name":
                return Property(token.at, str(token.value))
            case "(":
                self._deeper(token.at)
                inner = self.either()
                self._expect(")", ")")
                self._depth -= 1
                return inner
        raise refuse(token.at, f"expected a property, a value or (, found {token}")


def _equal_operand(node: Node) -> Node:
    if isinstance(node, Literal) and node.value is None:
        raise refuse(node.at, "NULL equals nothing: write IS NULL or IS NOT NULL")
    return node


def _check_equal(node: Equal) -> None:
    left, right = node.left, node.right
    if isinstance(left, Literal) and isinstance(right, Literal) and _is_truth(left) and not _is_truth(right):
        raise refuse(node.at, f"{left.value} cannot be compared with {right.value!r}")


def _number_operand(node: Node) -> Node:
    if isinstance(node, Literal) and (
        isinstance(node.value, bool) or not isinstance(node.value, int | float)
    ):
        shown = "NULL" if node.value is None else repr(node.value)
        raise refuse(node.at, f"{shown} has no order: <, <=, >, >= and BETWEEN compare numbers")
    if _is_truth(node):
        raise refuse(node.at, "a condition has no order: <, <=, >, >= and BETWEEN compare numbers")
    return node
