# SPDX-License-Identifier: Apache-2.0
"""Every example runs as its first lines say, and shows what it promises."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"

SHOWS = {
    "order_shop.py": [
        r"^billing: 24 paid orders billed, [1-9]\d* cards refused at first$",
        r"^audit: user-0 placed \[0, 3, 6, .*\], in order: True$",
        r"^shop-billing: ready 0, in flight 0, retrying 0, dead 0$",
    ],
    "blocking_script.py": [
        r"^sent one: message \w+, queue \d, offset \d+$",
        r"^polled 6: \[b'batch 0', ",
        r"^pushed 7, the delayed one among them: True$",
        r"^found by key job-1: b'one'",
    ],
    "pop_worker.py": [
        r"^worker-0 took \d+ jobs and died with them$",
        r"^5 workers on 2 queues finished all 60 jobs: worker-1 ",
        r"^pop-workers: ready 0, in flight 0, retrying 0, dead 0$",
    ],
    "transactional_outbox.py": [
        r"^order-2: no stock, row and message are dropped$",
        r"^order-3: the broker asks; the row is there: show it$",
        r"^messages delivered:   \['order-1', 'order-3', 'order-4'\]$",
    ],
    "test_with_pytest.py": [r"3 passed"],
}
SPARK = {
    "spark_notebook.py": [
        r"^rows in the lake: 1000$",
        r"^sent back: \['\{\"city\":\"Wien\",\"sum\":\d+\}'\]$",
    ],
    "stream_between_clusters.py": [
        r"^first run: 600 orders over there, query 'copy-orders' is 0 behind$",
        r"^second run: 1000 orders over there, each once: True$",
        r"^an order is where its user's orders are: True$",
    ],
}


def run(name: str, directory: Path, timeout: int) -> str:
    environment = {
        key: value for key, value in os.environ.items() if key != "AEROBEE_NAMESRV" and "PYTEST" not in key
    }
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / name)],
        cwd=directory, env=environment, capture_output=True, text=True, timeout=timeout,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_every_example_is_run_here() -> None:
    assert {path.name for path in EXAMPLES.glob("*.py")} == SHOWS.keys() | SPARK.keys()


@pytest.mark.slow
@pytest.mark.parametrize("name", SHOWS)
def test_an_example(name: str, tmp_path: Path) -> None:
    output = run(name, tmp_path, 180)
    assert not [wanted for wanted in SHOWS[name] if not re.search(wanted, output, re.MULTILINE)], output


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize("name", SPARK)
def test_an_example_with_spark(name: str, tmp_path: Path) -> None:
    output = run(name, tmp_path, 600)
    assert not [wanted for wanted in SPARK[name] if not re.search(wanted, output, re.MULTILINE)], output
