# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from aerobee import BrokerConfig, ManualClock, Server, StoreConfig
from aerobee.errors import AerobeeError, NetworkError, StoreInUse
from aerobee.net.pool import Pool
from aerobee.protocol.bodies import TopicRoute, decode
from aerobee.protocol.command import request
from aerobee.protocol.headers.consume import PullMessage
from aerobee.protocol.headers.produce import SendMessageV2
from aerobee.protocol.headers.route import GetRoute

if TYPE_CHECKING:
    from pathlib import Path


async def test_ephemeral_server_has_free_ports_and_leaves_nothing() -> None:
    async with Server(ephemeral=True) as one, Server(ephemeral=True) as two:
        assert one.namesrv != two.namesrv
        assert one.broker_address != two.broker_address
        data = one.data
        assert data is not None
        assert data.exists()
    assert not data.exists()


async def test_topic_has_its_route_when_the_send_that_creates_it_is_answered() -> None:
    async with Server(ephemeral=True) as server:
        pool = Pool()
        broker, names = await pool.get(server.broker_address), await pool.get(server.namesrv)
        await broker.call(request(SendMessageV2(topic="orders"), b"x"))
        route = decode((await names.call(request(GetRoute(topic="orders")))).body, TopicRoute)
        assert route.queue_datas[0].write_queue_nums == 4
        assert route.broker_datas[0].broker_addrs == {0: server.broker_address}
        await pool.close()


async def test_clock_of_the_test_moves_delays() -> None:
    clock = ManualClock()
    async with Server(ephemeral=True, clock=clock) as server:
        pool = Pool()
        broker = await pool.get(server.broker_address)
        later = SendMessageV2(topic="orders", queue_id=0, properties="DELAY\x0118\x02")
        await broker.call(request(later, b"in two hours"))
        pull = PullMessage(
            consumer_group="g",
            topic="orders",
            queue_id=0,
            queue_offset=0,
            sys_flag=6,
            subscription="*",
            suspend_timeout_millis=10**8,
        )
        held = broker.start_call(request(pull))
        while not server.broker.parked.count:  # noqa: ASYNC110 - the pull has no event to wait for
            await asyncio.sleep(0)
        clock.advance(hours=2)
        assert b"in two hours" in (await held).body
        await pool.close()


async def test_second_server_on_the_same_directory_is_refused(tmp_path: Path) -> None:
    ports: dict[str, Any] = {"namesrv_port": 0, "broker_port": 0}
    async with Server(tmp_path, **ports) as first:
        with pytest.raises(StoreInUse, match=str(tmp_path)):
            await Server(tmp_path, **ports).start()
        assert first.broker.store.writable
    async with Server(tmp_path, **ports):
        pass


async def test_failed_start_undoes_itself(tmp_path: Path) -> None:
    async with Server(ephemeral=True) as busy:
        port = int(busy.broker_address.rpartition(":")[2])
        server = Server(tmp_path, namesrv_port=0, broker_port=port)
        with pytest.raises(NetworkError, match=str(port)):
            await server.start()
    async with Server(tmp_path, namesrv_port=0, broker_port=0):  # the directory was let go
        pass


async def test_name_server_alone_has_no_broker() -> None:
    async with Server(ephemeral=True, broker_port=-1) as server:
        assert server.namesrv
        assert server.broker_address == ""
        with pytest.raises(AerobeeError):
            _ = server.broker


async def test_vip_port_serves_all_but_reads() -> None:
    async with Server(ephemeral=True, config=BrokerConfig(vip_port=0)) as server:
        pool = Pool()
        vip = await pool.get(server._listeners[1].address)
        assert (await vip.call(request(SendMessageV2(topic="orders", queue_id=0), b"x"))).code == 0
        pull = PullMessage(
            consumer_group="g", topic="orders", queue_id=0, queue_offset=0, sys_flag=4, subscription="*"
        )
        assert (await vip.call(request(pull))).code == 3
        await pool.close()


@pytest.fixture
def three_free_ports() -> int:
    """The lowest of three ports in a row that nobody listens on."""
    while True:
        with socket.create_server(("127.0.0.1", 0)) as found:
            port: int = found.getsockname()[1]
        try:
            for each in (port + 1, port + 2):
                socket.create_server(("127.0.0.1", each)).close()
        except (OSError, OverflowError):
            continue
        return port


