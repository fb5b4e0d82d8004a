# SPDX-License-Identifier: Apache-2.0
"""What each broker keeps for itself is changed on all of them; those that refuse are named."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from aerobee.console.pages.one_broker import chosen, on_every
from aerobee.console.words import LANGUAGES
from aerobee.errors import NoPermission, NoRoute


class View:
    def __init__(self, *brokers: str) -> None:
        self.brokers = brokers
        self.forgot = False

    async def masters(self) -> dict[str, str]:
        return {name: f"{name}:10911" for name in self.brokers}

    def forget(self) -> None:
        self.forgot = True


def visiting(view: View, asked: str = "") -> Any:
    return SimpleNamespace(
        desk=SimpleNamespace(view=view),
        words=LANGUAGES["en"],
        query=lambda name: asked,
        field=lambda name: "",
    )


async def refuse_at_b(address: str) -> None:
    if address.startswith("b"):
        raise NoPermission("not here")


async def test_one_that_refuses_is_named_and_the_others_have_it() -> None:
    view = View("c", "b", "a")
    said = await on_every(visiting(view), refuse_at_b, "Done.")
    assert said.startswith("Done. b refused: ") and "not here" in said
    assert view.forgot


async def test_when_all_refuse_nothing_was_done() -> None:
    with pytest.raises(NoPermission, match="not here"):
        await on_every(visiting(View("b")), refuse_at_b, "Done.")


async def test_the_first_is_looked_at_unless_another_is_named() -> None:
    view = View("c", "a")
    assert (await chosen(visiting(view))).name == "a"
    assert (await chosen(visiting(view, "c"))).address == "c:10911"
    with pytest.raises(NoRoute, match="unknown"):
        await chosen(visiting(view, "x"))
    with pytest.raises(NoRoute, match="no broker"):
        await chosen(visiting(View()))
