# SPDX-License-Identifier: Apache-2.0
"""The blocking client's types and docstrings are those of the async one."""

from __future__ import annotations

import importlib.util
import inspect
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import aerobee
import aerobee.blocking

ROOT = Path(__file__).parents[2]
USER = """
import aerobee.blocking as aerobee

with aerobee.Producer("127.0.0.1:9876", group="shop") as producer:
    offset: int = producer.send(aerobee.Message("orders", b"{}")).queue_offset
with aerobee.SimpleConsumer("127.0.0.1:9876", group="g", topics={"orders": "*"}) as simple:
    for message in simple.receive(max_messages=8):
        body: bytes = message.body
        message.ack()
with aerobee.Admin("127.0.0.1:9876") as admin:
    names: list[str] = admin.topics()
    producer.send("not a message")
aerobee.PushConsumer("127.0.0.1:9876", group="g", topics={}, handler=print, options=aerobee.Options(pull_batch=8))
aerobee.PullConsumer("127.0.0.1:9876", group="g", options=aerobee.ProducerOptions(send_retries=1))
"""


def _maker() -> Any:
    spec = importlib.util.spec_from_file_location("make_blocking_stub", ROOT / "tools/make_blocking_stub.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_stub_is_what_the_tool_writes() -> None:
    maker = _maker()
    assert maker.TARGET.read_text() == maker.formatted(maker.text()), "run tools/make_blocking_stub.py"


def test_methods_have_their_docstrings_and_signatures() -> None:
    for name in ("Producer", "PushConsumer", "PullConsumer", "SimpleConsumer", "Admin"):
        twin: Any = getattr(aerobee.blocking, name)
        original: Any = getattr(aerobee, name)
        assert twin.__doc__
        for method in ("start", "stop"):
            assert inspect.getdoc(getattr(twin, method)) == inspect.getdoc(getattr(original, method))
    assert "wait_ms" in (inspect.getdoc(aerobee.blocking.SimpleConsumer.receive) or "")
    assert "max_messages" in inspect.signature(aerobee.blocking.SimpleConsumer.receive).parameters


@pytest.mark.slow
def test_a_type_checker_follows_the_blocking_client(tmp_path: Path) -> None:
    user = tmp_path / "user.py"
    user.write_text(USER)
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--config-file", "", "--cache-dir", str(tmp_path), str(user)],
        cwd=ROOT, capture_output=True, text=True, timeout=280, check=False,
    )  # fmt: skip
    assert 'Argument 1 to "send" of "Producer" has incompatible type "str"' in done.stdout
    assert 'incompatible type "ProducerOptions"; expected "PullOptions | None"' in done.stdout
    assert "Found 2 errors" in done.stdout, done.stdout
