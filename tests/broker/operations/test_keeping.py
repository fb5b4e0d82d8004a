# SPDX-License-Identifier: Apache-2.0
"""What an operation's answer waits for: the disk in sync mode, a new topic's settings in any mode."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from aerobee.broker.delivery.keeping import until_kept
from aerobee.broker.operations.receive import dead_letter
from aerobee.broker.operations.send import PlainOrigin, send_batch
from aerobee.broker.operations.send_back import SendBackRequest, send_back
from aerobee.protocol import names
from aerobee.protocol.batch import Batch, Columns
from aerobee.protocol.receipt import Receipt
from aerobee.settings import StoreConfig

SYNC = msgspec.structs.replace(StoreConfig(), flush="sync")
DELAYED = {"DELAY": "3"}


def members() -> Columns:
    return Columns([0, 0], [b"a", b"b"], ["", ""])


def test_in_async_mode_only_a_new_topic_is_waited_for(bench: Any) -> None:
    first = bench.send()
    assert first.unkept == ("orders", first.end)
    bench.broker.topics.save()
    assert bench.send().unkept is None
    assert bench.send(properties=DELAYED).unkept is None
    assert send_batch(Batch("orders", 0, members()), PlainOrigin(), bench.broker).unkept is None


def test_another_topic_that_is_not_saved_yet_makes_nobody_wait(bench: Any) -> None:
    bench.send()
    bench.broker.topics.save()
    bench.send("new")
    assert bench.send().unkept is None


def test_a_delayed_message_that_makes_its_topic_waits_for_it(bench: Any) -> None:
    sent = bench.send("new", properties=DELAYED)
    assert sent.unkept == ("new", sent.end)


@pytest.mark.parametrize("properties", [{}, DELAYED])
def test_in_sync_mode_every_send_waits_unless_it_says_it_does_not(
    make_bench: Any, properties: dict[str, str]
) -> None:
    bench = make_bench(SYNC)
    bench.send()
    bench.broker.topics.save()
    sent = bench.send(properties=properties)
    assert sent.unkept == ("orders", sent.end)
    assert bench.send(properties={**properties, "WAIT": "false"}).unkept is None
    batch = send_batch(Batch("orders", 0, members()), PlainOrigin(), bench.broker)
    assert batch.unkept == ("orders", batch.places.end)


def test_what_is_sent_back_waits_for_the_topic_it_goes_to(bench: Any) -> None:
    sent = bench.send()
    bench.broker.topics.save()
    retry = send_back(SendBackRequest("billing", sent.physical_offset), bench.broker)
    assert retry is not None
    assert retry[0] == names.retry_topic("billing")
    bench.broker.topics.save()
    assert send_back(SendBackRequest("billing", sent.physical_offset), bench.broker) is None
    receipt = Receipt(0, 0, 1, 0, "0", "broker-a", 0, 0, sent.physical_offset)
    dead = dead_letter("billing", "orders", receipt, bench.broker)
    assert dead is not None
    assert dead[0] == names.dead_letter_topic("billing")


async def test_a_new_topic_is_on_disk_when_its_message_is_kept(bench: Any) -> None:
    unkept = bench.send("new").unkept
    await until_kept(unkept, bench.broker)
    assert "new" not in bench.broker.topics.unsaved
    assert b'"new"' in (bench.directory / "store" / "config" / "topics.json").read_bytes()


async def test_who_waits_waits_for_the_disk_and_for_a_topic_that_is_not_saved(
    make_bench: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = make_bench(SYNC)
    sent, waited = bench.send(), []

    async def durable(end: int) -> None:
        waited.append(end)

    with monkeypatch.context() as patch:
        patch.setattr(bench.broker.store, "durable", durable)
        await until_kept(sent.unkept, bench.broker)
        assert "orders" not in bench.broker.topics.unsaved
        await until_kept(bench.send().unkept, bench.broker)
    assert waited == [sent.end, bench.broker.store.log_max]
