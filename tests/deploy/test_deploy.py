# SPDX-License-Identifier: Apache-2.0
"""The files of deploy/, as far as they can be tried without what runs them."""

from __future__ import annotations

import configparser
import json
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]
from typer.main import get_command

from aerobee.broker.metrics import health, lag, pops, storage, traffic
from aerobee.broker.metrics.family import Family, Kind
from aerobee.cli.main import app
from tools import grafana_board

DEPLOY = Path(__file__).parents[2] / "deploy"
FAMILIES = [
    each
    for module in (health, lag, pops, storage, traffic)
    for each in vars(module).values()
    if isinstance(each, Family)
]
ENDINGS = {Kind.HISTOGRAM: ("_bucket", "_sum", "_count")}
SERIES = {each.name + ending for each in FAMILIES for ending in ENDINGS.get(each.kind, ("",))}
GOLDEN = json.loads((DEPLOY.parent / "tests" / "golden" / "metrics.json").read_text())


def documents(name: str) -> list[Any]:
    return list(yaml.safe_load_all((DEPLOY / name).read_text()))


def metrics_in(expression: str) -> set[str]:
    return set(re.findall(r"\b(?:rocketmq|aerobee)_\w+", expression))


def expressions() -> list[str]:
    rules = [rule["expr"] for group in documents("alerts.yml")[0]["groups"] for rule in group["rules"]]
    board = json.loads((DEPLOY / "grafana" / "aerobee.json").read_text())
    drawn = [target["expr"] for panel in board["panels"] for target in panel.get("targets", ())]
    return [*rules, *drawn, *(each["query"] for each in board["templating"]["list"])]


def test_every_metric_that_the_board_and_the_alerts_name_is_one_of_ours() -> None:
    used = set().union(*map(metrics_in, expressions()))
    assert len(used) > 25
    assert not used - SERIES


def test_official_metrics_are_used_with_labels_that_rocketmq_has() -> None:
    """So the board and the alerts show its brokers as well."""
    for expression in expressions():
        for name in metrics_in(expression):
            official = GOLDEN.get(re.sub(r"_(bucket|sum|count)$", "", name)) or GOLDEN.get(name)
            if official is not None:
                known = {label for each in official["labels"] for label in each} | {"le"}
                by = {
                    label.strip()
                    for each in re.findall(r"by \(([^)]*)\)", expression)
                    for label in each.split(",")
                }
                assert by <= known, expression


def test_the_board_is_what_its_program_writes() -> None:
    assert (DEPLOY / "grafana" / "aerobee.json").read_text() == grafana_board.text(), (
        "run tools/grafana_board.py"
    )
    panels = json.loads(grafana_board.text())["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)


@pytest.mark.parametrize(
    "name", ["compose.yaml", "prometheus.yml", "grafana/datasources.yml", "grafana/dashboards.yml"]
)
def test_files_that_are_mounted_exist(name: str) -> None:
    (document,) = documents(name)
    for service in document.get("services", {}).values() if "services" in document else ():
        for volume in service.get("volumes", ()):
            source = volume.partition(":")[0]
            assert not source.startswith("./") or (DEPLOY / source).exists(), source


def served(arguments: list[str]) -> None:
    """`aerobee serve` knows these."""
    command = get_command(app).get_command(None, "serve")  # type: ignore[attr-defined, arg-type]
    command.make_context("serve", arguments, resilient_parsing=False)


def test_every_command_line_is_one_that_serve_understands() -> None:
    docker = (DEPLOY / "Dockerfile").read_text()
    entry = json.loads(re.search(r"ENTRYPOINT (\[.*\])", docker)[1])
    assert entry[1] == "serve"
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.read_string((DEPLOY / "aerobee.service").read_text())
    by_systemd = shlex.split(unit["Service"]["ExecStart"])[2:]
    compose = documents("compose.yaml")[0]["services"]["aerobee"]["command"]
    pod = documents("kubernetes.yaml")[1]["spec"]["template"]["spec"]["containers"][0]["args"]
    for arguments in (entry[2:], [*entry[2:], *compose], [*entry[2:], *pod], by_systemd):
        served(list(arguments))


def test_the_service_may_write_where_the_docs_put_its_data_and_logs() -> None:
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str  # type: ignore[assignment, method-assign]
    unit.read_string((DEPLOY / "aerobee.service").read_text())
    service = unit["Service"]
    assert service["ProtectSystem"] == "strict"
    writable = {f"/var/lib/{service['StateDirectory']}", f"/var/log/{service['LogsDirectory']}"}
    docs = (DEPLOY.parent / "docs" / "access-control.md").read_text()
    (audit_log,) = re.findall(r'audit_log = "([^"]+)"', docs)
    assert str(Path(audit_log).parent) in writable
    assert shlex.split(service["ExecStart"])[3] in writable
    assert service["EnvironmentFile"].startswith("-/etc/aerobee/"), "without secrets it starts, too"


def test_the_pod_is_probed_where_health_is_told_and_runs_as_nobody_in_particular() -> None:
    pod = documents("kubernetes.yaml")[1]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert ports == {"namesrv": 9876, "broker": 10911, "grpc": 8081, "http": 8088}
    probes = {
        name: container[f"{name}Probe"]["httpGet"]["path"] for name in ("startup", "liveness", "readiness")
    }
    assert probes == {"startup": "/healthz", "liveness": "/healthz", "readiness": "/readyz"}
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert re.search(r"^USER 10001$", (DEPLOY / "Dockerfile").read_text(), re.M)


def test_every_file_that_the_image_copies_is_there() -> None:
    for line in (DEPLOY / "Dockerfile").read_text().splitlines():
        if line.startswith("COPY ") and "--from" not in line:
            for source in line.split()[1:-1]:
                assert (DEPLOY.parent / source).exists(), source


@pytest.mark.skipif(shutil.which("promtool") is None, reason="needs promtool; `make watch` brings it")
def test_prometheus_takes_its_configuration_and_the_rules() -> None:
    for what in (["rules", "alerts.yml"], ["config", "--syntax-only", "prometheus.yml"]):
        done = subprocess.run(
            ["promtool", "check", *what], cwd=DEPLOY, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.skipif(shutil.which("promtool") is None, reason="needs promtool; `make watch` brings it")
def test_the_rules_notice_what_they_are_for() -> None:
    file = Path(__file__).with_name("alerts_test.yml")
    done = subprocess.run(
        ["promtool", "test", "rules", str(file)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    """With a program that is there: whether it is installed is another question."""
    unit = tmp_path / "aerobee.service"
    text = (DEPLOY / "aerobee.service").read_text().replace("/opt/aerobee/bin/aerobee", "/bin/true")
    unit.write_text(text)
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(unit)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0 and not done.stderr.strip(), done.stderr
