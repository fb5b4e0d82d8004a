# SPDX-License-Identifier: Apache-2.0
"""A pytest plugin: notes for each test that passes which lines it runs, and how long it takes.

Loaded with `-p tools.mutants.measuring`; AEROBEE_MEASURE names the folder for its files.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

import coverage
import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

_FOLDER = Path(os.environ["AEROBEE_MEASURE"])
_NAME = os.environ.get("PYTEST_XDIST_WORKER", "main")
_lines = coverage.Coverage(data_file=str(_FOLDER / f"{_NAME}.lines"), source=["aerobee"], config_file=False)
_seconds: dict[str, float] = {}
_failed: set[str] = set()


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("numprocesses", None):  # its workers run the tests
        config.pluginmanager.unregister(name="tools.mutants.measuring")
    else:
        _lines.start()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    _lines.switch_context(item.nodeid)
    try:
        return (yield)
    finally:
        _lines.switch_context("")


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.outcome == "passed":
        _seconds[report.nodeid] = _seconds.get(report.nodeid, 0) + report.duration
    else:
        _failed.add(report.nodeid)


def pytest_sessionfinish() -> None:
    _lines.stop()
    _lines.save()
    kept = {test: round(took, 4) for test, took in _seconds.items() if test not in _failed}
    (_FOLDER / f"{_NAME}.seconds").write_text(json.dumps(kept))
