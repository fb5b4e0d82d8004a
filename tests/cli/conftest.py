# SPDX-License-Identifier: Apache-2.0
"""Commands run in this process against one embedded server; what they print is captured."""

from __future__ import annotations

import io
import json
import sys
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from aerobee import BrokerConfig, StoreConfig
from aerobee.cli.main import run
from aerobee.testing import TestServer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

QUICK_RETRIES = " ".join(["1s"] * 18)


class Done(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def lines(self) -> list[Any]:
        return [json.loads(line) for line in self.out.splitlines()]


@pytest.fixture(scope="module")
def server() -> Iterator[TestServer]:
    store = StoreConfig(delay_levels=QUICK_RETRIES)
    with TestServer(store=store, config=BrokerConfig(default_queues=2)) as running:
        yield running


@pytest.fixture
def aerobee(
    server: TestServer, capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Done]:
    """`aerobee("topics", "list")`; `stdin=` is what the command reads."""
    monkeypatch.setenv("AEROBEE_NAMESRV", server.namesrv)

    def call(*arguments: str, stdin: bytes = b"") -> Done:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(io.BytesIO(stdin))))
        capfdbinary.readouterr()
        code = run(list(arguments))
        sys.stdout.flush()
        sys.stderr.flush()
        out, err = capfdbinary.readouterr()
        return Done(code, out.decode(), err.decode())

    return call


@pytest.fixture
def good(aerobee: Callable[..., Done]) -> Callable[..., Done]:
    """The same, for commands that must work."""

    def call(*arguments: str, stdin: bytes = b"") -> Done:
        done = aerobee(*arguments, stdin=stdin)
        assert done.code == 0, f"aerobee {' '.join(arguments)}: {done}"
        return done

    return call
