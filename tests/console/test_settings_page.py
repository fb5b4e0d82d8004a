# SPDX-License-Identifier: Apache-2.0
"""Settings of a broker: what they are and may be; a live one changes after a preview."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import quote

if TYPE_CHECKING:
    import pytest

    from aerobee import Admin, Server

LIVE = "/settings/transaction_check_max"


async def value_of(admin: Admin, server: Server, official: str) -> str:
    return (await admin.broker_config(server.broker_address))[official]


async def test_each_has_its_value_range_and_when_it_takes_effect(browser: Any) -> None:
    page = await browser.get("/settings?q=transaction_check_max")
    row = page.split(f'href="{LIVE}"')[1].split("</tr>")[0]
    assert "default" in row and "at once" in row
    assert "at once" not in (await browser.get("/settings?q=listenPort")).split("<tbody>")[1]
    assert "No setting has that." in await browser.get("/settings?q=nonsense")


async def test_what_was_set_can_be_told_from_defaults(browser: Any) -> None:
    page = await browser.get("/settings?only=set&q=delay_levels")
    assert "delay_levels" in page.split("<tbody>")[1]
    assert "transaction_check_max" not in await browser.get("/settings?only=set")
    assert "delay_levels" not in await browser.get("/settings?only=live")


async def test_a_switch_about_passwords_is_no_secret(browser: Any) -> None:
    assert "(hidden)" not in await browser.get("/settings?q=hide_passwords")


async def test_one_is_found_by_rocketmq_s_name_too(browser: Any) -> None:
    assert "transaction_check_max" in await browser.get("/settings/transactionCheckMax")
    await browser.get("/settings/%3Cscript%3E", 404)


async def test_a_live_one_changes_after_it_was_shown(browser: Any, admin: Admin, server: Server) -> None:
    preview = await browser.get(f"{LIVE}?value=7")
    assert "goes from 15 to 7." in preview
    assert await value_of(admin, server, "transactionCheckMax") == "15"
    assert "is 7 now." in await browser.send(f"{LIVE}?value=7", LIVE)
    assert await value_of(admin, server, "transactionCheckMax") == "7"


async def test_what_is_out_of_range_is_refused_where_it_was_typed(browser: Any) -> None:
    page = await browser.get(f"{LIVE}?value=many")
    assert "is not a whole number" in page and 'class="danger"' not in page
    assert "That is what it is already." in await browser.get(f"{LIVE}?value=15")


async def test_one_that_was_changed_meanwhile_is_looked_at_again(
    browser: Any, admin: Admin, server: Server
) -> None:
    refused = await browser.send(f"{LIVE}?value=7", LIVE, 400, before="14")
    assert "was changed meanwhile" in refused
    assert await value_of(admin, server, "transactionCheckMax") == "15"


async def test_a_value_of_two_lines_smuggles_in_no_other_setting(
    browser: Any, admin: Admin, server: Server
) -> None:
    for evil in ("7\ntransactionTimeOut=1", "7\r\ntransactionTimeOut=1", "7\u2028transactionTimeOut=1"):
        await browser.send(f"{LIVE}?value=7", LIVE, 400, value=evil)
    assert await value_of(admin, server, "transactionTimeOut") != "1"


async def test_one_that_waits_for_the_next_start_has_no_form(browser: Any, admin: Admin) -> None:
    page = await browser.get("/settings/delay_levels?value=1s")
    assert "start the broker anew" in page and 'class="danger"' not in page
    token = (await browser.form("/settings", "/language"))["token"]
    answer = await browser.http.post("/settings/delay_levels", data={"token": token, "value": "1s"})
    assert answer.status_code == 400


async def test_read_only_shows_and_changes_nothing(server: Server, admin: Admin, open_console: Any) -> None:
    async with open_console(server.namesrv, read_only=True) as browser:
        assert 'name="value"' not in await browser.get(f"{LIVE}?value=7")
        token = (await browser.form("/settings", "/language"))["token"]
        data = {"token": token, "value": "7", "before": "15"}
        assert (await browser.http.post(LIVE, data=data)).status_code == 403
    assert await value_of(admin, server, "transactionCheckMax") == "15"


async def test_another_broker_s_are_shown_by_name_and_value_and_secrets_are_not(
    browser: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As Apache's tells them, and with a hostile one."""
    await browser.get("/settings")
    desk = await browser.app.state.console.desks.of("")
    evil = "<script>alert(1)</script>"
    told = {
        "flushDiskType": evil,
        "initAuthenticationUser": '{"password":"told"}',
        "transactionCheckMax": "15",
    }
    sent: list[dict[str, str]] = []

    async def config(_: str) -> dict[str, str]:
        return told

    async def runtime(_: str) -> dict[str, str]:
        return {"brokerVersionDesc": "V5_3_3"}

    async def update(_: str, settings: dict[str, str]) -> None:
        sent.append(settings)

    for name, answer in (
        ("broker_config", config),
        ("broker_runtime", runtime),
        ("update_broker_config", update),
    ):
        monkeypatch.setattr(desk.admin, name, answer)
    desk.view.forget()
    page = await browser.get("/settings")
    assert "names and values only" in page and "(hidden)" in page
    assert evil not in page and "&#34;told" not in page
    assert evil not in await browser.get(f"/settings/flushDiskType?value={quote(evil)}x")
    place = "/settings/transactionCheckMax"
    assert "does not say which values it takes" in await browser.get(f"{place}?value=7")
    await browser.send(f"{place}?value=7", place)
    assert sent == [{"transactionCheckMax": "7"}]
