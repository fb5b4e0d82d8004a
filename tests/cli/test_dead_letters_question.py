# SPDX-License-Identifier: Apache-2.0
"""Who may send dead letters again is asked first, whether or not it may see who else reads the topic."""

from __future__ import annotations

from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
import typer

from aerobee.cli import connect, dead_letters
from aerobee.errors import NoPermission
from aerobee.protocol import properties as props

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


class Letters:
    async def dead_letters(self, group: str) -> AsyncIterator[Any]:
        origin = {props.RETRY_TOPIC: "orders"}
        yield SimpleNamespace(message_id="m-1", keys=["o-1"], property=origin.get, properties=origin)


async def test_who_may_not_see_the_readers_is_asked_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    @asynccontextmanager
    async def connected(address: str) -> AsyncIterator[Letters]:
        yield Letters()

    async def exists(admin: Letters, group: str) -> None:
        assert group == "billing"

    async def refused(*told: object) -> str:
        raise NoPermission("User:ann has no permission to access Topic:orders")

    monkeypatch.setattr(connect, "connected", connected)
    monkeypatch.setattr(connect, "existing_group", exists)
    monkeypatch.setattr(dead_letters, "_other_readers", refused)
    monkeypatch.setattr("sys.stdin", SimpleNamespace(isatty=lambda: False))
    asked = r"Who else reads the topic you may not be told\. Send 1 dead letter of 'billing' again\? Say so with --yes\."
    with pytest.raises(typer.BadParameter, match=asked):
        await dead_letters._resend("a:1", "billing", lambda letter: True, dry_run=False, yes=False)


def test_a_message_that_died_twice_is_said_to_have_left_two_letters() -> None:
    rows = [{"msgId": "m-1"}, {"msgId": "m-1"}, {"msgId": "m-2"}]
    assert dead_letters._counted(rows) == "3 dead letters (of 2 messages)"
    assert dead_letters._counted(rows[1:]) == "2 dead letters"
