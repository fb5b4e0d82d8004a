# SPDX-License-Identifier: Apache-2.0
"""The client's own scenarios (`tests/e2e/test_client_*.py`) on the server of this run: Aerobee as a process of its
own, or with `--server rocketmq` the original. Nothing is copied: the tests are the same functions, only `cluster`
is another."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from types import ModuleType

    from servers import Server

E2E = Path(__file__).resolve().parents[1] / "e2e"
SUITES = ("producing", "consuming", "pulling", "popping", "admin", "blocking")


def _load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"client_{name}", E2E / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


_shared = _load("conftest")
eventually = _shared.eventually


@pytest.fixture
def cluster(server: Server) -> Any:
    return _shared.Cluster(server.namesrv, server.kind)


for _suite in SUITES:
    if (E2E / f"test_client_{_suite}.py").exists():
        _module = _load(f"test_client_{_suite}")
        for _name, _value in vars(_module).items():
            if _name.startswith("test_"):
                globals()[f"test_{_suite}_{_name.removeprefix('test_')}"] = _value
            elif _name.startswith("Test"):
                globals()[f"Test{_suite.title()}{_name.removeprefix('Test')}"] = _value
            elif _name in ("consumer", "send", "filled", "admin") and _name not in globals():
                globals()[_name] = _value
