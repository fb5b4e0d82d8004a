# SPDX-License-Identifier: Apache-2.0
"""`aerobee admin COMMAND`: RocketMQ's mqadmin with its names, flags and printed lines, without a JVM.

Differences: a failure is one line and exit code 1 instead of a stack trace and 0; wrong usage is exit code 2.
"""

from __future__ import annotations

from typing import Any

import typer
from typer.core import TyperGroup

from aerobee.cli import output
from aerobee.cli.mqadmin import (
    access,
    as_json,
    brokers,
    connections,
    groups,
    messages,
    namesrv,
    offsets,
    plain_acl,
    sending,
    stats,
    topics,
)


class Commands(TyperGroup):
    """`--json` stands before a command or after it; its own flags are mqadmin's."""

    def invoke(self, ctx: Any) -> Any:
        if not ctx.params.pop("json", False):
            return super().invoke(ctx)
        record = as_json.begin()
        output.keep_lines(record.line)
        try:
            done = super().invoke(ctx)
        finally:
            as_json.end()
            output.keep_lines(None)
        output.line(output.pretty_json(record.value()))
        return done

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args[-1:] == ["--json"]:
            args = ["--json", *args[:-1]]
        return list(super().parse_args(ctx, args))


app = typer.Typer(
    cls=Commands,
    add_completion=False,
    no_args_is_help=True,
    help="RocketMQ's mqadmin: its command names, its flags, its output. "
    "Example: aerobee admin setConsumeMode -c DefaultCluster -t orders -g billing -m POP -q 8",
)


@app.callback()
def admin(json: output.Json = False) -> None:
    """RocketMQ's mqadmin: its command names, its flags, its output.

    aerobee admin setConsumeMode -c DefaultCluster -t orders -g billing -m POP -q 8

    aerobee admin topicStatus -t orders --json
    """


for module in (
    topics,
    groups,
    connections,
    offsets,
    messages,
    sending,
    brokers,
    namesrv,
    stats,
    access,
    plain_acl,
):
    for name, command in module.COMMANDS.items():
        app.command(name)(command)
