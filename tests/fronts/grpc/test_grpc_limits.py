# SPDX-License-Identifier: Apache-2.0
"""Bounds of the gRPC API, the settings that move them, and the texts that clients and their users look for."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aerobee.broker.operations.admin.settings import change_settings
from aerobee.fronts.grpc.generated import messaging_pb2 as pb

pytestmark = pytest.mark.slow  # a server and a channel each

HOUR = 3_600_000
DAY = 24 * HOUR


# -- invisible time ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (9_999, "the invisibleTime is too small. min is 10000"),
        (12 * HOUR + 1, "the invisibleTime is too large. max is 43200000"),
    ],
)
async def test_a_refused_invisible_time_names_the_bound_as_the_proxy_does(
    client: Any, ms: int, text: str
) -> None:
    client.server.broker.topics.ensure("t")
    status, _ = await client.receive("t", invisible_ms=ms)
    assert (status.code, status.message) == (pb.ILLEGAL_INVISIBLE_TIME, text)


async def test_a_change_may_be_short_but_not_negative(client: Any) -> None:
    await client.send("t")
    _, (message,) = await client.receive("t")
    handle = message.system_properties.receipt_handle
    answer = await client.change("t", handle, -1)
    assert (answer.status.code, answer.status.message) == (
        pb.ILLEGAL_INVISIBLE_TIME,
        "the invisibleTime is too small. min is 0",
    )
    assert (await client.change("t", handle, 1)).status.code == pb.OK


async def test_the_least_invisible_time_is_a_setting(client_of: Any) -> None:
    async with client_of(grpc_min_invisible_ms=500) as client:
        await client.send("t")
        status, found = await client.receive("t", invisible_ms=500)
        assert (status.code, len(found)) == (pb.OK, 1)
        status, _ = await client.receive("t", invisible_ms=499)
        assert status.message == "the invisibleTime is too small. min is 500"


async def test_what_is_renewed_is_leased_for_a_minute_whatever_time_is_asked_for(client: Any) -> None:
    """The C++ push consumer sends both, and a time that would be refused without the renewal."""
    await client.send("t")
    request = client.receive_request("t", auto_renew=True)
    request.invisible_duration.FromMilliseconds(1_000)
    status, (message,) = await client.received(request)
    assert status.code == pb.OK
    assert message.system_properties.receipt_handle.split(" ")[2] == "60000"


# -- one status for many entries -----------------------------------------------------------------------------


async def test_entries_that_agree_make_a_status_named_after_their_code(client: Any) -> None:
    client.server.broker.topics.ensure("t")
    answer = await client.ack("t", "nonsense")
    assert (answer.status.code, answer.status.message) == (
        pb.INVALID_RECEIPT_HANDLE,
        "INVALID_RECEIPT_HANDLE",
    )
    assert "nonsense" in answer.entries[0].status.message


async def test_entries_that_differ_make_multiple_results(client: Any) -> None:
    await client.send("t")
    _, (message,) = await client.receive("t")
    request = pb.AckMessageRequest(group=pb.Resource(name="g"), topic=pb.Resource(name="t"))
    for handle in (message.system_properties.receipt_handle, "nonsense"):
        request.entries.add(message_id="m", receipt_handle=handle)
    answer = await client.call("AckMessage", request)
    assert (answer.status.code, answer.status.message) == (pb.MULTIPLE_RESULTS, "MULTIPLE_RESULTS")
    assert [entry.status.code for entry in answer.entries] == [pb.OK, pb.INVALID_RECEIPT_HANDLE]


async def test_the_refusal_of_a_lone_message_keeps_its_text(client_of: Any) -> None:
    async with client_of(auto_create_topics=False) as client:
        answer = await client.send("orders")
    assert answer.status.code == pb.TOPIC_NOT_FOUND
    assert "'orders'" in answer.status.message


# -- delivery time -------------------------------------------------------------------------------------------


async def test_delivery_more_than_a_day_ahead_is_refused(client_of: Any) -> None:
    async with client_of() as client:
        now = client.server.clock.now()
        answer = await client.send("t", deliver_at=now + DAY + 1)
        assert (answer.status.code, answer.status.message) == (
            pb.ILLEGAL_DELIVERY_TIME,
            "the max delay time of message is too large, max is 86400000",
        )
        assert client.server.broker.topics.get("t") is None, "a refused message makes no topic"
        assert (await client.send("t", deliver_at=now + DAY)).status.code == pb.OK
        assert (await client.send("t", deliver_at=now - 1)).status.code == pb.OK


@pytest.mark.parametrize("setting", [39 * DAY, 0])
async def test_the_furthest_delivery_is_a_setting_within_the_stores(client_of: Any, setting: int) -> None:
    """0 leaves it to the store, which takes 40 days."""
    async with client_of(grpc_max_delay_ms=setting) as client:
        now = client.server.clock.now()
        assert (await client.send("t", deliver_at=now + 39 * DAY)).status.code == pb.OK
        answer = await client.send("t", deliver_at=now + 41 * DAY)
        assert answer.status.code != pb.OK


async def test_settings_of_the_api_change_while_it_runs(client_of: Any) -> None:
    async with client_of() as client:
        change_settings(
            "grpcMinInvisibleMs=500\ngrpcMaxDelayMs=1000\ngrpcAutoCreateOnRoute=true",
            client.server.broker,
        )
        answer = await client.call("QueryRoute", pb.QueryRouteRequest(topic=pb.Resource(name="t")))
        assert answer.status.code == pb.OK
        answer = await client.send("t", deliver_at=client.server.clock.now() + 1_001)
        assert answer.status.code == pb.ILLEGAL_DELIVERY_TIME
        await client.send("t")
        status, _ = await client.receive("t", invisible_ms=500)
        assert status.code == pb.OK


# -- time to wait --------------------------------------------------------------------------------------------


async def held_for(client: Any, deadline_ms: int) -> int:
    """How long an empty receive without a time to wait of its own is held, to half a second."""
    parked = client.server.broker.pops.parked
    request = client.receive_request("t")
    request.ClearField("long_polling_timeout")
    waiting = asyncio.ensure_future(client.received(request, timeout=deadline_ms / 1000))
    while not parked.count:  # noqa: ASYNC110 - the request has to cross two sockets
        await asyncio.sleep(0)
    waited = 0
    while parked.count:
        client.server.clock.advance(500)
        waited += 500
        for _ in range(3):  # turns of the loop in which the receive gets to leave
            await asyncio.sleep(0)
    status, _ = await waiting
    assert status.code == pb.MESSAGE_NOT_FOUND
    return waited


@pytest.mark.parametrize(
    ("request_timeout_ms", "deadline_ms", "expected"),
    [
        (6_000, 18_000, 15_000),  # half a request time-out before the deadline
        (None, 18_000, 16_500),  # clients' own default is 3 s
        (20_000, 14_000, 5_000),  # five seconds at least
        (3_000, 60_000, 20_000),  # twenty at most
    ],
)
async def test_a_receive_without_a_time_to_wait_is_answered_well_before_its_deadline(
    client_of: Any, request_timeout_ms: int | None, deadline_ms: int, expected: int
) -> None:
    async with client_of() as client:
        client.server.broker.topics.ensure("t")
        if request_timeout_ms is not None:
            stream = client.telemetry()
            settings = pb.Settings(client_type=pb.SIMPLE_CONSUMER)
            settings.subscription.group.name = "g"
            settings.request_timeout.FromMilliseconds(request_timeout_ms)
            await stream.write(pb.TelemetryCommand(settings=settings))
            await stream.read()
        waited = await held_for(client, deadline_ms)
        assert expected - 2_500 <= waited <= expected + 500  # part of the deadline may pass on the way
