# SPDX-License-Identifier: Apache-2.0
"""Templates of answers for the compiled lane: rendered as Python renders them, with values that stand nowhere else."""

from __future__ import annotations

from collections.abc import Callable

from aerobee.native.answers import Template
from aerobee.net.reply import Reply, reply_frame
from aerobee.protocol.command import Command

Finish = Callable[[Command, Reply], Reply]  # what a port adds to answers

OPAQUE = 1_234_567_890


def template(frame: bytes, *values: str | int) -> Template:
    """Of a frame rendered with OPAQUE and these values."""
    return Template(frame, [str(value).encode() for value in values], str(OPAQUE).encode())


def both(
    code: int, finish: Finish, answer: Callable[[Command], bytes | Reply], *values: str | int
) -> tuple[Template, Template]:
    """As JSON and binary: what an adapter answers to a command."""
    made = []
    for serialize in (0, 1):
        command = Command(code, OPAQUE, serialize=serialize)
        given = answer(command)
        frame = given if isinstance(given, bytes) else reply_frame(command, finish(command, given))
        made.append(template(frame, *values))
    return made[0], made[1]
