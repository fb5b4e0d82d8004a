# SPDX-License-Identifier: Apache-2.0
"""`--count` of send and consume; and their `-n`: an address is the name server, as elsewhere, a number is a count."""

from __future__ import annotations

from typing import Annotated

import typer

Dash = Annotated[
    list[str] | None,
    typer.Option(
        "-n", metavar="NUMBER", help="how many messages (an address: the name server, as elsewhere)"
    ),
]
Count = Annotated[int | None, typer.Option("--count", "-c", help="how many messages", min=1)]
Server = Annotated[
    str | None, typer.Option("--namesrv", help="name servers, ';' between them; or $AEROBEE_NAMESRV")
]


def split(
    dash: list[str] | None, namesrv: str | None, count: int | None = None
) -> tuple[int | None, str | None]:
    """The count, when one was given, and the name servers."""
    for text in dash or ():
        if ":" in text:
            namesrv = text
        elif text.isascii() and text.isdigit() and int(text) > 0:
            count = int(text)
        else:
            raise typer.BadParameter(f"-n {text!r}: give a number of messages, 1 or more, or host:port")
    return count, namesrv
