# SPDX-License-Identifier: Apache-2.0
"""`--retention` of topics: RocketMQ's attribute `reserve.time`, in hours, as people write it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from aerobee.cli import output, times
from aerobee.errors import BrokerError
from aerobee.protocol.names import RESERVE_TIME

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aerobee.client.admin import Admin

AS_THE_LOG = "log"
HOUR_MS = 3_600_000
_OF_THE_LOG = "fileReservedTime"

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


async def warn_past_the_log(admin: Admin, attributes: Mapping[str, str], cluster: str | None) -> None:
    """A topic keeps nothing for longer than the log that all share. Said as far as one may look at the settings."""
    hours = attributes.get(RESERVE_TIME, "")
    if not hours.isdigit():
        return
    for name, address in (await admin.masters(cluster)).items():
        try:
            kept = float((await admin.broker_config(address)).get(_OF_THE_LOG, hours))
        except (BrokerError, ValueError):
            continue
        if kept < int(hours):
            output.note(
                f"the log of {name} keeps messages for {kept:g} h, so the topic will too; "
                f"`aerobee cluster set retention_hours={hours}` keeps more, and its settings file after the next start"
            )


def shown(attributes: Mapping[str, str]) -> str:
    hours = attributes.get(RESERVE_TIME, "-1")
    return f"{hours}h" if hours.isdigit() and int(hours) else AS_THE_LOG
