# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import asyncio
import errno
import os
import threading
from typing import TYPE_CHECKING, Any

import pytest

from aerobee.client.consume.offset_keeper import LocalOffsets, OffsetMemory, RemoteOffsets, read_memory_first
from aerobee.errors import ProtocolError, RequestTimeout
from aerobee.protocol.bodies import BrokerData, MessageQueue, TopicRoute
from aerobee.protocol.headers.offsets import OffsetResult, QueryConsumerOffset, UpdateConsumerOffset
from tests.own_files import is_under
from tests.turning import until

if TYPE_CHECKING:
    from pathlib import Path

Q0, Q1 = MessageQueue("a", 0, "T"), MessageQueue("a", 1, "T")


def test_raise_to_never_goes_back_and_set_does() -> None:
    memory = OffsetMemory()
    memory.raise_to(Q0, 5)
    memory.raise_to(Q0, 3)
    assert memory.get(Q0) == 5
    memory.set(Q0, 3)
    assert memory.get(Q0) == 3


@pytest.mark.seed("S001-19")
def test_a_frozen_offset_refuses_updates_until_it_is_removed() -> None:
    memory = OffsetMemory()
    memory.set(Q0, 9)
    memory.freeze(Q0, 2)
    memory.raise_to(Q0, 50)
    memory.set(Q0, 60)
    assert memory.get(Q0) == 2
    memory.remove(Q0)
    memory.raise_to(Q0, 1)
    assert memory.get(Q0) == 1


class TestRemote:
    @pytest.mark.seed("S003-34", "S003-32")
    async def test_a_read_asks_the_master_and_remembers(self, session: Any) -> None:
        session.answers[QueryConsumerOffset] = [(0, OffsetResult(offset=42), b"")]
        store = RemoteOffsets(session, "g")
        assert await store.read(Q0) == 42
        assert store.memory.get(Q0) == 42
        address, header, timeout_ms = session.asked[0]
        assert (address, header.consumer_group, header.topic, header.queue_id) == ("a:1", "g", "T", 0)
        assert timeout_ms == 5_000
        assert await read_memory_first(store, Q0) == 42
        assert len(session.asked) == 1

    async def test_where_there_is_no_master_a_slave_is_told(self, session: Any) -> None:
        slave = BrokerData(broker_name="a", cluster="c", broker_addrs={1: "a-slave:1"})
        session.routes.put("T", TopicRoute(broker_datas=[slave]))
        store = RemoteOffsets(session, "g")
        await store.update(Q0, 5)
        ((address, header, _),) = session.sent
        assert (address, header.topic, header.queue_id, header.commit_offset) == ("a-slave:1", "T", 0, 5)

    async def test_nothing_stored_is_none(self, session: Any) -> None:
        session.answers[QueryConsumerOffset] = [(22, None, b"")]
        assert await RemoteOffsets(session, "g").read(Q0) is None

    async def test_a_broker_that_does_not_answer_raises(self, session: Any) -> None:
        session.answers[QueryConsumerOffset] = [RequestTimeout("late")]
        with pytest.raises(RequestTimeout):
            await RemoteOffsets(session, "g").read(Q0)

    @pytest.mark.seed("S003-25", "S004-86")
    async def test_progress_is_reported_one_way_for_owned_queues_only(self, session: Any) -> None:
        store = RemoteOffsets(session, "g")
        store.memory.set(Q0, 7)
        store.memory.set(Q1, 8)
        await store.persist([Q0])
        ((address, header, _),) = session.sent
        assert (type(header), address) == (UpdateConsumerOffset, "a:1"), "to the master"
        assert (header.consumer_group, header.topic, header.queue_id, header.commit_offset) == (
            "g",
            "T",
            0,
            7,
        )
        assert store.memory.get(Q1) is None, "not owned any more"


