# SPDX-License-Identifier: Apache-2.0
"""The short way to a server: it takes what is spelled plainly, as the long way would, and leaves the rest to that."""

from __future__ import annotations

import subprocess
import sys
from inspect import signature
from typing import Any

import pytest

from aerobee.cli import entry, main, serve, serving

PLAIN = [
    ["serve"],
    [
        "serve",
        "--data",
        "d",
        "--host",
        "0.0.0.0",
        "--advertise=10.0.0.5",
        "--namesrv-port",
        "0",
        "--broker-port=-1",
    ],
    ["serve", "--ephemeral", "--set", "a=b", "--set", "c=d=e", "--log-level", "ERROR", "--brokers", "3"],
    [
        "serve",
        "--cluster",
        "c",
        "--name",
        "n",
        "--config",
        "f.toml",
        "--grpc-port",
        "-1",
        "--http-port",
        "-1",
    ],
    ["namesrv", "--namesrv-port", "9", "--host", "h", "--data=d"],
    ["broker", "--namesrv", "a:1;b:2", "--kept", "--broker-port", "1", "--ephemeral"],
]


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The flags of every server that was to be started; none is."""
    seen: list[dict[str, Any]] = []
    for name, command in list(serving.COMMANDS.items()):

        def remember(command: Any = command, **flags: Any) -> Any:
            bound = signature(command).bind(**flags)
            bound.apply_defaults()
            seen.append(dict(bound.arguments))
            return lambda: 0

        remember.__signature__ = signature(command)  # type: ignore[attr-defined]
        monkeypatch.setitem(serving.COMMANDS, name, remember)
        monkeypatch.setattr(serving, name, remember)
    return seen


@pytest.mark.parametrize("words", PLAIN, ids=" ".join)
def test_plain_flags_are_read_as_the_long_way_reads_them(
    words: list[str], started: list[dict[str, Any]]
) -> None:
    assert entry.plainly(words) is not None
    assert main.run(words) == 0
    short, long = started
    assert {**short, "set": short["set"] or None} == {**long, "set": long["set"] or None}


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["send", "orders", "x"],
        ["--version"],
        ["serve", "--help"],
        ["serve", "-h"],
        ["serve", "--wrong", "x"],
        ["serve", "--namesrv-port", "x"],
        ["serve", "--namesrv-port"],
        ["serve", "--log_level", "INFO"],
        ["serve", "--ephemeral=yes"],
        ["serve", "data"],
        ["broker", "-n", "127.0.0.1:9876"],
    ],
    ids=" ".join,
)
def test_all_else_goes_the_long_way(words: list[str], started: list[dict[str, Any]]) -> None:
    assert entry.plainly(words) is None
    assert not started


def test_settings_that_are_wrong_are_told_by_the_long_way() -> None:
    assert entry.plainly(["serve", "--set", "nothing=1"]) is None
    assert entry.plainly(["broker"]) is None
    assert entry.plainly(["serve", "--brokers", "0"]) is None


def test_every_flag_of_a_server_is_known_to_both_ways() -> None:
    for name, command in serving.COMMANDS.items():
        assert list(signature(getattr(serve, name)).parameters) == list(signature(command).parameters)


@pytest.mark.slow
def test_a_server_starts_without_what_only_commands_need() -> None:
    script = (
        "import sys\n"
        "from aerobee.cli.entry import plainly\n"
        "assert plainly(['serve', '--ephemeral'])\n"
        "import aerobee.server, aerobee.fronts.grpc.front, aerobee.namesrv.name_server\n"
        "unwanted = ('typer', 'click', 'rich', 'pydantic', 'grpc', 'cryptography')\n"
        "print([each for each in unwanted if each in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("name", main.COMMANDS)
def test_only_aerobee_itself_offers_to_install_completion(name: str) -> None:
    from typer.main import get_command

    group: Any = get_command(main.app)
    command = group.get_command(None, name)
    assert "install_completion" in [parameter.name for parameter in group.params]
    assert "install_completion" not in [parameter.name for parameter in command.params]
