# SPDX-License-Identifier: Apache-2.0
"""Both brokers under the same load, each with its metrics."""

from __future__ import annotations

import re
import sys
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "interop"))

import peers
import servers

if TYPE_CHECKING:
    from collections.abc import Iterator

LIMIT_S = 1200


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        item.add_marker(pytest.mark.timeout(LIMIT_S))


class Watched:
    """A broker and where its metrics are."""

    def __init__(self, kind: str, namesrv: str, metrics: str) -> None:
        self.kind = kind
        self.namesrv = namesrv
        self.metrics = metrics  # host:port

    def scrape(self) -> str:
        with urllib.request.urlopen(f"http://{self.metrics}/metrics", timeout=120) as answer:
            return answer.read().decode()


@pytest.fixture(scope="session")
def aerobee(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    folder = tmp_path_factory.mktemp("aerobee")
    command = [str(servers.REPO / ".venv/bin/aerobee"), "serve", "--data", str(folder / "data")]
    ports = ["--namesrv-port", "0", "--broker-port", "0", "--grpc-port", "-1", "--http-port", "0"]
    process = servers.Process([*command, *ports], folder / "aerobee.log")
    ready = process.start(r"aerobee ready namesrv=(\S+) broker=\S+ grpc=\S+ http=(\S+)", 60)
    yield Watched("aerobee", *ready.groups())
    process.stop()


@pytest.fixture(scope="session")
def rocketmq(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    port = servers.free_port()
    settings = {
        "metricsExporterType": "PROM",
        "metricsPromExporterPort": str(port),
        "metricsPromExporterHost": servers.HOST,
    }
    data = tmp_path_factory.mktemp("rocketmq") / "data"
    with servers.RocketMQ(data, peers.server_class_path(), settings) as server:
        yield Watched("rocketmq", server.namesrv, f"{servers.HOST}:{port}")


@pytest.fixture(scope="session")
def prometheus(
    aerobee: Watched, rocketmq: Watched, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """Prometheus that scrapes both, with our rules; its address."""
    folder = tmp_path_factory.mktemp("prometheus")
    rules = Path(__file__).resolve().parents[2] / "deploy" / "alerts.yml"
    jobs = "".join(
        f"  - job_name: {each.kind}\n    static_configs: [{{ targets: ['{each.metrics}'] }}]\n"
        for each in (aerobee, rocketmq)
    )
    config = folder / "prometheus.yml"
    config.write_text(f"global: {{ scrape_interval: 1s }}\nrule_files: ['{rules}']\nscrape_configs:\n{jobs}")
    address = f"{servers.HOST}:{servers.free_port()}"
    process = servers.Process(
        [
            peers.tool("prometheus", "Debian's package prometheus"),
            f"--config.file={config}",
            f"--storage.tsdb.path={folder / 'data'}",
            f"--web.listen-address={address}",
        ],
        folder / "prometheus.log",
    )
    process.start(re.escape("Server is ready to receive web requests"), 60)
    yield address
    process.stop()
