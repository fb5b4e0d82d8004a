# SPDX-License-Identifier: Apache-2.0
"""Wrong input everywhere: one line on stderr, exit code 1 or 2, never a traceback."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from typer.main import get_command

from aerobee.cli import connect
from aerobee.cli.main import COMMANDS, EXTRAS, app, as_command, install
from aerobee.client.admin import Admin
from aerobee.client.options import SessionOptions
from aerobee.errors import NetworkError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from conftest import Done

NOBODY = "127.0.0.1:1"
# Servers in the foreground and whole stories: walked only with what must be refused before anything starts.
NOT_WALKED = {"serve", "namesrv", "broker", "console", "demo", "pipeline", "store"}
# Without these it answers by itself.
ASKS_A_SERVER_WITH: dict[tuple[str, ...], tuple[str, ...]] = {("settings",): ("--broker", "no-such-broker")}


def commands(
    command: Any = None, path: tuple[str, ...] = (), walked: frozenset[str] = frozenset(COMMANDS) - NOT_WALKED
) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every command there is, with its path."""
    if command is None:
        root: Any = get_command(app)
        for name in COMMANDS:
            if name in walked:
                yield from commands(root.get_command(None, name), (name,))
        return
    inner = getattr(command, "commands", None)
    if not inner:
        yield path, command
        return
    for name, each in inner.items():
        yield from commands(each, (*path, name))


ASKS_NOBODY = {("access", "init"), ("access", "renew")}  # they write files, and where they stand
EVERY = {path: command for path, command in commands() if path not in ASKS_NOBODY}
EVERY_ONE = dict(commands(walked=frozenset(COMMANDS)))


def options(command: Any) -> list[Any]:
    return [each for each in command.params if each.param_type_name == "option" and each.name != "help"]


def kind(parameter: Any) -> str:
    """str, int, float, bool, Path ... as the help shows it."""
    return (
        str(getattr(parameter, "type", "")).lower() + str(getattr(parameter, "type_descriptor", "")).lower()
    )


def filled(path: tuple[str, ...], command: Any, **instead: str) -> list[str]:
    """A call with something plausible for all that is required."""
    given = list(path)
    for each in command.params:
        if not each.required and each.name not in instead:
            continue
        value = instead.get(each.name) or _plausible(each)
        given += [value] if each.param_type_name == "argument" else [each.opts[0], value]
    return given


def _plausible(parameter: Any) -> str:
    known = {
        "mode": "POP", "message_id": "7F000001", "perm": "4", "pairs": "longPollingEnable=true", "value": "x",
        "timestamp": "now",
    }  # fmt: skip
    if parameter.name in known:
        return known[parameter.name]
    return "0" if "int" in kind(parameter) else "no-such-thing"


def assert_one_line(done: Done, *codes: int) -> None:
    assert done.code in (codes or (1, 2)), done
    text = [line for line in done.err.splitlines() if line.startswith("aerobee: ")]
    assert len(text) == 1, done
    assert "Traceback" not in done.err
    assert "this is a bug" not in done.err, done
    assert len(text[0]) > len("aerobee: ")


def test_the_walk_sees_all_commands() -> None:
    assert len(EVERY) > 60
    assert ("admin", "setConsumeMode") in EVERY
    assert ("groups", "reset") in EVERY
    assert {("serve",), ("demo",), ("pipeline", "lake")} <= EVERY_ONE.keys() - EVERY.keys()