class TestLocal:
    def store(self, path: Path) -> LocalOffsets:
        return LocalOffsets.at(str(path), "10.0.0.1@DEFAULT", "g")

    @pytest.mark.seed("S003-33", "S003-32", "S004-55")
    async def test_offsets_survive_in_javas_file_and_format(self, tmp_path: Path) -> None:
        store = self.store(tmp_path)
        store.load()
        store.memory.set(Q0, 3)
        await store.persist([Q0])
        text = (tmp_path / "10.0.0.1@DEFAULT/g/offsets.json").read_text()
        assert text == '{"offsetTable":{{"brokerName":"a","queueId":0,"topic":"T"}:3}}'
        again = self.store(tmp_path)
        again.load()
        assert again.memory.snapshot() == {Q0: 3}, "known before a queue is taken"
        again.memory.remove(Q0)  # as when it is taken
        assert await again.read(Q0) == 3
        assert again.memory.snapshot() == {Q0: 3}
        assert await again.read(Q1) is None

    async def test_a_file_written_by_java_is_read(self, tmp_path: Path) -> None:
        path = tmp_path / "10.0.0.1@DEFAULT/g/offsets.json"
        path.parent.mkdir(parents=True)
        path.write_text(
            '{\n\t"offsetTable":{{\n\t\t"brokerName":"a",\n\t\t"queueId":1,\n\t\t"topic":"T"\n\t}:17\n\t}\n}'
        )
        store = self.store(tmp_path)
        store.load()
        assert await store.read(Q1) == 17

    async def test_what_others_wrote_is_kept(self, tmp_path: Path) -> None:
        store = self.store(tmp_path)
        for queue, offset in ((Q0, 3), (Q1, 4)):
            store.memory.set(queue, offset)
            await store.persist_one(queue)
        again = self.store(tmp_path)
        again.load()
        assert (await again.read(Q0), await again.read(Q1)) == (3, 4)

    @pytest.mark.seed("S004-56", "S004-55", "S004-57")
    async def test_a_broken_file_falls_back_to_the_one_before(self, tmp_path: Path, caplog: Any) -> None:
        store = self.store(tmp_path)
        for offset in (3, 4):
            store.memory.set(Q0, offset)
            await store.persist([Q0])
        path = tmp_path / "10.0.0.1@DEFAULT/g/offsets.json"
        for broken in (b"", b'{"offsetTable":{{"bro', None):
            path.unlink() if broken is None else path.write_bytes(broken)
            again = self.store(tmp_path)
            again.load()
            assert await again.read(Q0) == 3, broken
            assert ("are unreadable, using .bak" in caplog.text) is (broken is not None), "none is no damage"
            caplog.clear()

    async def test_two_broken_files_stop_the_start(self, tmp_path: Path) -> None:
        path = tmp_path / "10.0.0.1@DEFAULT/g/offsets.json"
        path.parent.mkdir(parents=True)
        path.write_bytes(b"{broken")
        path.with_name("offsets.json.bak").write_bytes(b"{broken too")
        with pytest.raises(ProtocolError):
            self.store(tmp_path).load()

    async def test_nobody_else_may_read_the_file(self, tmp_path: Path) -> None:
        store = self.store(tmp_path / "new")
        store.memory.set(Q0, 3)
        await store.persist([Q0])
        path = tmp_path / "new/10.0.0.1@DEFAULT/g/offsets.json"
        assert path.stat().st_mode & 0o777 == 0o600
        assert {parent.stat().st_mode & 0o777 for parent in path.parents[:3]} == {0o700}

    @pytest.mark.seed("S004-57")
    async def test_a_file_is_on_the_disk_before_it_takes_the_place_of_the_last(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        store, path = self.store(tmp_path), tmp_path / "10.0.0.1@DEFAULT/g/offsets.json"
        synced: list[tuple[int, bytes, str]] = []

        def fsync(fd: int) -> None:
            if not is_under(tmp_path, fd):
                return
            served = path.read_text() if path.exists() else ""
            written = path.with_name("offsets.json.tmp").read_bytes()
            synced.append((os.fstat(fd).st_ino, written, served))

        monkeypatch.setattr(os, "fsync", fsync)
        for offset in (3, 4):
            before = path.read_text() if path.exists() else ""
            store.memory.set(Q0, offset)
            await store.persist([Q0])
            assert synced.pop() == (path.stat().st_ino, path.read_bytes(), before)
        assert synced == []

    async def test_an_unchanged_offset_is_not_written_again(self, tmp_path: Path) -> None:
        store = self.store(tmp_path)
        store.memory.set(Q0, 3)
        await store.persist([Q0])
        await store.persist([])
        await store.persist([Q0])
        assert not (tmp_path / "10.0.0.1@DEFAULT/g/offsets.json.bak").exists()

    async def test_a_full_disk_is_told_and_all_is_written_once_there_is_room(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: Any
    ) -> None:
        def full(fd: int) -> None:
            if is_under(tmp_path, fd):
                raise OSError(errno.ENOSPC, "No space left on device")

        store, path = self.store(tmp_path), tmp_path / "10.0.0.1@DEFAULT/g/offsets.json"
        store.memory.set(Q0, 3)
        with monkeypatch.context() as patched:
            patched.setattr(os, "fsync", full)
            await store.persist([Q0])
        assert not path.exists()
        assert f"offsets not written file={path}" in caplog.text
        assert "No space left on device" in caplog.text
        await store.persist([Q0])
        assert '"queueId":0,"topic":"T"}:3' in path.read_text(), "though nothing was consumed since"
        await store.persist([Q0])
        assert not path.with_name("offsets.json.bak").exists(), "and once is enough"

    async def test_what_a_cancelled_one_began_to_write_is_written_by_the_next(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        store, path = self.store(tmp_path), tmp_path / "10.0.0.1@DEFAULT/g/offsets.json"
        began, cancelled = threading.Event(), threading.Event()

        def fails_unheard(fd: int) -> None:
            if is_under(tmp_path, fd):
                began.set()
                cancelled.wait(30)
                raise OSError(errno.EIO, "Input/output error")

        store.memory.set(Q0, 3)
        with monkeypatch.context() as patched:
            patched.setattr(os, "fsync", fails_unheard)
            left = asyncio.create_task(store.persist([Q0]))
            await until(began.is_set)
            left.cancel()
            await asyncio.wait([left])
            cancelled.set()
            await until(lambda: not store._writing.locked())
        await store.persist([Q0])
        assert path.read_text().endswith(":3}}")

    async def test_a_write_that_nobody_waits_for_any_more_is_not_joined_by_the_next(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: Any
    ) -> None:
        """A consumer that stops cancels the one that writes, not the write."""
        store, path = self.store(tmp_path), tmp_path / "10.0.0.1@DEFAULT/g/offsets.json"
        inside: list[int] = []
        began, another = threading.Event(), threading.Event()

        def fsync(fd: int) -> None:
            if is_under(tmp_path, fd):
                inside.append(fd)
                (another if began.is_set() else began).set()
                another.wait(0.1)  # long enough for whoever would come in

        monkeypatch.setattr(os, "fsync", fsync)
        store.memory.set(Q0, 3)
        left = asyncio.create_task(store.persist([Q0]))
        await until(began.is_set)
        left.cancel()
        store.memory.set(Q0, 4)
        await store.persist([Q0])
        assert path.read_text().endswith(":4}}")
        assert path.with_name("offsets.json.bak").read_text().endswith(":3}}")
        assert (len(inside), caplog.text) == (2, "")
