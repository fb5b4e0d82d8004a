# SPDX-License-Identifier: Apache-2.0
"""A table's file: one write for all that wait, nobody answered before it, nothing in force that was refused."""

from __future__ import annotations

import asyncio
import json
import threading
from functools import partial
from typing import TYPE_CHECKING

import pytest

from aerobee.errors import StoreError
from aerobee.store.metadata import JsonFile
from aerobee.store.saved_table import SavedTable, all_saved

if TYPE_CHECKING:
    from pathlib import Path


class SlowFile(JsonFile):
    """Writes when it is let; counts."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.gate, self.texts, self.broken = threading.Semaphore(0), list[bytes](), False

    def save(self, data: bytes) -> None:
        assert self.gate.acquire(timeout=10)
        self.texts.append(data)
        if self.broken:
            raise StoreError("no")
        super().save(data)


class Values(SavedTable):
    def __init__(self, file: JsonFile | None) -> None:
        super().__init__(file)
        self.values: dict[str, int] = {}

    def put(self, name: str, value: int) -> None:
        known = self.values.get(name, 0)
        self.values[name] = value
        self.changed(name, partial(self.values.__setitem__, name, known))

    def text(self) -> bytes:
        return json.dumps(self.values).encode()


@pytest.fixture
def file(tmp_path: Path) -> SlowFile:
    return SlowFile(tmp_path / "values.json")


@pytest.fixture
def table(file: SlowFile) -> Values:
    return Values(file)


def waiter(table: Values) -> asyncio.Task[None]:
    return asyncio.get_running_loop().create_task(table.saved())


async def turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_nobody_is_answered_before_the_write_that_has_his_change(table: Values, file: SlowFile) -> None:
    table.put("a", 1)
    first = waiter(table)
    await turns()
    table.put("b", 2)  # comes during the write, which does not have it
    second = waiter(table)
    await turns()
    file.gate.release()
    await first
    await turns()
    assert not second.done()
    assert list(table.unsaved) == ["b"]
    file.gate.release()
    await second
    assert json.loads(file.path.read_bytes()) == {"a": 1, "b": 2}
    assert not table.unsaved


async def test_any_number_of_waiting_requests_cost_two_writes(table: Values, file: SlowFile) -> None:
    tasks = []
    for number in range(100):
        table.put(str(number), number)
        tasks.append(waiter(table))
        await turns()
    file.gate.release(2)
    await asyncio.gather(*tasks)
    assert len(file.texts) == 2


async def test_who_has_nothing_unsaved_does_not_wait(table: Values, file: SlowFile) -> None:
    await table.saved()
    table.save()
    assert file.texts == []


async def test_a_refused_write_is_told_to_all_and_every_change_is_taken_back(
    table: Values, file: SlowFile
) -> None:
    table.put("a", 1)
    file.gate.release()
    await table.saved()
    file.broken = True
    table.put("a", 2)
    table.put("a", 3)
    first = waiter(table)
    await turns()
    table.put("a", 4)  # rests on what is about to be refused
    table.put("b", 5)
    second = waiter(table)
    file.gate.release()
    for task in (first, second):
        with pytest.raises(StoreError):
            await task
    assert table.values == {"a": 1, "b": 0}
    file.broken = False
    table.put("c", 6)
    file.gate.release()
    await table.saved()
    assert json.loads(file.path.read_bytes()) == {"a": 1, "b": 0, "c": 6}


async def test_what_was_written_before_a_refusal_is_not_taken_back(table: Values, file: SlowFile) -> None:
    table.put("a", 1)
    first = waiter(table)
    await turns()
    table.put("a", 2)
    second = waiter(table)
    file.gate.release()
    await first
    file.broken = True
    file.gate.release()
    with pytest.raises(StoreError):
        await second
    assert table.values == {"a": 1}


async def test_a_requester_who_leaves_does_not_take_the_write_from_the_others(
    table: Values, file: SlowFile
) -> None:
    table.put("a", 1)
    leaving, staying = waiter(table), waiter(table)
    await turns()
    leaving.cancel()
    await turns()
    file.gate.release()
    await staying
    assert json.loads(file.path.read_bytes()) == {"a": 1}


async def test_the_last_save_is_not_overwritten_by_a_write_under_way(table: Values, file: SlowFile) -> None:
    table.put("a", 1)
    task = waiter(table)
    await turns()
    table.put("a", 2)
    file.gate.release(2)
    table.save()
    await task
    assert json.loads(file.path.read_bytes()) == {"a": 2}


async def test_a_table_without_a_file_is_always_saved() -> None:
    table = Values(None)
    table.put("a", 1)
    await table.saved()


async def test_of_several_tables_all_are_written_before_a_refusal_is_raised(tmp_path: Path) -> None:
    (tmp_path / "a file").write_bytes(b"")
    bad, good = Values(JsonFile(tmp_path / "a file" / "x.json")), Values(JsonFile(tmp_path / "good.json"))
    bad.put("a", 1)
    good.put("a", 1)
    with pytest.raises(StoreError):
        await all_saved(bad, good)
    assert (tmp_path / "good.json").exists()


def test_a_text_is_made_only_for_a_file_that_has_it_not(file: SlowFile) -> None:
    """Tables are large: the last save, at the end, must not write down what is there."""
    made: list[str] = []

    class Noted(Values):
        def text(self) -> bytes:
            made.append("text")
            return super().text()

    file.gate.release(3)
    kept, alone = Noted(file), Noted(None)
    kept.save()
    alone.put("a", 1)
    alone.save()
    assert (made, file.texts) == ([], [])
    kept.put("a", 1)
    kept.save()
    kept.save()
    assert (made, file.texts) == (["text"], [b'{"a": 1}'])


async def test_the_word_is_written_after_the_deed_and_is_the_one_of_before(file: SlowFile) -> None:
    """What is changed while the messages go to disk may be about messages that did not."""
    begun, allowed = asyncio.Event(), asyncio.Event()

    async def first() -> None:
        begun.set()
        await allowed.wait()

    table = Values(file)
    table._first = first
    file.gate.release(2)
    table.put("a", 1)
    task = waiter(table)
    await turns()
    assert begun.is_set()
    table.put("a", 2)
    assert file.texts == []
    allowed.set()
    await task
    assert file.texts == [b'{"a": 1}']
    assert list(table.unsaved) == ["a"]
    await table.saved()
    assert file.texts == [b'{"a": 1}', b'{"a": 2}']


async def test_a_deed_that_fails_leaves_no_word_and_is_told(file: SlowFile) -> None:
    fails = [True]

    async def first() -> None:
        if fails:
            raise StoreError("the log is not on disk")

    table = Values(file)
    table._first = first
    file.gate.release(2)
    table.put("a", 1)
    with pytest.raises(StoreError, match="the log is not on disk"):
        await table.saved()
    assert (table.values, file.texts) == ({"a": 0}, [])
    fails.clear()
    await table.saved()
    assert file.texts == [b'{"a": 0}']


async def test_what_was_refused_once_is_tried_again_and_taken_back_once(
    table: Values, file: SlowFile
) -> None:
    file.broken = True
    file.gate.release(4)
    table.put("a", 1)
    with pytest.raises(StoreError):
        await table.saved()
    table.values["a"] = 7  # by one whose changes have no way back
    table.changed("a")
    for _ in range(2):
        with pytest.raises(StoreError):
            await table.saved()
        assert table.values == {"a": 7}
    file.broken = False
    assert not file.path.exists()
    await table.saved()
    assert json.loads(file.path.read_bytes()) == {"a": 7}
    assert not table.unsaved


def test_a_last_save_that_is_refused_can_be_repeated(table: Values, file: SlowFile) -> None:
    file.broken = True
    file.gate.release(2)
    table.put("a", 1)
    with pytest.raises(StoreError):
        table.save()
    assert list(table.unsaved) == ["a"]
    file.broken = False
    table.save()
    assert json.loads(file.path.read_bytes()) == {"a": 1}