@pytest.mark.parametrize("path", EVERY, ids=" ".join)
def test_no_server(
    path: tuple[str, ...], aerobee: Callable[..., Done], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AEROBEE_NAMESRV", NOBODY)
    done = aerobee(*filled(path, EVERY[path]), *ASKS_A_SERVER_WITH.get(path, ()), stdin=b"x")
    assert_one_line(done)
    if done.code == 1:
        assert "start one with `aerobee serve`" in done.err, done


@pytest.mark.parametrize("path", EVERY, ids=" ".join)
@pytest.mark.parametrize("address", ["nonsense", "127.0.0.1:99999", "127.0.0.1:"])
def test_an_address_that_is_none(path: tuple[str, ...], address: str, aerobee: Callable[..., Done]) -> None:
    assert_one_line(aerobee(*filled(path, EVERY[path]), "--namesrv", address, stdin=b"x"), 2)


@pytest.mark.parametrize("path", EVERY_ONE, ids=" ".join)
def test_an_option_there_is_not(path: tuple[str, ...], aerobee: Callable[..., Done]) -> None:
    done = aerobee(*filled(path, EVERY_ONE[path]), "--no-such-option", "1")
    assert_one_line(done, 2)
    assert f"see `aerobee {' '.join(path)} --help`" in done.err


@pytest.mark.parametrize("path", EVERY_ONE, ids=" ".join)
def test_missing_values(path: tuple[str, ...], aerobee: Callable[..., Done]) -> None:
    if not any(each.required for each in EVERY_ONE[path].params):
        return
    assert_one_line(aerobee(*path), 2)


NUMBERS = [
    (path, each)
    for path, command in EVERY_ONE.items()
    for each in options(command)
    if any(word in kind(each) for word in ("int", "float"))
]


@pytest.mark.parametrize(
    ("path", "option"), NUMBERS, ids=lambda x: " ".join(x) if isinstance(x, tuple) else x.opts[0]
)
def test_numbers_that_are_none(path: tuple[str, ...], option: Any, aerobee: Callable[..., Done]) -> None:
    assert_one_line(aerobee(*filled(path, EVERY_ONE[path], **{option.name: "many"})), 2)


@pytest.mark.parametrize(
    "path", [p for p in EVERY if p not in {("send",), ("topics", "create")}], ids=" ".join
)
def test_topics_groups_and_messages_that_do_not_exist(
    path: tuple[str, ...], aerobee: Callable[..., Done]
) -> None:
    """Whatever is required is filled with names nobody knows; commands without such a name do their work."""
    named = {
        "topic",
        "group",
        "source",
        "target",
        "message_id",
        "broker",
        "key",
        "cluster",
        "client",
    }
    command = EVERY[path]
    creating = {
        "create",
        "updateSubGroup",
        "updateKvConfig",
        "deleteKvConfig",
        "sendMessage",
        "send",
        "batch",
    }
    if (
        path[-1] in creating
        or path[0] == "bench"
        or not any(e.required and e.name in named for e in command.params)
    ):
        return
    assert_one_line(aerobee(*filled(path, command)))


WRONG = [
    ("foo",),
    ("topics", "foo"),
    ("admin", "foo"),
    ("topics", "create", "no.dots"),
    ("topics", "create", "cli-wrong", "--perm", "x"),
    ("topics", "create", "cli-wrong", "--queues", "0"),
    ("topics", "create", "cli-wrong", "--queues", "99999"),
    ("topics", "create", "cli-wrong", "--attribute", "x"),
    ("topics", "create", "cli-wrong", "--cluster", "no-such-cluster"),
    ("topics", "update", "cli-known"),
    ("topics", "update", "cli-known", "--perm", "7"),
    ("topics", "delete", "cli-known"),
    ("groups", "create", "no.dots"),
    ("groups", "create", "cli-wrong", "--retries", "-1"),
    ("groups", "delete", "cli-known"),
    ("groups", "reset", "cli-known", "-t", "cli-known", "--to", "yesterday-ish"),
    ("groups", "reset", "cli-known", "-t", "cli-known", "--offset", "3"),
    ("groups", "reset", "cli-known", "-t", "cli-known", "--queue", "99", "--to", "first"),
    ("groups", "mode", "cli-known", "push", "-t", "cli-known"),
    ("groups", "mode", "cli-known", "pop"),
    ("groups", "mode", "cli-known", "pop", "-t", "%RETRY%cli-known"),
    ("send", "cli-known", ""),
    ("send", "no.dots", "x"),
    ("send", "cli-known", "x", "-n", "0"),
    ("send", "cli-known", "x", "-n", "-5"),
    ("send", "cli-known", "x", "--size", "5"),
    ("send", "cli-known", "--size", "0"),
    ("send", "cli-known", "--size", "99999999"),
    ("send", "cli-known", "x", "--delay-level", "19"),
    ("send", "cli-known", "x", "--deliver-at", "soon"),
    ("send", "cli-known", "x", "--deliver-at", "+60d"),
    ("send", "cli-known", "x", "--deliver-at", "+1m", "--delay-level", "2"),
    ("send", "cli-known", "x", "--deliver-at", "+1m", "--delay-ms", "2"),
    ("send", "cli-known", "x", "--delay-ms", "0"),
    ("send", "cli-known", "x", "--property", "nothing"),
    ("send", "cli-known", "x", "--property", "TAGS=reserved"),
    ("send", "cli-known", "x", "--jsonl"),
    ("consume", "cli-known"),
    ("consume", "cli-known", "-g", "cli-known", "--mode", "shove"),
    ("consume", "cli-known", "-g", "cli-known", "--from", "the-start"),
    ("consume", "cli-known", "-g", "cli-known", "--mode", "pop", "--from", "-5m"),
    ("consume", "cli-known", "-g", "cli-known", "--tags", "a", "--sql", "b = 1"),
    ("consume", "cli-known", "-g", "cli-known", "--sql", "b =", "--timeout", "1s"),
    ("consume", "cli-known", "-g", "cli-known", "--timeout", "a while"),
    ("consume", "cli-known", "-g", "cli-known", "--mode", "pop", "--invisible", "x"),
    ("consume", "cli-known", "-g", "no.dots", "--timeout", "1s"),
    ("consume", "cli-knwn", "-g", "cli-known"),
    ("messages", "by-key", "cli-known", "k", "--begin", "x"),
    ("messages", "browse", "cli-known", "--from", "x"),
    ("messages", "browse", "cli-known", "--until", "x"),
    ("messages", "browse", "cli-known", "-q", "99"),
    ("messages", "at", "cli-known", "-q", "0", "-o", "999999"),
    ("messages", "at", "cli-known", "-q", "-1", "-o", "0"),
    ("cluster", "set", "nothing"),
    ("cluster", "set", "maxMessageSize=big"),
    ("cluster", "config", "zzz*"),
    ("cluster", "config", "-b", "no-such-broker"),
    ("admin", "setConsumeMode", "-t", "cli-known", "-g", "cli-known", "-m", "POP"),
    ("admin", "setConsumeMode", "-c", "DefaultCluster", "-t", "cli-known", "-g", "cli-known", "-m", "pop"),
    (
        "admin",
        "setConsumeMode",
        "-c",
        "DefaultCluster",
        "-t",
        "cli-known",
        "-g",
        "cli-known",
        "-m",
        "POP",
        "-q",
        "-9",
    ),
    ("admin", "setConsumeMode", "-c", "Nowhere", "-t", "cli-known", "-g", "cli-known", "-m", "POP"),
    ("admin", "updateTopic", "-t", "cli-known"),
    ("admin", "updateTopic", "-c", "DefaultCluster", "-t", "cli-known", "-p", "9"),
    ("admin", "updateTopic", "-c", "DefaultCluster", "-t", "cli-known", "-o", "maybe"),
    ("admin", "updateSubGroup", "-c", "DefaultCluster", "-g", "cli-known", "-p", "{"),
    ("admin", "resetOffsetByTime", "-g", "cli-known", "-t", "cli-known", "-s", "noon"),
    ("admin", "resetOffsetByTime", "-g", "cli-known", "-t", "cli-known", "-s", "now", "-o", "3"),
    ("admin", "printMsg", "-t", "cli-known", "-c", "no-charset"),
    ("admin", "printMsg", "-t", "cli-known", "-d", "maybe"),
    ("admin", "consumeMessage", "-t", "cli-known", "-o", "3"),
    ("admin", "sendMessage", "-t", "cli-known", "-p", "x", "-i", "1"),
    ("admin", "brokerStatus", "-b", "127.0.0.1:1"),
    ("admin", "brokerStatus"),
    ("admin", "allocateMQ", "-t", "cli-known", "-i", ","),
    ("bench", "send", "-k", "maybe", "-q", "1"),
    ("bench", "send", "-w", "0", "-q", "1"),
    ("bench", "send", "-t", "no.dots", "-q", "1"),
    ("bench", "pull", "-t", "no-such-topic", "-q", "1"),
    ("bench", "pop", "-r", "2", "-q", "1"),
    ("bench", "pull", "-f", "XPATH", "-e", "/dev/null", "-q", "1"),
    ("bench", "pull", "-f", "TAG", "-e", "/no/such/file", "-q", "1"),
    ("serve", "--broker-port", "many"),
    ("serve", "--config", "/no/such/file"),
    ("serve", "--set", "nonsense=1"),
    ("serve", "--set", "retention_hours=-1"),
    ("serve", "--set", "aclEnable=perhaps"),
    ("settings", "zzz*"),
    ("settings", "--set", "disk_full_ratio=0"),
    ("settings", "-b", "no-such-broker"),
    ("broker", "--broker-port", "0", "--namesrv", "nonsense", "--ephemeral"),
    ("demo", "--orders", "3"),
    ("pipeline", "lake"),
    ("pipeline", "foo"),
]


@pytest.mark.slow
@pytest.mark.parametrize("arguments", WRONG, ids=lambda each: " ".join(each)[:80])
def test_wrong_values(arguments: tuple[str, ...], aerobee: Callable[..., Done]) -> None:
    if "cli-known" in arguments:
        aerobee("topics", "create", "cli-known", "--queues", "2")
        aerobee("groups", "create", "cli-known")
    assert_one_line(aerobee(*arguments))


@pytest.mark.parametrize(
    ("stdin", "said"),
    [(b"no json", "line 1"), (b'{"tags": "a"}', "line 1"), (b'{"body": "x"}\n[]', "line 2")],
)
def test_json_lines_that_are_none(stdin: bytes, said: str, aerobee: Callable[..., Done]) -> None:
    done = aerobee("send", "cli-jsonl", "--jsonl", stdin=stdin)
    assert_one_line(done, 2)
    assert said in done.err


def test_the_next_step_is_named(aerobee: Callable[..., Done]) -> None:
    aerobee("topics", "create", "cli-nearest")
    aerobee("groups", "create", "cli-nearest")
    assert "did you mean 'cli-nearest'" in aerobee("topics", "show", "cli-nearst").err
    assert "did you mean 'cli-nearest'" in aerobee("groups", "show", "cli-nearst").err
    assert "did you mean topics" in aerobee("topic").err
    assert "--yes" in aerobee("topics", "delete", "cli-nearest").err


def test_a_bug_is_one_line_too_unless_the_traceback_is_asked_for(
    aerobee: Callable[..., Done], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(given: str | None) -> str:
        raise KeyError("oops")

    monkeypatch.setattr("aerobee.cli.connect.address_of", broken)
    done = aerobee("topics", "list")
    assert (done.code, done.err) == (
        1,
        "aerobee: KeyError: 'oops'; this is a bug, AEROBEE_DEBUG=1 shows where\n",
    )
    monkeypatch.setenv("AEROBEE_DEBUG", "1")
    with pytest.raises(KeyError):
        aerobee("topics", "list")


# -- help, completion, start -------------------------------------------------------------------------------


TAUGHT = dict(commands(walked=frozenset(COMMANDS)))


@pytest.mark.parametrize("path", TAUGHT, ids=" ".join)
def test_help_teaches_with_an_example(path: tuple[str, ...]) -> None:
    assert f"aerobee {' '.join(path)}" in (TAUGHT[path].help or ""), "an example of the command itself"


@pytest.mark.parametrize(
    ("module", "extra"),
    [("pyspark.sql", "spark"), ("google.protobuf", "grpc"), ("uvicorn", "console"), ("other", "all")],
)
def test_what_an_extra_brings_is_named(module: str, extra: str) -> None:
    assert install(ModuleNotFoundError(name=module)) == f"pip install 'aerobee[{extra}]'"


def test_the_demo_without_spark_says_so_in_one_line(
    aerobee: Callable[..., Done], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    done = aerobee("demo")
    assert_one_line(done, 1)
    assert "pip install 'aerobee[spark]', or run with --no-spark" in done.err


def test_every_extra_is_known_by_the_modules_of_its_packages() -> None:
    """A package that is added to an extra must be added to what names the extra, too."""
    spelled = {
        "grpcio": "grpc", "protobuf": "google",
        "opentelemetry-sdk": "opentelemetry", "opentelemetry-exporter-otlp-proto-grpc": "opentelemetry",
        "grpcio-status": "grpc_status", "googleapis-common-protos": "google", "pyyaml": "yaml",
    }  # fmt: skip
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    packages = {
        extra: {re.split(r"[<>=!~ \[]", line)[0] for line in lines} - {"aerobee"}
        for extra, lines in project["optional-dependencies"].items()
        if extra not in {"all", "dev", "rivals"}
    }
    wanted = {extra: {spelled.get(name, name) for name in found} for extra, found in packages.items()}
    assert wanted == {extra: set(modules) for extra, modules in EXTRAS.items()}


def test_help_of_everything(aerobee: Callable[..., Done]) -> None:
    assert "consume" in aerobee("--help").out
    for path in (("send",), ("groups",), ("groups", "reset"), ("admin", "setConsumeMode"), ("bench", "pop")):
        done = aerobee(*path, "-h")
        assert done.code == 0
        assert "Usage" in done.out


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        ("aerobee to", {"topics", "top"}),
        ("aerobee topics s", {"show", "stats"}),
        ("aerobee admin setC", {"setConsumeMode"}),
    ],
)
def test_the_shell_completes_commands(words: str, wanted: set[str]) -> None:
    environment = {
        **os.environ,
        "_AEROBEE_COMPLETE": "complete_bash",
        "COMP_WORDS": words,
        "COMP_CWORD": str(len(words.split()) - 1),
    }
    code = "import sys; sys.argv[0] = 'aerobee'; from aerobee.cli.main import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=60
    )
    assert set(done.stdout.split()) == wanted, done


