# SPDX-License-Identifier: Apache-2.0
"""Messages of push clients stay theirs while they live and come back when they die; time is moved by hand."""

from __future__ import annotations

import dataclasses
from typing import Any

import msgspec
import pytest

from aerobee.fronts.grpc.generated import messaging_pb2 as pb
from aerobee.settings import InForce

pytestmark = pytest.mark.slow


async def pass_time(client: Any, seconds: int) -> None:
    """Step by step, as the front's timer would see it; the client is heard from on the way."""
    for _ in range(seconds // 5):
        client.server.clock.advance(seconds=5)
        client.server._grpc.service.tick(client.server.clock.now())
        await client.call("Heartbeat", pb.HeartbeatRequest())


async def test_a_living_push_client_keeps_its_message_for_minutes_and_acks_by_its_first_handle(
    manual_client: Any,
) -> None:
    client = manual_client
    await client.send("t", b"slow work")
    _, (message,) = await client.receive("t", auto_renew=True)
    await pass_time(client, 300)
    assert client.server.broker.store.max_offset("%RETRY%g_t", 0) == 0  # nobody took it back
    answer = await client.ack("t", message.system_properties.receipt_handle)
    assert answer.status.code == pb.OK
    assert len(client.server.broker.pops.renewals) == 0


async def test_a_push_client_that_says_goodbye_gives_its_messages_back(manual_client: Any) -> None:
    client = manual_client
    await client.send("t", b"left")
    await client.receive("t", auto_renew=True)
    await client.call(
        "NotifyClientTermination", pb.NotifyClientTerminationRequest(group=pb.Resource(name="g"))
    )
    client.server.clock.advance(seconds=3)
    status, (again,) = await client.receive("t")
    assert status.code == pb.OK
    assert again.system_properties.delivery_attempt == 2


async def test_a_push_client_that_dies_is_not_renewed_for(manual_client: Any) -> None:
    client = manual_client
    await client.send("t", b"dead")
    await client.receive("t", auto_renew=True)
    service = client.server._grpc.service
    # A server whose clock is moved by hand drops nobody for silence; this one's front does.
    config = msgspec.structs.replace(service.broker.config, channel_expiry_ms=120_000)
    service.peers._broker = dataclasses.replace(service.broker, settings=InForce(config))
    client.server.clock.advance(seconds=121)
    service.tick(client.server.clock.now())
    assert len(client.server.broker.pops.renewals) == 0
    client.server.clock.advance(seconds=181)
    status, (again,) = await client.receive("t")
    assert status.code == pb.OK
    assert again.body == b"dead"


@pytest.mark.parametrize("auto_renew", [False, True])
@pytest.mark.parametrize("jump", [-7_200_000, 7_200_000])
async def test_a_handle_is_good_as_long_as_its_lease_whatever_is_done_to_the_clock(
    manual_client: Any, jump: int, auto_renew: bool
) -> None:
    client, clock = manual_client, manual_client.server.clock
    await client.send("t", b"slow work")
    _, (message,) = await client.receive("t", auto_renew=auto_renew)
    clock.set_wall(clock.wall() + jump)
    if auto_renew:
        await pass_time(client, 300)
        assert client.server.broker.store.max_offset("%RETRY%g_t", 0) == 0
    handle = message.system_properties.receipt_handle
    assert (await client.ack("t", handle)).status.code == pb.OK
    clock.advance(seconds=31)
    again = await client.ack("t", handle)
    assert (again.status.code == pb.OK) == (jump < 0), "acked: only its time tells, by the clock as it is"
