# SPDX-License-Identifier: Apache-2.0
"""A broker opens what is on disk, and makes up for settings that are gone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from aerobee.broker.background.schedule import Schedule
from aerobee.broker.broker import assemble
from aerobee.clock import ManualClock
from aerobee.errors import AerobeeError
from aerobee.protocol import names
from aerobee.protocol.message import Record
from aerobee.settings import BrokerConfig
from aerobee.store.message_store import MessageStore
from aerobee.store.metadata import JsonFile
from tests.broker.conftest import SMALL

if TYPE_CHECKING:
    from pathlib import Path


def test_one_that_cannot_be_put_together_leaves_its_directory_to_others(tmp_path: Path) -> None:
    broken = BrokerConfig(acl=True, acl_file=str(tmp_path / "plain_acl.yml"))
    (tmp_path / "plain_acl.yml").write_text("accounts: [")
    with pytest.raises(AerobeeError):
        assemble(broken, SMALL, tmp_path / "data", ManualClock())
    assemble(BrokerConfig(), SMALL, tmp_path / "data", ManualClock()).store.close()


@pytest.mark.parametrize(
    ("topic", "queue_id", "queues"),
    [
        ("orders", 0, 8),
        ("orders", 7, 8),
        ("orders", 8, 9),
        ("%RETRY%billing", 0, 1),
        ("%RETRY%billing", 2, 3),
        ("%DLQ%billing", 0, 1),
        ("%RETRY%billing", None, 1),
        ("orders", None, 8),
    ],
)
def test_a_topic_without_settings_gets_its_queues_and_those_a_new_one_would(
    bench: Any, topic: str, queue_id: int | None, queues: int
) -> None:
    if queue_id is None:  # its directory was made, and nothing in it yet
        (bench.directory / "store" / "consumequeue" / topic).mkdir()
    else:
        bench.broker.store.append(Record(topic, b"x", "", queue_id))
    bench.restart()
    found = bench.broker.topics.get(topic)
    assert (found.read_queue_nums, found.write_queue_nums, found.perm) == (queues, queues, 6)


def test_topics_are_no_longer_made_on_use_once_the_settings_say_so(tmp_path: Path) -> None:
    for allowed, perm in ((True, 7), (False, 6)):
        broker = assemble(BrokerConfig(auto_create_topics=allowed), SMALL, tmp_path, ManualClock())
        assert broker.topics.get(names.DEFAULT_TOPIC).perm == perm
        traces = broker.topics.get(names.TRACE_TOPIC)
        assert (traces is None) is allowed, "nobody could make it by a send, and it is nobody's to create"
        broker.store.close()


@pytest.mark.parametrize("what", ["offsets", "delays"])
async def test_what_was_done_with_messages_is_written_behind_the_log(
    make_bench: Any, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """Power loss must not leave a group, or a delay level, ahead of the log."""
    events = []

    async def on_disk(store: MessageStore) -> None:
        events.append("log")

    def save(file: JsonFile, data: bytes) -> None:
        events.append(file.path.name)

    with monkeypatch.context() as patch:
        patch.setattr(MessageStore, "log_on_disk", on_disk)
        broker = make_bench().broker
        patch.setattr(JsonFile, "save", save)
        table = broker.offsets if what == "offsets" else Schedule(broker.store, broker.stats)
        table.changed()
        await table.saved()
    assert events == ["log", "consumerOffset.json" if what == "offsets" else "delayOffset.json"]


def test_a_new_broker_has_the_topics_of_rocketmqs_with_their_queues(make_bench: Any) -> None:
    bench = make_bench()
    config, topics = bench.broker.config, bench.broker.topics
    found = {
        name: (each.read_queue_nums, each.write_queue_nums, each.perm) for name, each in topics.all().items()
    }
    assert found == {
        "TBW102": (8, 8, 7),
        "SELF_TEST_TOPIC": (1, 1, 6),
        "BenchmarkTest": (1024, 1024, 6),
        config.cluster: (16, 16, 7),
        config.name: (1, 1, 7),
        "OFFSET_MOVED_EVENT": (1, 1, 6),
        "SCHEDULE_TOPIC_XXXX": (18, 18, 6),
        f"{config.cluster}_REPLY_TOPIC": (1, 1, 6),
        f"rmq_sys_REVIVE_LOG_{config.cluster}": (8, 8, 6),
        names.broker_member_topic(config.name): (1, 1, 1),
        "RMQ_SYS_TRANS_HALF_TOPIC": (1, 1, 6),
        "RMQ_SYS_TRANS_OP_HALF_TOPIC": (1, 1, 6),
        "rmq_sys_wheel_timer": (1, 1, 6),
    }
    assert not topics.unsaved
