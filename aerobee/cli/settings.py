# SPDX-License-Identifier: Apache-2.0
"""`aerobee settings`: every setting with its value, where that came from, and what else it may be."""

from __future__ import annotations

import fnmatch
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from aerobee.cli import connect, output
from aerobee.cli.cluster import chosen
from aerobee.settings import Settings, load
from aerobee.settings.declare import HIDDEN
from aerobee.settings.names import all_fields
from aerobee.settings.sources import DEFAULT

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aerobee.settings.declare import Field

Pattern = Annotated[str | None, typer.Argument(help="only settings like this, by either name: 'pop*'")]
Config = Annotated[Path | None, typer.Option("--config", help="settings file that `serve` would be given")]
Pairs = Annotated[list[str] | None, typer.Option("--set", help="name=value that `serve` would be given")]
Broker = Annotated[str | None, typer.Option("--broker", "-b", help="of a running broker, by name or address")]

Changed = Annotated[bool, typer.Option("--changed", help="only what is not the default")]

LIVE = "live"  # changed while the broker runs
NOT_TOLD = "not told"  # of secrets: not even whether they are set
COLUMNS = {
    "setting": "setting", "value": "value", "from": "from", "range": "range", "live": "live", "official": "official",
}  # fmt: skip


def settings(
    pattern: Pattern = None,
    config: Config = None,
    set_: Pairs = None,
    broker: Broker = None,
    changed: Changed = False,
    namesrv: connect.Namesrv = None,
    json: output.Json = False,
) -> None:
    """Every setting: its value, where that came from, its range, whether it may change while running.

    With --broker or --namesrv those of running brokers, otherwise those that `serve` would start with. Of a running
    broker FROM is `default`; the broker, where a file, a flag or the environment has set it (which of them, it does not
    tell); `live`, where it was changed while running (`cluster set`, updateBrokerConfig): that lasts until the next
    start; `not told` of secrets, set or not.

    aerobee settings

    aerobee settings 'pop*' --config broker.conf --json

    aerobee settings --changed --broker broker-a
    """
    if broker is not None or namesrv is not None:
        rows = connect.run(_running(connect.address_of(namesrv), broker))
    else:
        try:
            rows = _at_start(load(config, os.environ, pairs=set_ or ()))
        except ValueError as error:
            raise typer.BadParameter(str(error)) from None
    wanted = (pattern or "*").lower()
    rows = [row for row in rows if any(fnmatch.fnmatch(name, wanted) for name in _names(row))]
    if changed:
        rows = [row for row in rows if row["from"] not in (DEFAULT, NOT_TOLD)]
    if output.wants_json(json):
        output.line(output.pretty_json(rows))
        return
    if not rows and changed:
        output.note("everything is the default")
        return
    if not rows:
        raise connect.Failed(f"no setting is like {pattern!r}")
    output.table([{**row, "value": _text(row["value"])} for row in rows], COLUMNS)


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _names(row: Mapping[str, Any]) -> tuple[str, ...]:
    own = row["setting"].lower()
    return own, own.partition(".")[2], row["official"].lower()


def _at_start(loaded: Settings) -> list[output.Row]:
    return [
        _row(
            field,
            getattr(getattr(loaded, field.table), field.name),
            loaded.source(field.table, field.name),
        )
        for field in all_fields()
    ]


async def _running(address: str, broker: str | None) -> list[output.Row]:
    """What a broker says, which may be Apache's: settings it has not are left out."""
    rows = []
    async with connect.connected(address) as admin:
        for name, where in (await chosen(admin, broker)).items():
            told, live = await admin.broker_config(where), await admin.live_settings(where)
            rows += [
                _told(
                    field,
                    told.get(field.official, HIDDEN),
                    LIVE if field.official in live else f"broker {name}",
                )
                for field in all_fields()
                if field.table != "namesrv" and (field.official in told or field.about.secret)
            ]
    return rows


def _told(field: Field, text: str, source: str) -> output.Row:
    if field.about.secret:
        return _row(field, HIDDEN, NOT_TOLD)
    try:
        value = field.read(text, field.official)
    except ValueError:  # Apache's may be what ours may not
        value = text
    return _row(field, value, DEFAULT if value == field.default and source != LIVE else source)


def _row(field: Field, value: Any, source: str) -> output.Row:
    return {
        "setting": f"{field.table}.{field.name}",
        "value": field.told(value),
        "from": source,
        "default": field.default,
        "unit": field.about.unit,
        "range": field.range,
        "live": field.about.live,
        "official": field.official,
        "about": field.about.text,
    }
