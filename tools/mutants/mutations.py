# SPDX-License-Identifier: Apache-2.0
"""The small bugs that can be put into a file: each is one piece of its text and what stands there instead.

Left alone are what cannot break behaviour (annotations, docstrings, log lines, the texts of errors) and what a reader
could not take for a slip (decorators, `__slots__`).
"""

from __future__ import annotations

import ast
import hashlib
from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_NEGATED_BY_COMPARISON = (ast.Eq, ast.NotEq, ast.Is, ast.IsNot, ast.In, ast.NotIn)
_ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
    ast.Div: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.BitXor: ast.BitAnd,
}
_CALLS = {"min": "max", "max": "min", "any": "all", "all": "any", "sorted": "list"}
_QUIET_CALLS = {
    "getLogger",
    "TypeVar",
    "NewType",
    "ParamSpec",
    "cast",
    "log",
    "warning",
    "info",
    "debug",
    "error",
    "exception",
}
_QUIET_NAMES = {"__all__", "__slots__", "__match_args__"}


@dataclass(frozen=True)
class Mutant:
    path: str
    function: str  # its dotted name within the module; empty at the top
    kind: str
    line: int
    end_line: int
    start: int  # bytes within the file
    end: int
    before: str
    after: str
    number: int = 0  # among those of the same function that read the same
    at_import: bool = False  # only declared there: the line runs before any test

    @property
    def id(self) -> str:
        """The same as long as this piece of the function stays: lines may move."""
        told = (self.path, self.function, self.kind, self.before, self.after, str(self.number))
        return hashlib.sha1("\0".join(told).encode()).hexdigest()[:10]

    def applied(self, source: bytes) -> bytes:
        return source[: self.start] + self.after.encode() + source[self.end :]

    def __str__(self) -> str:
        before, after = (" ".join(text.split()) for text in (self.before, self.after))
        return f"{self.path}:{self.line} {self.function or 'module'} [{self.kind}] {before} -> {after}"


def mutants_of(path: str, source: bytes) -> list[Mutant]:
    """All of a file, in its order."""
    seen: Counter[tuple[str, ...]] = Counter()
    found = []
    for mutant in _Finder(path, source).found():
        alike = (mutant.function, mutant.kind, mutant.before, mutant.after)
        found.append(replace(mutant, number=seen[alike]))
        seen[alike] += 1
    return found


