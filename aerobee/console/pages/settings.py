# SPDX-License-Identifier: Apache-2.0
"""Settings of a running broker: what each is, may be, and whether it can change now; changing one after a preview.

Of Aerobee's brokers ranges are known here, since both are made of the same declarations; of others only names and
values are told.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from aerobee.console.pages.listing import page_of
from aerobee.console.pages.one_broker import chosen
from aerobee.errors import QueryNotFound
from aerobee.settings import BrokerConfig, StoreConfig
from aerobee.settings.declare import HIDDEN, Field, fields
from aerobee.settings.official import NOT_BY_REQUEST

if TYPE_CHECKING:
    from starlette.responses import Response

    from aerobee.console.pages.one_broker import Chosen
    from aerobee.console.visit import Visit

PAGE = 100
# Of another broker; ours tells no secrets.
_is_secret = re.compile(
    r"password|secret|credential|initAuthenticationUser|ExporterHeader", re.IGNORECASE
).search
_DECLARED = {field.official: field for kind in (BrokerConfig, StoreConfig) for field in fields(kind).values()}


class Row(NamedTuple):
    """In our own units where it is one of ours, otherwise as the broker writes it."""

    name: str
    value: str
    field: Field | None = None

    @property
    def is_default(self) -> bool:
        return self.field is not None and self.value == self.field.text(self.field.default)

    @property
    def default(self) -> str:
        return self.field.text(self.field.default) if self.field else ""

    @property
    def may_change(self) -> bool:
        """Of another broker that is not known: it may be tried."""
        official = self.field.official if self.field else self.name
        return official not in NOT_BY_REQUEST and self.value != HIDDEN and (not self.field or self.is_live)

    @property
    def is_live(self) -> bool:
        return self.field is not None and self.field.about.live

    @property
    def text(self) -> str:
        """What a search looks through."""
        return f"{self.name} {self.field.official} {self.field.about.text}" if self.field else self.name


async def show(visit: Visit) -> Response:
    broker = await chosen(visit)
    rows, is_ours = await _rows(visit, broker)
    words, only = visit.query("q").lower().split(), visit.query("only")
    found = [
        row
        for row in rows
        if all(word in row.text.lower() for word in words)
        and (only != "live" or row.is_live)
        and (only != "set" or not row.is_default)
    ]
    return visit.render(
        "settings.html",
        title=visit.words("Settings"),
        broker=broker,
        known=len(rows),
        is_ours=is_ours,
        listing=page_of(visit, found, size=PAGE),
    )


async def one(visit: Visit) -> Response:
    """With a value in its address, what that would change."""
    broker = await chosen(visit)
    row, is_ours = await _row(visit, broker)
    wanted = visit.request.query_params.get("value")
    after, refused = "", ""
    if wanted is not None:
        try:
            after = _checked(row, wanted)
        except ValueError as error:
            refused = str(error)
    return visit.render(
        "setting.html",
        title=row.name,
        broker=broker,
        row=row,
        is_ours=is_ours,
        wanted=row.value if wanted is None else wanted,
        after=after,
        refused=refused,
        is_preview=wanted is not None and not refused,
    )


async def change(visit: Visit) -> Response:
    broker, t = await chosen(visit), visit.words
    visit.desk.view.forget()  # it is compared with what is now
    row, _ = await _row(visit, broker)
    after = _checked(row, visit.form.get("value", [""])[0])
    if not row.may_change:
        raise ValueError(
            t("{name} cannot be changed while the broker runs; nothing was changed", name=row.name)
        )
    if row.value != visit.field("before"):
        raise ValueError(t("{name} was changed meanwhile: look at it again first", name=row.name))
    await visit.desk.admin.update_broker_config(broker.address, {row.name: after})
    visit.desk.view.forget()
    said = t("{name} of {broker} is {value} now.", name=row.name, broker=broker.name, value=after)
    return visit.go(visit.link("settings", row.name, broker=broker.name), said)


def _checked(row: Row, text: str) -> str:
    """The value as it is sent: one line, and within its range. ValueError says what may be."""
    text = text.strip()
    if len(text.splitlines()) > 1:
        raise ValueError(f"the value of {row.name} is one line of text")
    return row.field.text(row.field.read(text, row.field.name)) if row.field else text


async def _row(visit: Visit, broker: Chosen) -> tuple[Row, bool]:
    name = visit.name("name")
    rows, is_ours = await _rows(visit, broker)
    for row in rows:
        if name in (row.field.names if row.field else (row.name,)):
            return row, is_ours
    raise QueryNotFound(visit.words("{broker} tells no setting {name}.", broker=broker.name, name=name[:100]))


async def _rows(visit: Visit, broker: Chosen) -> tuple[list[Row], bool]:
    """By name; and whether it is one of Aerobee's brokers."""
    view = visit.desk.view
    told = await view.once(("config", broker.address), lambda: view.admin.broker_config(broker.address))
    is_ours = "aerobeeVersion" in await view.runtime(broker.address)
    known = _DECLARED if is_ours else {}
    rows = [_told(name, value, known.get(name)) for name, value in told.items()]
    return sorted(rows, key=lambda row: row.name), is_ours


def _told(official: str, value: str, field: Field | None) -> Row:
    if field is None and value and _is_secret(official):
        return Row(official, HIDDEN)
    if field is None:
        return Row(official, value)
    try:
        return Row(field.name, field.text(field.read(value, official)), field)
    except ValueError:  # of another version
        return Row(official, value)
