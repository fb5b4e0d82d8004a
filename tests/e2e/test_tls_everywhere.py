# SPDX-License-Identifier: Apache-2.0
"""TLS on every port a server has, and on the way from a broker to its name servers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import grpc
import grpc.aio
import pytest

from aerobee import Options, Producer, Server
from aerobee.errors import AerobeeError, ConnectionLost, NetworkError
from aerobee.fronts.grpc.generated import messaging_pb2 as pb
from aerobee.net.pool import Pool
from aerobee.net.tls import client_tls
from aerobee.protocol.command import request
from aerobee.protocol.headers.route import GetRoute
from aerobee.settings import BrokerConfig

if TYPE_CHECKING:
    from pathlib import Path

HEARTBEAT = "/apache.rocketmq.v2.MessagingService/Heartbeat"


def required(certificate: tuple[Path, Path], **more: object) -> BrokerConfig:
    cert, key = map(str, certificate)
    return BrokerConfig(tls_cert=cert, tls_key=key, tls_required=True, **more)  # type: ignore[arg-type]


async def beat(channel: grpc.aio.Channel) -> int:
    call = channel.unary_unary(
        HEARTBEAT,
        request_serializer=pb.HeartbeatRequest.SerializeToString,
        response_deserializer=pb.HeartbeatResponse.FromString,
    )
    answer = await call(pb.HeartbeatRequest(), metadata=(("x-mq-client-id", "c"),), timeout=5)
    return int(answer.status.code)


async def test_a_client_at_a_server_that_speaks_the_other_way_is_asked_about_tls(
    certificate: tuple[Path, Path],
) -> None:
    async with Server(ephemeral=True, config=required(certificate)) as server:
        with pytest.raises(
            ConnectionLost, match=r'take TLS alone\? Then: Options\(tls="on", tls_ca=\.\.\.\)$'
        ):
            await Producer(server.namesrv, group="p").start()
        address = server.namesrv
    async with Server(ephemeral=True) as plain:
        with pytest.raises(NetworkError, match=r'speak TLS at all\? If not: Options\(tls="off"\)$') as told:
            await Producer(plain.namesrv, group="p", options=Options(tls="on")).start()
        assert "it closed the connection when TLS began" in str(told.value)
    for options in (Options(), Options(tls="on")):
        with pytest.raises(NetworkError, match=r"is this its port\? \(9876 unless it was told another\)$"):
            await Producer(address, group="p", options=options).start()


@pytest.mark.slow
async def test_tls_required_holds_on_every_port(certificate: tuple[Path, Path]) -> None:
    config = required(certificate, vip_port=0)
    async with Server(ephemeral=True, grpc_port=0, config=config) as server:
        plain, secure = Pool(), Pool(tls=client_tls(str(certificate[0])))
        for address in (server.namesrv, *(listener.address for listener in server._listeners)):
            with pytest.raises(NetworkError):
                await (await plain.get(address)).call(request(GetRoute(topic="orders")))
            assert (await (await secure.get(address)).call(request(GetRoute(topic="orders")))).code in (3, 17)
        assert len(server._listeners) == 2, "the broker's own port and the VIP port"
        async with grpc.aio.insecure_channel(server.grpc_address) as channel:
            with pytest.raises(grpc.aio.AioRpcError):
                await beat(channel)
        trusted = grpc.ssl_channel_credentials(certificate[0].read_bytes())
        async with grpc.aio.secure_channel(server.grpc_address, trusted) as channel:
            assert await beat(channel) == pb.OK
        await plain.close()
        await secure.close()


@pytest.mark.parametrize("settings", [("tls_cert", "tls_key"), ("namesrv_tls_ca",)])
async def test_a_certificate_that_cannot_be_read_does_not_start(
    settings: tuple[str, ...], tmp_path: Path
) -> None:
    absent = dict.fromkeys(settings, str(tmp_path / "absent.pem"))
    server = Server(ephemeral=True, config=BrokerConfig(namesrv_tls=True, **absent))  # type: ignore[arg-type]
    with pytest.raises(AerobeeError, match=r"absent\.pem.*PEM file"):
        await server.start()
    assert server.data is None, "nothing was opened"


@pytest.mark.slow
async def test_a_broker_registers_and_looks_up_routes_by_tls(certificate: tuple[Path, Path]) -> None:
    async with Server(ephemeral=True, broker_port=-1, config=required(certificate)) as names:
        own = BrokerConfig(
            name="b", namesrv=names.namesrv, namesrv_tls=True, namesrv_tls_ca=str(certificate[0])
        )
        async with Server(ephemeral=True, namesrv_port=-1, config=own) as server:
            assert names._name_server is not None
            assert names._name_server.routes.route("TBW102") is not None, "registered"
            routes = server.broker.pops.routes
            assert routes is not None
            await routes.look_up("TBW102")
            assert routes.known("TBW102") == (), "answered: no other broker has it"


@pytest.mark.slow
async def test_name_servers_that_do_not_match_the_certificate_file_are_not_trusted(
    certificate: tuple[Path, Path], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    from aerobee.fronts.grpc.certificate import _self_signed

    other = tmp_path / "other.pem"
    other.write_bytes(_self_signed("elsewhere") or b"")
    async with Server(ephemeral=True, broker_port=-1, config=required(certificate)) as names:
        own = BrokerConfig(name="b", namesrv=names.namesrv, namesrv_tls=True, namesrv_tls_ca=str(other))
        async with Server(ephemeral=True, namesrv_port=-1, config=own):
            assert names._name_server is not None
            assert names._name_server.routes.route("TBW102") is None
    assert "cannot register" in caplog.text
