# SPDX-License-Identifier: Apache-2.0
"""`aerobee admin COMMAND`: RocketMQ's mqadmin with its names, flags and printed lines, without a JVM.

Differences: a failure is one line and exit code 1 instead of a stack trace and 0; wrong usage is exit code 2.
"""

from __future__ import annotations

import typer

from aerobee.cli.mqadmin import (
    access,
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

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    help="RocketMQ's mqadmin: its command names, its flags, its output. "
    "Example: aerobee admin setConsumeMode -c DefaultCluster -t orders -g billing -m POP -q 8",
)

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
