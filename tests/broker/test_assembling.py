# SPDX-License-Identifier: Apache-2.0
"""A broker opens what is on disk, and makes up for settings that are gone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from aerobee.broker.broker import assemble
from aerobee.clock import ManualClock
from aerobee.errors import AerobeeError
from aerobee.protocol import names
from aerobee.protocol.message import Record
from aerobee.settings import BrokerConfig
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
    ],
)
def test_a_topic_without_settings_gets_its_queues_and_those_a_new_one_would(
    bench: Any, topic: str, queue_id: int, queues: int
) -> None:
    bench.broker.store.append(Record(topic, b"x", "", queue_id))
    bench.restart()
    found = bench.broker.topics.get(topic)
    assert (found.read_queue_nums, found.write_queue_nums, found.perm) == (queues, queues, 6)


def test_topics_are_no_longer_made_on_use_once_the_settings_say_so(tmp_path: Path) -> None:
    for allowed, perm in ((True, 7), (False, 6)):
        broker = assemble(BrokerConfig(auto_create_topics=allowed), SMALL, tmp_path, ManualClock())
        assert broker.topics.get(names.DEFAULT_TOPIC).perm == perm
        broker.store.close()
