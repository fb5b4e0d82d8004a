# SPDX-License-Identifier: Apache-2.0
"""Who a pipeline is to the servers: an option, then the environment, then the profile, as with every command."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")

from aerobee.cli import pipeline
from aerobee.cli.main import run
from aerobee.errors import AerobeeError

if TYPE_CHECKING:
    from pathlib import Path

PROFILE = """
[acc]
namesrv = "mq1:9876"
access_key = "ann"
secret_key = "@annes"
tls = "on"
tls_ca = "/etc/ca.pem"
"""
COMMANDS = [
    ["lake", "t", "out", "--once"],
    ["consume", "t", "-g", "g", "--handler", "json:loads"],
    ["ledger", "t"],
    ["report", "t"],
    ["replay", "t", "--name", "n"],
]


@pytest.fixture
def profiles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "profiles.toml"
    file.write_text(PROFILE)
    file.chmod(0o600)
    monkeypatch.setenv("AEROBEE_PROFILES", str(file))
    for name in ("ACCESS_KEY", "SECRET_KEY", "NAMESRV", "PROFILE", "TLS", "TLS_CA"):
        monkeypatch.delenv(f"AEROBEE_{name}", raising=False)


@pytest.fixture
def taken(profiles: None, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The options of the source, after a command was run."""
    found: dict[str, str] = {}
    real = pipeline._source

    def source(*arguments: Any) -> dict[str, str]:
        found.update(real(*arguments))
        raise AerobeeError("that is all")  # no Spark is started

    monkeypatch.setattr(pipeline, "_source", source)
    monkeypatch.setattr(pipeline, "_session", lambda *_: None)
    monkeypatch.setattr(pipeline, "_send_along", lambda *_: None)
    return found


def started(*arguments: str) -> None:
    assert run(list(arguments)) == 1


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_a_pipeline_takes_the_profile(taken: dict[str, str], command: list[str]) -> None:
    started("--profile", "acc", "pipeline", *command)
    assert taken == {
        "namesrv": "mq1:9876",
        "accessKey": "ann",
        "secretKey": "text:@annes",
        "tls": "on",
        "tlsCa": "/etc/ca.pem",
    }


def test_the_environment_goes_before_the_profile_and_an_option_before_both(
    taken: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AEROBEE_ACCESS_KEY", "bob")
    monkeypatch.setenv("AEROBEE_SECRET_KEY", "bobs")
    started("--profile", "acc", "pipeline", "ledger", "t", "-o", "secretKey=env:BOBS", "-o", "tls=off")
    assert taken == {"namesrv": "mq1:9876", "accessKey": "bob", "secretKey": "env:BOBS", "tls": "off"}


def test_files_have_no_account_and_no_name_server(
    taken: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AEROBEE_NAMESRV", "mq2:9876")
    monkeypatch.setenv("AEROBEE_ACCESS_KEY", "bob")
    started("pipeline", "ledger", "t", "--store", "./data")
    assert taken == {"storePath": "./data"}
