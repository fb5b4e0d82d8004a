# SPDX-License-Identifier: Apache-2.0
"""`--retention` of topics: RocketMQ's attribute `reserve.time`, in hours, as people write it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from aerobee.cli import times
from aerobee.protocol.names import RESERVE_TIME

if TYPE_CHECKING:
    from collections.abc import Mapping

AS_THE_LOG = "log"
HOUR_MS = 3_600_000

Retention = Annotated[
    str | None,
    typer.Option(
        "--retention", help="serve messages so long: 12h, 7d; 'log': for as long as the broker's log has them"
    ),
]


def attribute(text: str | None) -> dict[str, str]:
    """What to set, if anything; ValueError shows how to write it."""
    if text is None:
        return {}
    if text == AS_THE_LOG:
        return {RESERVE_TIME: "-1"}
    if text.strip().isdigit():
        raise ValueError(f"--retention {text}: of what? Write {text}h or {text}d")
    hours, rest = divmod(times.parse_duration(text), HOUR_MS)
    if rest or not hours:
        raise ValueError(f"--retention {text}: whole hours, from 1h on; or 'log'")
    return {RESERVE_TIME: str(hours)}


def shown(attributes: Mapping[str, str]) -> str:
    hours = attributes.get(RESERVE_TIME, "-1")
    return f"{hours}h" if hours.isdigit() and int(hours) else AS_THE_LOG
