# SPDX-License-Identifier: Apache-2.0
"""A pytest that has collected every test and waits: each mutant is a fork of it with one function's code exchanged.

Nothing is loaded or collected again for a mutant, which is most of the time that a quick test takes. A plugin, loaded
with `-p tools.mutants.hot`; AEROBEE_HOT names the two pipes. A line in is a JSON object: the mutated source, the
function, the tests, the seconds they have. A line out is how it ended: ["ok"], ["failed", test], ["time"], or ["cannot"]
where the code is not to be exchanged so, and the slow way remains.
"""

from __future__ import annotations

import gc
import importlib
import inspect
import itertools
import json
import os
import signal
import time
from contextlib import suppress
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

_failed: list[str] = []


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.failed:
        _failed.append(report.nodeid)


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool:
    commands, answers = (int(fd) for fd in os.environ["AEROBEE_HOT"].split())
    items = {item.nodeid: item for item in session.items}
    with os.fdopen(commands) as lines:
        for line in itertools.chain(["{}"], lines):  # the first answer says that all is collected
            told = json.loads(line)
            answer = _tried(items, told) if told else ["ok"]
            os.write(answers, json.dumps(answer).encode() + b"\n")
    return True


def _tried(items: dict[str, pytest.Item], told: dict[str, Any]) -> list[str]:
    wanted = [items[test] for test in told["tests"] if test in items]
    if not wanted:
        return ["cannot"]
    read, write = os.pipe()
    pid = os.fork()
    if not pid:
        os.close(read)
        _child(wanted, told, write)
    os.close(write)
    answer = _ended(pid, told["seconds"])
    with suppress(ProcessLookupError):  # and whatever it has started
        os.killpg(pid, signal.SIGKILL)
    if answer is None:
        os.waitpid(pid, 0)
    with os.fdopen(read) as said:
        text = said.read()
    if answer is None:
        return ["time"]
    return json.loads(text) if text else ["failed", "the whole process"]


def _child(items: list[pytest.Item], told: dict[str, Any], write: int) -> None:
    os.setsid()
    answer = ["ok"]
    if told["source"] is not None and not _exchange(told["path"], told["function"], told["source"]):
        answer, items = ["cannot"], []
    for item, following in itertools.pairwise([*items, None]):
        assert item is not None
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        if _failed:
            answer = ["failed", _failed[0]]
            break
    os.write(write, json.dumps(answer).encode())
    os._exit(0)


def _ended(pid: int, seconds: float) -> int | None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return status
        time.sleep(0.01)
    return None


def _exchange(path: str, function: str, source: str) -> bool:
    """The code of the function, or of the outermost one around it, in every object that has it."""
    module = importlib.import_module(path.removesuffix(".py").removesuffix("/__init__").replace("/", "."))
    codes = list(_codes(compile(source, module.__file__ or "", "exec")))
    parts = function.split(".")
    around = {".".join(parts[: at + 1]) for at in range(len(parts))}
    new = [code for code in codes if code.co_qualname in around]
    if len(new) != 1:  # a property's two functions have one name
        return False
    old = [
        each
        for each in gc.get_objects()
        if type(each) is FunctionType
        and each.__code__.co_qualname == new[0].co_qualname
        and each.__code__.co_filename == new[0].co_filename
    ]
    for each in old:
        if len(each.__code__.co_freevars) != len(new[0].co_freevars):
            return False
        each.__code__ = new[0]
    return bool(old)


def _codes(code: CodeType) -> Iterator[CodeType]:
    """Of functions and methods; not of those within functions."""
    for each in code.co_consts:
        if isinstance(each, CodeType) and each.co_flags & inspect.CO_OPTIMIZED:
            yield each
        elif isinstance(each, CodeType):
            yield from _codes(each)
