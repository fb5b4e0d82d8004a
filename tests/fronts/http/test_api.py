# SPDX-License-Identifier: Apache-2.0
"""/api: looks by GET, acts by POST, refuses in words."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING

import pytest

from aerobee import Message, Producer, SimpleConsumer
from aerobee.fronts.gates.rights import BROKER
from aerobee.fronts.http.api import ENTRIES
from aerobee.fronts.http.given import Given
from aerobee.fronts.http.openapi import described
from tests.fronts.http.asking import act, ask
from tests.turning import until

if TYPE_CHECKING:
    from aerobee.server import Server


async def test_topics_are_made_listed_told_and_deleted(server: Server) -> None:
    at = server.http_address
    made = await act(at, "/api/topics/orders", {"queues": 3, "attributes": {"message.type": "FIFO"}})
    assert (made.status, made.json) == (200, {"done": True})
    listed = await ask(at, "/api/topics?contains=ORD&limit=1")
    assert listed.json["total"] == 1
    assert listed.json["topics"][0]["topic"] == "orders"
    assert listed.json["topics"][0]["attributes"] == {"message.type": "FIFO"}
    async with Producer(server.namesrv, group="shop") as producer:
        await producer.send(Message("orders", b"x", keys=["o-1"]))
    one = (await ask(at, "/api/topics/orders")).json
    assert (one["messages"], len(one["queues"])) == (1, 3)
    assert (await act(at, "/api/topics/orders/delete", {})).status == 200
    assert (await ask(at, "/api/topics/orders")).status == 404


async def test_a_groups_figures_are_exact(server: Server) -> None:
    at = server.http_address
    async with Producer(server.namesrv, group="shop") as producer:
        await producer.send(Message("orders", b"0"))
        async with SimpleConsumer(server.namesrv, group="shipping", topics={"orders": "*"}) as consumer:
            await until(lambda: server.broker.clients.group("shipping"))
            (message,) = await consumer.receive(max_messages=1, invisible_ms=60_000)
            await producer.send(Message("orders", b"1"))
            found = (await ask(at, "/api/groups/shipping")).json
            assert (found["ready"], found["inFlight"]) == (1, 1)
            where = f"topic=orders&queueId={message.queue_id}&offset={message.queue_offset}"
            one = (await ask(at, f"/api/groups/shipping/message?{where}")).json
            assert (one["group"], one["place"]) == ("shipping", "leased")
            assert one["leasedUntil"] - one["poppedAt"] == 60_000
            members = (await ask(at, "/api/groups/shipping/members")).json
            assert len(members["connectionSet"]) == 1
            assert {"group": "shipping", "members": 1} in (await ask(at, "/api/groups")).json["groups"]
            clients = (await ask(at, "/api/clients")).json
            assert {row["group"] for row in clients["consumers"]} == {"shipping"}
            assert "shop" in {row["group"] for row in clients["producers"]}


async def test_a_group_is_made_moved_and_told_to_pop(server: Server) -> None:
    at = server.http_address
    await act(at, "/api/topics/orders", {"queues": 2})
    assert (await act(at, "/api/groups/billing", {"retryMaxTimes": 3})).status == 200
    assert server.broker.groups.require("billing").retry_max_times == 3
    moved = await act(at, "/api/groups/billing/reset", {"topic": "orders", "timestamp": 0})
    assert moved.json == {"offsets": {"0": 0, "1": 0}}
    assert (await act(at, "/api/groups/billing/mode", {"topic": "orders", "mode": "POP"})).status == 200
    assert server.broker.pops.modes.get("orders", "billing").mode.value == "POP"
    assert (await act(at, "/api/groups/billing/mode", {"topic": "orders", "mode": "PUSH"})).status == 400
    assert (await act(at, "/api/groups/billing/delete", {})).status == 200
    assert server.broker.groups.get("billing") is None


async def test_messages_are_found_by_key_and_by_id(server: Server) -> None:
    at = server.http_address
    async with Producer(server.namesrv, group="shop") as producer:
        await producer.send(Message("orders", b"\xff\x00", keys=["o-1"], tags="paid"))
        await producer.send(Message("orders", "für <b>".encode(), keys=["o-2"]))
    server.broker.store.flush()
    (found,) = (await ask(at, "/api/messages?topic=orders&key=o-1")).json["messages"]
    assert (found["tags"], found["keys"], found["bodyText"]) == ("paid", ["o-1"], None)
    assert base64.b64decode(found["bodyBase64"]) == b"\xff\x00"
    same = (await ask(at, f"/api/messages/{found['offsetId']}")).json
    assert same["messageId"] == found["messageId"]
    (text,) = (await ask(at, "/api/messages?topic=orders&key=o-2")).json["messages"]
    assert text["bodyText"] == "für <b>"
    assert (await ask(at, "/api/messages?topic=orders&key=none")).status == 404
    assert (await ask(at, "/api/messages/nonsense")).status == 400


async def test_settings_are_told_without_secrets_and_changed_all_or_none(server: Server) -> None:
    at = server.http_address
    told = (await ask(at, "/api/settings")).json
    assert told["settings"]["cluster"] == "DefaultCluster"
    assert "pull_messages" in told["live"]
    assert (await act(at, "/api/settings", {"pull_messages": 7, "long_polling": False})).status == 200
    assert (server.broker.config.pull_messages, server.broker.config.long_polling) == (7, False)
    refused = await act(at, "/api/settings", {"pull_messages": 8, "port": 1})
    assert refused.status == 400
    assert "takes effect at the next start" in refused.json["error"]
    assert server.broker.config.pull_messages == 7
    assert (await act(at, "/api/settings", {"pull_messages": "8\nport=1"})).status == 400


@pytest.mark.parametrize(
    ("headers", "body"),
    [
        ({"content-type": "text/plain"}, b"{}"),
        ({"content-type": "application/x-www-form-urlencoded"}, b"queues=1"),
        ({"content-type": "application/json"}, b"[1]"),
        ({"content-type": "application/json"}, b"{"),
        ({"content-type": "application/json"}, b'{"queues": "many"}'),
        ({"content-type": "application/json"}, b'{"queues": 0}'),
        ({"content-type": "application/json"}, b'{"attributes": {"a": 1}}'),
        ({"content-type": "application/json"}, b'{"x": "' + b"y" * 300_000 + b'"}'),
        ({"content-type": "application/json", "origin": "http://evil.example"}, b"{}"),
    ],
)
async def test_what_cannot_be_meant_is_refused_and_changes_nothing(
    server: Server, headers: dict[str, str], body: bytes
) -> None:
    answer = await ask(server.http_address, "/api/topics/orders", method="POST", headers=headers, body=body)
    assert answer.status == 400
    assert answer.json["error"]
    assert server.broker.topics.get("orders") is None


async def test_a_page_whose_name_begins_like_this_servers_may_not_act_here(server: Server) -> None:
    at = server.http_address
    for origin, status in ((f"http://{at}.example", 400), (f"http://x{at}", 400), (f"http://{at}", 200)):
        assert (await act(at, "/api/topics/orders", {}, origin=origin)).status == status, origin


async def test_looking_never_acts(server: Server) -> None:
    await act(server.http_address, "/api/topics/orders", {})
    for path in ("/api/topics/orders/delete", "/api/groups/g/reset?topic=orders"):
        assert (await ask(server.http_address, path)).status == 405
    assert server.broker.topics.get("orders") is not None


async def test_the_api_describes_itself(server: Server) -> None:
    document = (await ask(server.http_address, "/api/openapi.json")).json
    assert document == described(ENTRIES)
    page = await ask(server.http_address, "/api")
    for entry in ENTRIES:
        assert entry.path in page.text
        assert entry.method.lower() in document["paths"][f"/api{entry.path}"]


def test_every_entry_needs_a_right_that_the_table_of_rights_knows() -> None:
    given = Given(
        {"topic": "t", "group": "g", "key": "k", "id": "7F00000100002A9F0000000000000000", "mode": "POP"}
    )
    for entry in ENTRIES:
        header = entry.asks(given).header
        assert header.code in BROKER, entry.path
