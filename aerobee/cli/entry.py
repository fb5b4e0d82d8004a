# SPDX-License-Identifier: Apache-2.0
"""The way in. A server whose flags are spelled plainly is started at once; all else goes by `main.py`, which reads every
spelling, prints help and says what is wrong, but takes much longer to load than a server's flags take to read.
"""

from __future__ import annotations

import inspect
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from aerobee.cli.serving import Start

_SERVERS = ("serve", "namesrv", "broker")
_READ: dict[str, Callable[[str], Any]] = {
    "str": str,
    "str | None": str,
    "int | None": int,
    "Path | None": Path,
}


def main() -> None:
    start = plainly(sys.argv[1:])
    if start is None:
        from aerobee.cli import main as everything

        everything.main()
        return
    try:
        code = start()
    except Exception as error:
        if os.environ.get("AEROBEE_DEBUG"):
            raise
        from aerobee.cli.main import failed

        code = failed(error)
    sys.exit(code)


def plainly(arguments: list[str]) -> Start | None:
    """What starts the server that is asked for; None when it is none, or there is more to say about it."""
    if not arguments or arguments[0] not in _SERVERS or "AEROBEE_PROFILE" in os.environ:
        return None
    from aerobee.cli.serving import COMMANDS

    command = COMMANDS[arguments[0]]
    try:
        return command(**_flags(arguments[1:], command))
    except (ValueError, LookupError):
        return None


def _flags(words: list[str], command: Callable[..., Start]) -> dict[str, Any]:
    """As the command takes them. LookupError or ValueError for what is not `--flag value` or `--flag=value`."""
    kinds = {name: each.annotation for name, each in inspect.signature(command).parameters.items()}
    found: dict[str, Any] = {}
    left = iter(words)
    for word in left:
        flag, equals, value = word.partition("=")
        if not flag.startswith("--") or "_" in flag:
            raise ValueError(word)
        name = flag[2:].replace("-", "_")
        kind = kinds[name]
        if kind == "bool":
            if equals:
                raise ValueError(word)
            found[name] = True
            continue
        if not equals:
            value = next(left, "")
        if not value:
            raise ValueError(word)
        if kind.startswith("list"):
            found.setdefault(name, []).append(value)
        else:
            found[name] = _READ[kind](value)
    return found


if __name__ == "__main__":
    main()