class _Finder(ast.NodeVisitor):
    def __init__(self, path: str, source: bytes) -> None:
        self._path = path
        self._source = source
        self._starts = [0]
        for line in source.splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line))
        self._scope: list[str] = []
        self._functions = 0  # that we are within
        self._found: list[Mutant] = []

    def found(self) -> Iterator[Mutant]:
        self.visit(ast.parse(self._source))
        yield from sorted(self._found, key=lambda each: (each.start, each.end))

    def _note(self, kind: str, node: ast.expr | ast.stmt, after: str) -> None:
        end_line = node.end_lineno or node.lineno
        start = self._starts[node.lineno - 1] + node.col_offset
        end = self._starts[end_line - 1] + (node.end_col_offset or 0)
        before = self._source[start:end].decode()
        place = (".".join(self._scope), kind, node.lineno, end_line)
        at_import = not self._functions
        self._found.append(Mutant(self._path, *place, start, end, before, after, at_import=at_import))

    def _expression(self, kind: str, node: ast.expr, mutated: ast.expr) -> None:
        self._note(kind, node, f"({ast.unparse(mutated)})")

    # -- where nothing is to be found, and where names begin ---------------------------------------------------

    def _named(self, node: ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        if not isinstance(node, ast.ClassDef):
            for default in (*node.args.defaults, *node.args.kw_defaults):
                if default is not None:
                    self.visit(default)
        is_function = not isinstance(node, ast.ClassDef)
        self._scope.append(node.name)
        self._functions += is_function
        for statement in node.body:
            self.visit(statement)
        self._functions -= is_function
        self._scope.pop()

    visit_ClassDef = visit_FunctionDef = visit_AsyncFunctionDef = _named

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        """Texts for people; and Python 3.11 does not say where their parts are."""

    def visit_Assert(self, node: ast.Assert) -> None:
        """For the reader and the type checker."""

    # -- statements --------------------------------------------------------------------------------------------

    def visit_Expr(self, node: ast.Expr) -> None:
        if isinstance(node.value, ast.Constant) or _quiet(node.value):
            return
        if isinstance(node.value, ast.Await):
            self._note("await", node, ast.unparse(node.value.value))
        if not isinstance(node.value, ast.Yield | ast.YieldFrom):
            self._note("statement", node, "pass")
        self.visit(node.value)

    def visit_Assign(self, node: ast.Assign) -> None:
        if any(isinstance(each, ast.Name) and each.id in _QUIET_NAMES for each in node.targets):
            return
        if all(isinstance(each, ast.Attribute | ast.Subscript) for each in node.targets):
            self._note("statement", node, "pass")
        self.generic_visit(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        other = _ARITHMETIC.get(type(node.op))
        if other is not None:
            changed = ast.AugAssign(target=node.target, op=other(), value=node.value)
            self._note("arithmetic", node, ast.unparse(changed))
        self._note("statement", node, "pass")
        self.generic_visit(node)

    def visit_Raise(self, node: ast.Raise) -> None:
        self._note("statement", node, "pass")

    def visit_Return(self, node: ast.Return) -> None:
        if node.value is None:
            self._note("statement", node, "pass")
        elif not isinstance(node.value, ast.Constant):
            self._note("return", node, "return None")
        self.generic_visit(node)

    def _dropped(self, node: ast.Delete | ast.Continue | ast.Break) -> None:
        self._note("statement", node, "pass")

    visit_Delete = visit_Continue = visit_Break = _dropped

    # -- branches ----------------------------------------------------------------------------------------------

    def visit_If(self, node: ast.If) -> None:
        if "TYPE_CHECKING" in ast.unparse(node.test):
            return
        self._negated(node.test)
        self.generic_visit(node)

    def visit_IfExp(self, node: ast.IfExp) -> None:
        self._negated(node.test)
        self.generic_visit(node)

    def visit_While(self, node: ast.While) -> None:
        if not isinstance(node.test, ast.Constant):
            self._note("branch", node.test, "False")
            self.visit(node.test)
        for statement in (*node.body, *node.orelse):
            self.visit(statement)

    def visit_comprehension(self, node: ast.comprehension) -> None:
        for condition in node.ifs:
            self._note("branch", condition, "True")
        self.generic_visit(node)

    def _negated(self, test: ast.expr) -> None:
        one_comparison = isinstance(test, ast.Compare) and len(test.ops) == 1
        if one_comparison and isinstance(test.ops[0], _NEGATED_BY_COMPARISON):  # type: ignore[attr-defined]
            return
        if not (isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not)):
            self._expression("branch", test, ast.UnaryOp(ast.Not(), test))

    # -- expressions -------------------------------------------------------------------------------------------

    def visit_Compare(self, node: ast.Compare) -> None:
        for at, op in enumerate(node.ops):
            ops = [*node.ops[:at], _COMPARISONS[type(op)](), *node.ops[at + 1 :]]
            self._expression("comparison", node, ast.Compare(node.left, ops, node.comparators))
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        other = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        self._expression("boolean", node, ast.BoolOp(other, node.values))
        for at in range(len(node.values)):
            rest = [*node.values[:at], *node.values[at + 1 :]]
            self._expression("boolean", node, ast.BoolOp(node.op, rest) if len(rest) > 1 else rest[0])
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        if isinstance(node.op, ast.Not):
            self._expression("boolean", node, node.operand)
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        other = _ARITHMETIC.get(type(node.op))
        if other is not None and not (_text(node.left) or _text(node.right) or _type_union(node)):
            self._expression("arithmetic", node, ast.BinOp(node.left, other(), node.right))
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        if _quiet(node):
            return
        if isinstance(node.func, ast.Name) and node.func.id in _CALLS:
            self._note("call", node.func, _CALLS[node.func.id])
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        match node.value:
            case bool():
                self._note("constant", node, str(not node.value))
            case int():
                self._note("constant", node, str(node.value + 1))
            case float():
                self._note("constant", node, str(node.value * 2 + 1))
            case str() | bytes():
                other = "XX" if isinstance(node.value, str) else b"XX"
                self._note("constant", node, repr(other + node.value))  # type: ignore[operator]


def _quiet(node: ast.expr) -> bool:
    call = node.value if isinstance(node, ast.Await) else node
    if not isinstance(call, ast.Call):
        return False
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    return name in _QUIET_CALLS


def _text(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr) or (
        isinstance(node, ast.Constant) and isinstance(node.value, str | bytes)
    )


def _type_union(node: ast.BinOp) -> bool:
    sides = (node.left, node.right)
    return isinstance(node.op, ast.BitOr) and any(
        (isinstance(side, ast.Constant) and side.value is None)
        or (
            isinstance(side, ast.Name)
            and (side.id[:1].isupper() or side.id in ("int", "str", "bytes", "bool"))
        )
        for side in sides
    )
