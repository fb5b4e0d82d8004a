# SPDX-License-Identifier: Apache-2.0
"""Ctrl-C in a pipeline command: one line and exit code 130, whatever Spark has to say."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

pyspark = pytest.importorskip("pyspark")

from aerobee.cli import pipeline  # noqa: E402
from aerobee.cli.main import run  # noqa: E402

SETTINGS = ("-n", "127.0.0.1:1")


@pytest.mark.parametrize(
    "command",
    [
        ["report", "orders"],
        ["ledger", "orders"],
        ["replay", "orders", "--name", "x"],
        ["lake", "orders", "out"],
    ],
    ids=lambda command: command[0],
)
def test_ctrl_c_is_one_line_and_ends_the_jvm(
    command: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    done: list[str] = []
    process = SimpleNamespace(
        terminate=lambda: done.append("terminated"), wait=lambda patience_s: done.append("waited for")
    )

    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(pyspark.SparkContext, "_gateway", SimpleNamespace(proc=process))
    monkeypatch.setattr(pipeline, "_session", interrupted)
    assert run(["pipeline", *command, *SETTINGS]) == 130
    assert capsys.readouterr().err == "interrupted\n"
    assert done == ["terminated", "waited for"]
