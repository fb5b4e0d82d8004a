# SPDX-License-Identifier: Apache-2.0
"""A server that is a process: killed, stopped, started again."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from aerobee import Message, blocking
from aerobee.testing import ServerProcess

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.slow


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_killed_server_comes_back_where_it_was_with_what_it_had() -> None:
    with ServerProcess("--grpc-port", "0") as server:
        server.create_topic("orders", queues=1)
        addresses = [server.namesrv, server.broker_address, server.grpc_address]
        assert len(set(addresses)) == 3 and all(address.startswith("127.0.0.1:") for address in addresses)
        with blocking.Producer(server.namesrv, group="shop") as producer:
            producer.send(Message("orders", b"before"))
            pid = server.pid
            server.kill()
            assert not is_alive(pid)
            with pytest.raises(RuntimeError, match="does not run: `start` it"):
                server.kill()
            server.start()
            with pytest.raises(RuntimeError, match="the server runs"):
                server.start()
            producer.send(Message("orders", b"after"))
        assert [server.namesrv, server.broker_address, server.grpc_address] == addresses
        assert [message.body for message in server.messages_of("orders")] == [b"before", b"after"]
        last = server.pid
    assert not is_alive(last)
    assert not server.log.exists()


def test_it_stops_orderly_keeps_data_it_was_given_and_has_no_front_nobody_asked_for(tmp_path: Path) -> None:
    with ServerProcess(data=tmp_path / "data") as server:
        assert server.grpc_address == ""
        server.stop()
        assert "stopped" in server.log.read_text()
    assert not (tmp_path / "data" / "store" / "abort").exists()
    assert (tmp_path / "data").exists()


def test_why_it_did_not_start_is_said() -> None:
    with (
        pytest.raises(RuntimeError, match=r"did not start: .*no_such_setting"),
        ServerProcess("--set", "no_such_setting=1"),
    ):
        pass
    with pytest.raises(RuntimeError, match="was not started: use it in a with block"):
        ServerProcess().namesrv  # noqa: B018 - it raises


def test_a_server_in_a_process_of_its_own_has_no_clock_to_move() -> None:
    with pytest.raises(RuntimeError, match=r"process of its own.*TestServer\.with_manual_clock\(\) has one"):
        ServerProcess().clock  # noqa: B018 - that it is asked for is the mistake
