# SPDX-License-Identifier: Apache-2.0
"""Room in log and index, asked for once and used by many runs, as long as nobody else appends."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest

from aerobee import native
from aerobee.protocol.codes import RequestCode
from aerobee.protocol.fast_frames import Sending, SendTemplate
from aerobee.store import appender
from aerobee.store.commit_log import CommitLog
from tests.native.bench import SMALL, Bench

if TYPE_CHECKING:
    from pathlib import Path

    from aerobee.net.connection import Connection

pytestmark = pytest.mark.skipif(not native.is_on, reason="the lane is not built")

TEMPLATE = SendTemplate(RequestCode.SEND_MESSAGE_V2, "shop", "orders", "b", "TBW102", 4)


class Asked:
    """How often room was asked for."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.times = 0
        room = CommitLog.room_for_draft

        def counted(log: CommitLog) -> int:
            self.times += 1
            return room(log)

        monkeypatch.setattr(CommitLog, "room_for_draft", counted)
        monkeypatch.setattr(appender, "RUN_BYTES", 4_000)
        monkeypatch.setattr(appender, "RUN_KEYS", 20)


def send(connection: Connection, number: int, extra: str = "") -> None:
    text = f"UNIQ_KEY\x017F00000100002A{number:018X}\x02{extra}"
    connection.data_received(TEMPLATE.frame(number, 0, Sending("orders", b"x" * 40, text, "", 7)))


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path, SMALL, lane=True)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Asked:
    return Asked(monkeypatch)


async def test_runs_that_follow_each_other_ask_once(bench: Bench, asked: Asked) -> None:
    connection = bench.connect()
    for number in range(40):
        send(connection, number)
    assert (bench.runs, asked.times) == (39, 1)  # the first of a queue is Python's
    assert bench.broker.store.max_offset("orders", 0) == 40
    bench.broker.store.close()


async def test_whoever_appends_between_them_makes_them_ask_again(bench: Bench, asked: Asked) -> None:
    connection = bench.connect()
    for number in range(10):
        send(connection, number)
    send(connection, 10, "DELAY\x013\x02")  # Python's
    send(connection, 11)
    assert asked.times == 2
    bench.broker.store.close()


async def test_a_setting_or_an_address_that_changes_makes_them_ask_again(bench: Bench, asked: Asked) -> None:
    connection, store = bench.connect(), bench.broker.store
    for number in range(10):
        send(connection, number)
    store.settings.swap(msgspec.structs.replace(store.settings.value, max_message_bytes=50))
    send(connection, 10)
    assert asked.times == 2
    store.store_host = b"\x0a\0\0\7\0\0\x2a\x9f"
    send(connection, 11)
    assert asked.times == 3
    store.close()


async def test_room_that_is_short_is_asked_for_again(bench: Bench, asked: Asked) -> None:
    """A file of 64 KiB, and an index file of 150 entries: both end on the way."""
    connection = bench.connect()
    for number in range(400):
        send(connection, number)
    assert bench.broker.store.max_offset("orders", 0) == 400
    assert 5 < asked.times < 200
    bench.broker.store.close()
