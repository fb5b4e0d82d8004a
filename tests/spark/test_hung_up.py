# SPDX-License-Identifier: Apache-2.0
"""Workers that Spark hangs up on say nothing; all else that fails in one is told."""

from __future__ import annotations

import sys
import traceback
from types import ModuleType, SimpleNamespace

import pytest

from aerobee.spark.hung_up import hush_workers


def told(error: Exception, capsys: pytest.CaptureFixture[str]) -> str:
    try:
        raise error
    except Exception:
        traceback.print_exc()
    return capsys.readouterr().err


@pytest.fixture
def as_main(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.setattr(traceback, "print_exc", traceback.print_exc)  # put back at the end
    main = ModuleType("__main__")
    monkeypatch.setitem(sys.modules, "__main__", main)
    return main


def test_a_worker_of_sparks_says_nothing_when_it_is_hung_up_on(
    as_main: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    as_main.__spec__ = SimpleNamespace(name="pyspark.daemon")  # type: ignore[assignment]
    hush_workers()
    assert told(BrokenPipeError(32, "Broken pipe"), capsys) == ""
    assert "ValueError: no such column" in told(ValueError("no such column"), capsys)


@pytest.mark.parametrize("name", ["pytest", None])
def test_a_program_of_the_users_tells_what_it_always_told(
    name: str | None, as_main: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    as_main.__spec__ = SimpleNamespace(name=name) if name else None  # type: ignore[assignment]
    hush_workers()
    assert "BrokenPipeError" in told(BrokenPipeError(32, "Broken pipe"), capsys)
