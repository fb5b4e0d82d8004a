# SPDX-License-Identifier: Apache-2.0
"""What newer clients may ask for and this broker does not serve: each refusal says so in words."""

from __future__ import annotations

from typing import Any

import grpc
import pytest

from aerobee.fronts.grpc.generated import messaging_pb2 as pb

pytestmark = pytest.mark.slow  # a server and a channel each

LITE = "does not serve lite topics"


async def test_lite_subscriptions_are_unimplemented(client: Any) -> None:
    with pytest.raises(grpc.aio.AioRpcError, match=LITE) as raised:
        await client.call("SyncLiteSubscription", pb.SyncLiteSubscriptionRequest())
    assert raised.value.code() == grpc.StatusCode.UNIMPLEMENTED


@pytest.mark.parametrize("kind", [pb.LITE_PUSH_CONSUMER, pb.LITE_SIMPLE_CONSUMER])
async def test_a_lite_consumer_is_turned_away_when_it_starts(client: Any, kind: Any) -> None:
    stream = client.telemetry()
    settings = pb.Settings(client_type=kind)
    settings.subscription.group.name = "g"
    await stream.write(pb.TelemetryCommand(settings=settings))
    with pytest.raises(grpc.aio.AioRpcError, match=LITE) as raised:
        await stream.read()
    assert raised.value.code() == grpc.StatusCode.UNIMPLEMENTED
    assert client.server.broker.clients.consumer_ids("g") == []


@pytest.mark.parametrize("system", [{"lite_topic": "room-7"}, {"message_type": pb.LITE}])
async def test_a_message_for_a_lite_topic_is_refused_not_lost(client: Any, system: dict[str, Any]) -> None:
    client.server.broker.topics.ensure("t", queues=1)
    answer = await client.send("t", **system)
    assert answer.status.code == pb.UNSUPPORTED
    assert LITE in answer.status.message
    assert client.server.broker.store.max_offset("t", 0) == 0


@pytest.mark.parametrize(
    "path", ["/apache.rocketmq.v2.MessagingService/Tomorrow", "/apache.rocketmq.v2.Admin/ChangeLogLevel"]
)
async def test_a_call_nobody_knows_is_unimplemented_by_name(client: Any, path: str) -> None:
    once = client._channel.unary_unary(path)
    stream = client._channel.stream_stream(path)
    for call in (lambda: once(b"", timeout=10), lambda: stream(timeout=10).read()):
        with pytest.raises(grpc.aio.AioRpcError, match="this broker does not serve") as raised:
            await call()
        assert raised.value.code() == grpc.StatusCode.UNIMPLEMENTED
        assert path in str(raised.value.details())
