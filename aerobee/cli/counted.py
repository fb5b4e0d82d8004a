# SPDX-License-Identifier: Apache-2.0
"""`--count` of send and consume. Their `-n` was once a count; it is the name server, as everywhere, and a bare number is
taken for a count, with a warning, until 1.0."""

from __future__ import annotations

from typing import Annotated

import typer

from aerobee.cli import output
from aerobee.client.session.identity import DEFAULT_NAMESRV

Count = Annotated[int | None, typer.Option("--count", "-c", help="how many messages", min=1)]
Server = Annotated[
    list[str] | None,
    typer.Option(
        "--namesrv",
        "-n",
        metavar="HOST:PORT",
        help=f"name servers, ';' between them; or $AEROBEE_NAMESRV [{DEFAULT_NAMESRV}]",
    ),
]


def split(given: list[str] | None, count: int | None) -> tuple[int | None, str | None]:
    """The count, when one was given, and the name servers."""
    namesrv = None
    for text in given or ():
        if not (text.isascii() and text.isdigit()):
            namesrv = text
            continue
        if int(text) < 1:
            raise typer.BadParameter(
                f"-n {text!r}: give the name server, host:port; counts are -c, 1 or more"
            )
        output.note(f"-n {text} for a count works until 1.0 only: write -c {text}; -n is the name server")
        count = int(text) if count is None else count
    return count, namesrv
