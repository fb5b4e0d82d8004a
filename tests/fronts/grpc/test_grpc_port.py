# SPDX-License-Identifier: Apache-2.0
"""The gRPC port as its clients and its strangers see it: addresses, limits, half-open connections."""

from __future__ import annotations

import asyncio
import os
import resource
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import grpc
import grpc.aio
import pytest

from aerobee import BrokerConfig, Server
from aerobee.broker.operations.admin import groups
from aerobee.fronts.grpc import front
from aerobee.fronts.grpc.generated import messaging_pb2 as pb
from aerobee.fronts.grpc.requests import MAX_BESIDE_BODIES
from aerobee.net.tls import client_tls
from aerobee.protocol.http2.frames import PREFACE
from aerobee.protocol.message import host_text
from aerobee.settings import StoreConfig
from tests.grpc_line import WELCOME
from tests.turning import until

if TYPE_CHECKING:
    import ssl
    from pathlib import Path

pytestmark = pytest.mark.slow  # a server and a channel each


async def settled(client: Any) -> None:
    """The client's settings are with the broker, as after its first heartbeat."""
    stream = client.telemetry()
    settings = pb.Settings()
    settings.subscription.group.name = "g"
    entry = settings.subscription.subscriptions.add()
    entry.topic.name = "t"
    await stream.write(pb.TelemetryCommand(settings=settings))
    await stream.read()


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
async def test_clients_have_their_real_address_everywhere(host: str, client_type: Any) -> None:
    async with (
        Server(ephemeral=True, host=host, grpc_port=0) as server,
        grpc.aio.insecure_channel(server.grpc_address) as channel,
    ):
        client = client_type(server, channel)
        assert (await client.send("t")).status.code == pb.OK
        peer = server._grpc.service.peers._by_id["client-1"]  # type: ignore[union-attr]
        assert peer.address[0] == host
        assert peer.address[1] > 0
        _, (message,) = await client.receive("t")
        assert message.system_properties.born_host == peer.remote_text == host_text(peer.host)
        await settled(client)
        (member,) = groups.consumer_connection("g", server.broker).connection_set
        assert member.client_addr == peer.remote_text


async def test_a_client_that_comes_back_over_another_connection_has_its_new_address(
    client: Any, client_type: Any
) -> None:
    await client.send("t")
    peers = client.server._grpc.service.peers
    before = peers._by_id["client-1"].address
    own = (("grpc.use_local_subchannel_pool", 1),)
    async with grpc.aio.insecure_channel(client.server.grpc_address, options=own) as channel:
        await client_type(client.server, channel).send("t")
    after = peers._by_id["client-1"].address
    assert after[0] == before[0] == "127.0.0.1"
    assert after[1] != before[1]


async def test_a_message_over_the_limit_is_refused_before_it_is_read_whole(client_type: Any) -> None:
    store = StoreConfig(max_message_bytes=100_000)
    async with (
        Server(ephemeral=True, grpc_port=0, store=store) as server,
        grpc.aio.insecure_channel(server.grpc_address) as channel,
    ):
        client = client_type(server, channel)
        assert (await client.send("t", bytes(100_001))).status.code == pb.MESSAGE_BODY_TOO_LARGE
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await client.send("t", bytes(100_000 + MAX_BESIDE_BODIES))
        assert raised.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
        assert (await client.send("t", bytes(100_000))).status.code == pb.OK


async def test_who_says_only_the_first_words_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(front, "HANDSHAKE_MS", 50)
    async with Server(ephemeral=True, grpc_port=0) as server:
        host, _, port = server.grpc_address.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(PREFACE)
        async with asyncio.timeout(10):
            await reader.read()
        writer.close()


async def test_without_descriptors_it_says_so_once_and_serves_again(
    certificate: tuple[Path, Path], caplog: pytest.LogCaptureFixture, client_type: Any
) -> None:
    cert, key = map(str, certificate)
    config = BrokerConfig(tls_cert=cert, tls_key=key)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    async with (
        Server(ephemeral=True, grpc_port=0, config=config) as server,
        grpc.aio.insecure_channel(server.grpc_address) as channel,
    ):
        client = client_type(server, channel)
        await client.send("t")
        strangers = []
        host, _, port = server.grpc_address.rpartition(":")
        highest = max(int(name) for name in os.listdir("/proc/self/fd"))
        resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 30, hard))
        try:
            with suppress(OSError):
                for _ in range(1_000):
                    strangers.append(await asyncio.open_connection(host, int(port)))  # noqa: PERF401
            await until(lambda: "cannot accept" in caplog.text)
            assert (await client.send("t")).status.code == pb.OK, "who is in is served"
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            for _, writer in strangers:
                writer.close()
        async with grpc.aio.insecure_channel(
            server.grpc_address, options=(("grpc.use_local_subchannel_pool", 1),)
        ) as channel_2:
            assert (await client_type(server, channel_2, "client-2").send("t")).status.code == pb.OK
    lines = [record for record in caplog.records if "cannot accept" in record.getMessage()]
    assert len(lines) == 1
    assert not any(record.exc_info for record in caplog.records)


async def test_a_client_that_speaks_tls_gets_a_certificate_made_for_it_once() -> None:
    async with Server(ephemeral=True, grpc_port=0) as server:
        host, _, port = server.grpc_address.rpartition(":")
        shown = []
        for _ in range(2):
            reader, writer = await asyncio.open_connection(host, int(port), ssl=h2_tls())
            writer.write(WELCOME)
            assert await reader.readexactly(5)
            secured = writer.get_extra_info("ssl_object")
            assert secured.selected_alpn_protocol() == "h2"
            shown.append(secured.getpeercert(binary_form=True))
            writer.close()
        assert shown[0] == shown[1]


def h2_tls() -> ssl.SSLContext:
    context = client_tls()
    context.set_alpn_protocols(["h2"])
    return context
