# SPDX-License-Identifier: Apache-2.0
"""`aerobee`: finds the command and loads only that one's code."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperGroup
from typer.main import get_command

from aerobee.errors import AerobeeError

# Command -> where it lives: a function, or a Typer app with commands of its own.
COMMANDS = {
    "serve": "aerobee.cli.serve:serve",
    "namesrv": "aerobee.cli.serve:namesrv",
    "broker": "aerobee.cli.serve:broker",
    "send": "aerobee.cli.messages:send",
    "consume": "aerobee.cli.messages:consume",
    "topics": "aerobee.cli.topics:app",
    "groups": "aerobee.cli.groups:app",
    "messages": "aerobee.cli.messages:app",
    "cluster": "aerobee.cli.cluster:app",
    "admin": "aerobee.cli.mqadmin:app",
    "pipeline": "aerobee.cli.pipeline:app",
    "bench": "aerobee.cli.bench:app",
    "demo": "aerobee.cli.demo:demo",
}


class LazyCommands(TyperGroup):
    def list_commands(self, ctx: Any) -> list[str]:
        return [name for name in COMMANDS if self.get_command(ctx, name) is not None]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        home = COMMANDS.get(cmd_name)
        if home is None:
            return None
        module, _, attribute = home.partition(":")
        try:
            found = getattr(import_module(module), attribute)
        except ModuleNotFoundError as error:
            if error.name != module:  # a dependency is missing, not the command
                raise typer.BadParameter(
                    f"'{cmd_name}' needs {error.name}: pip install 'aerobee[all]'"
                ) from None
            return None
        return as_command(cmd_name, found)


def as_command(name: str, found: Any) -> Any:
    if isinstance(found, typer.Typer):
        command = get_command(found)
    else:
        app = typer.Typer(add_completion=False)
        app.command(name)(found)
        command = get_command(app)
    command.name = name
    return command


app = typer.Typer(
    cls=LazyCommands,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="RocketMQ's messaging in pure Python: broker, name server, tools.",
)


@app.callback()
def root() -> None:
    """RocketMQ's messaging in pure Python: broker, name server, tools."""


def main() -> None:
    """Exit 0 = done, 1 = refused or failed (one line on stderr), 2 = wrong usage."""
    try:
        app()
    except (AerobeeError, OSError) as error:
        print(f"aerobee: {error}", file=sys.stderr)  # noqa: T201 - the one line of a failed command
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