async def test_the_port_two_below_a_given_one_is_open(three_free_ports: int) -> None:
    async with Server(ephemeral=True, broker_port=three_free_ports + 2) as server:
        assert server.broker_address == f"127.0.0.1:{three_free_ports + 2}"
        pool = Pool()
        vip = await pool.get(f"127.0.0.1:{three_free_ports}")
        assert (await vip.call(request(SendMessageV2(topic="orders", queue_id=0), b"x"))).code == 0
        await pool.close()


async def test_a_broker_starts_though_the_port_two_below_is_taken(
    three_free_ports: int, caplog: pytest.LogCaptureFixture
) -> None:
    with socket.create_server(("127.0.0.1", three_free_ports)):
        async with Server(ephemeral=True, broker_port=three_free_ports + 2) as server:
            assert len(server._listeners) == 1
    [warning] = [record.message for record in caplog.records if "two below" in record.message]
    assert f"port={three_free_ports} " in warning


@pytest.mark.parametrize(("broker_port", "vip_port"), [(0, -2), (2, -1)])
async def test_the_second_port_is_off_for_a_port_nobody_was_told_and_when_asked(
    three_free_ports: int, broker_port: int, vip_port: int
) -> None:
    port = broker_port and three_free_ports + broker_port
    async with Server(ephemeral=True, broker_port=port, config=BrokerConfig(vip_port=vip_port)) as server:
        assert len(server._listeners) == 1


async def test_arguments_win_over_settings_and_settings_over_what_is_usual(tmp_path: Path) -> None:
    config = BrokerConfig(host="127.0.0.2", grpc_port=-1, port=0)
    store = StoreConfig(data=str(tmp_path / "named"))
    async with Server(namesrv_port=0, config=config, store=store) as server:
        assert server.broker_address.startswith("127.0.0.2:")
        assert server.namesrv.startswith("127.0.0.2:")
        assert server.data == tmp_path / "named"
        assert server.broker.config.port == int(server.broker_address.rpartition(":")[2])
    async with Server(
        tmp_path / "told", host="127.0.0.1", namesrv_port=0, config=config, store=store
    ) as server:
        assert server.broker_address.startswith("127.0.0.1:")
        assert server.broker.store.config.data == str(tmp_path / "told")


def test_ephemeral_and_data_contradict_each_other() -> None:
    with pytest.raises(ValueError, match="ephemeral"):
        Server("somewhere", ephemeral=True)


def test_import_is_light() -> None:
    loaded = "[m for m in sys.modules if m.startswith('aerobee')]"
    code = f"import aerobee, sys; print(len({loaded}), 'asyncio' in sys.modules)"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.split() == ["1", "False"]


@pytest.mark.slow
async def test_tls_and_plain_clients_share_the_ports(certificate: tuple[Path, Path]) -> None:
    from aerobee.net.tls import client_tls

    cert, key = map(str, certificate)
    async with Server(ephemeral=True, config=BrokerConfig(tls_cert=cert, tls_key=key)) as server:
        for pool in (Pool(), Pool(tls=client_tls())):
            broker = await pool.get(server.broker_address)
            assert (await broker.call(request(SendMessageV2(topic="orders", queue_id=0), b"x"))).code == 0
            names = await pool.get(server.namesrv)
            assert (await names.call(request(GetRoute(topic="orders")))).code == 0
            await pool.close()


@pytest.mark.slow
async def test_plain_clients_are_refused_where_tls_is_required(certificate: tuple[Path, Path]) -> None:
    from aerobee.net.tls import client_tls

    cert, key = map(str, certificate)
    config = BrokerConfig(tls_cert=cert, tls_key=key, tls_required=True)
    async with Server(ephemeral=True, config=config) as server:
        plain, secure = Pool(), Pool(tls=client_tls())
        with pytest.raises(NetworkError):
            await (await plain.get(server.broker_address)).call(request(GetRoute(topic="orders")))
        broker = await secure.get(server.broker_address)
        assert (await broker.call(request(SendMessageV2(topic="orders", queue_id=0), b"x"))).code == 0
        await plain.close()
        await secure.close()
