# SPDX-License-Identifier: Apache-2.0
"""Writes aerobee/client/blocking.pyi: the async clients' methods, without `async`, for type checkers and editors.

python tools/make_blocking_stub.py           write it (tests/client/test_blocking_stub.py holds it fresh)
"""

from __future__ import annotations

import ast
import inspect
import subprocess
import sys
from pathlib import Path
from typing import Any

from aerobee.client import blocking

TARGET = Path(blocking.__file__).with_suffix(".pyi")
ATTRIBUTES = {"session": "Session", "group": "str", "hooks": "Hooks", "consumer": "PullConsumer"}
# Who gives out messages that are answered one by one: theirs block, too.
LEASING = {"SimpleConsumer"}
HEAD = """# SPDX-License-Identifier: Apache-2.0
# Written by tools/make_blocking_stub.py from the async clients; do not edit.
"""


def clients() -> list[type]:
    kinds = [getattr(blocking, name) for name in blocking.__all__]
    blocks = blocking._Blocking  # type: ignore[attr-defined]
    return [kind for kind in kinds if isinstance(kind, type) and issubclass(kind, blocks)]


def tree_of(kind: type) -> ast.ClassDef:
    module = ast.parse(Path(inspect.getsourcefile(kind) or "").read_text())
    return next(node for node in module.body if isinstance(node, ast.ClassDef) and node.name == kind.__name__)


def methods_of(kind: type) -> dict[str, ast.FunctionDef | ast.AsyncFunctionDef]:
    found: dict[str, ast.FunctionDef | ast.AsyncFunctionDef] = {}
    for each in kind.__mro__[:-1]:
        for node in tree_of(each).body:
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                found.setdefault(node.name, node)
    return {name: node for name, node in found.items() if name == "__init__" or not name.startswith("_")}


def method(node: ast.FunctionDef | ast.AsyncFunctionDef, *, leasing: bool) -> str:
    returns = ast.unparse(node.returns) if node.returns else "None"
    returns = returns.replace("AsyncIterator[", "Messages[")
    if returns == "Messages":
        returns = "Messages[ReceivedMessage]"
    if leasing:
        returns = returns.replace("ReceivedMessage", "BlockingMessage")
    lines = [f"    @{ast.unparse(each)}" for each in node.decorator_list]
    lines.append(f"    def {node.name}({ast.unparse(node.args)}) -> {returns}: ...")
    return "\n".join(lines)


def class_text(kind: type) -> str:
    source: Any = kind._made_of  # type: ignore[attr-defined]
    own = {node.attr for node in ast.walk(tree_of(source)) if isinstance(node, ast.Attribute)}
    own |= {
        node.attr
        for each in source.__mro__[1:-1]
        for node in ast.walk(tree_of(each))
        if isinstance(node, ast.Attribute)
    }
    methods = methods_of(source)
    lines = [f"class {kind.__name__}:"]
    lines += [
        f"    {name}: {text}" for name, text in ATTRIBUTES.items() if name in own and name not in methods
    ]
    lines += [method(node, leasing=kind.__name__ in LEASING) for node in methods.values()]
    lines += ["    def __enter__(self) -> Self: ...", "    def __exit__(self, *_: object) -> None: ..."]
    if "messages" in methods and "__aiter__" in dir(source):
        given = "BlockingMessage" if kind.__name__ in LEASING else "ReceivedMessage"
        lines.append(f"    def __iter__(self) -> Messages[{given}]: ...")
    return "\n".join(lines)


def imports_for(body: str, kinds: list[type]) -> list[str]:
    """The import of every name the body uses, as the sources have it."""
    known: dict[str, str] = {}
    modules = {sys.modules[each.__module__] for kind in kinds for each in kind._made_of.__mro__[:-1]}  # type: ignore[attr-defined]
    for module in modules:
        for node in ast.walk(ast.parse(Path(module.__file__ or "").read_text())):
            if isinstance(node, ast.ImportFrom):
                for alias in node.names:
                    known[alias.asname or alias.name] = f"from {node.module} import {ast.unparse(alias)}"
    for module in modules:  # what a source defines itself
        for name, value in vars(module).items():
            if name not in known and not name.startswith("_") and not inspect.ismodule(value):
                known[name] = f"from {module.__name__} import {name}"
    known |= {"Self": "from typing import Self"}
    for name in blocking.__all__:
        value = getattr(blocking, name)
        if name != "run" and value not in kinds:
            known[name] = f"from {value.__module__} import {name} as {name}"
    known["ReceivedMessage"] = "from aerobee.client.message import ReceivedMessage as ReceivedMessage"
    used = {node.id for node in ast.walk(ast.parse(body)) if isinstance(node, ast.Name)}
    defined = {kind.__name__ for kind in kinds} | {"BlockingMessage", "Messages"}
    wanted = (used | {name for name in blocking.__all__ if name != "run"}) - defined
    return sorted({known[name] for name in wanted if name in known})


MESSAGE = '''class BlockingMessage(ReceivedMessage):
    """A received message whose ack, nack and extend block."""

    def ack(self) -> None: ...  # type: ignore[override]
    def nack(self, delay_ms: int = 0, reason: BaseException | str = "") -> None: ...  # type: ignore[override]
    def extend(self, invisible_ms: int) -> None: ...  # type: ignore[override]'''
ITERATOR = '''class Messages(Generic[M]):
    """Messages one after the other; `with` gives back what was fetched and not handed out."""

    def __iter__(self) -> Self: ...
    def __next__(self) -> M: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, *_: object) -> None: ...'''
RUN = "def run(work: Coroutine[Any, Any, T]) -> T: ..."


def text() -> str:
    kinds = clients()
    parts = [MESSAGE, ITERATOR, *map(class_text, kinds)]
    body = "\n\n".join(parts)
    head = [
        "from collections.abc import Coroutine",
        "from typing import Any, Generic, TypeVar",
        *imports_for(body, kinds),
    ]
    names = ", ".join(f'"{name}"' for name in blocking.__all__)
    kinds_of = 'T = TypeVar("T")\nM = TypeVar("M")'
    return f"{HEAD}\n{chr(10).join(head)}\n\n__all__ = [{names}]\n\n{kinds_of}\n\n{RUN}\n\n{body}\n"


def formatted(source: str) -> str:
    command = [sys.executable, "-m", "ruff", "format", "--stdin-filename", str(TARGET), "-"]
    return subprocess.run(command, input=source, capture_output=True, text=True, check=True).stdout


if __name__ == "__main__":
    TARGET.write_text(formatted(text()))
    print(f"wrote {TARGET}")
