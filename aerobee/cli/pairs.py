# SPDX-License-Identifier: Apache-2.0
"""`name=value`, as several commands take it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from collections.abc import Iterable


def pairs_of(given: Iterable[str] | None, flag: str = "") -> dict[str, str]:
    """By name, without the space around it; values are as they were typed."""
    found = {}
    for pair in given or ():
        name, equals, value = pair.partition("=")
        if not equals or not name.strip():
            raise typer.BadParameter(f"{flag} {pair!r}: write it as name=value".lstrip())
        found[name.strip()] = value
    return found