@pytest.mark.slow
def test_completion_is_installed_for_a_shell(tmp_path: Any) -> None:
    environment = {**os.environ, "HOME": str(tmp_path), "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
    code = "import sys; sys.argv[0] = 'aerobee'; from aerobee.cli.main import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code, "--install-completion", "bash"],
        env=environment, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done
    assert "aerobee" in (tmp_path / ".bash_completions" / "aerobee.sh").read_text()


@pytest.mark.slow
def test_a_command_loads_only_what_it_needs() -> None:
    script = (
        "import sys\n"
        "from aerobee.cli.main import run\n"
        "run(['topics', 'list', '-n', '127.0.0.1:1'])\n"
        "heavy = ('aerobee.server', 'aerobee.broker.broker', 'aerobee.spark', 'rich.table')\n"
        "print([name for name in heavy if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "[]", done


def test_apps_and_functions_become_commands_alike() -> None:
    def hello() -> None:
        """Say hello."""

    assert as_command("hello", hello).name == "hello"


@pytest.mark.parametrize("path", EVERY_ONE, ids=" ".join)
def test_help_shows_every_word_that_was_written(
    aerobee: Callable[..., Done], monkeypatch: pytest.MonkeyPatch, path: tuple[str, ...]
) -> None:
    """Also what stands in brackets, which is markup to what prints it."""
    monkeypatch.setenv("COLUMNS", "600")
    shown = " ".join(aerobee(*path, "--help").out.split())
    for option in options(EVERY_ONE[path]):
        written = " ".join((option.help or "").replace("\\[", "[").split())
        assert written in shown, option.name


@pytest.mark.parametrize(
    "pipeline", [("lake", "orders", "/tmp/out"), ("consume", "o", "-g", "g", "--handler", "x:y")]
)
@pytest.mark.parametrize(
    ("given", "said"),
    [
        (("--every", "soon"), "--every 'soon': expected a duration such as 15m or 500ms"),
        (("--every", "1s", "--once"), "--every has no meaning with --once"),
    ],
)
def test_a_wrong_interval_is_refused_before_spark_starts(
    aerobee: Callable[..., Done], pipeline: tuple[str, ...], given: tuple[str, ...], said: str
) -> None:
    done = aerobee("pipeline", *pipeline, *given)
    assert done.code == 2
    assert said in " ".join(done.err.split())


@pytest.mark.parametrize(
    ("tls", "error", "told"),
    [
        ("off", "connection to 127.0.0.1:9876 was lost", "AEROBEE_TLS=on"),
        ("on", "connection to 127.0.0.1:9876 was lost", "does it speak TLS?"),
        ("on", "cannot connect to 127.0.0.1:9876: [SSL: CERTIFICATE_VERIFY_FAILED]", "AEROBEE_TLS_CA"),
    ],
)
async def test_a_server_that_cannot_be_talked_to_may_be_so_for_tls(tls: str, error: str, told: str) -> None:
    async with Admin("127.0.0.1:9876", options=SessionOptions(tls=tls)) as admin:
        assert told in str(await connect.explained(NetworkError(error), admin))
