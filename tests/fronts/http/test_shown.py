# SPDX-License-Identifier: Apache-2.0
"""What the API shows, where order, time and form decide: queues in order, a topic that goes meanwhile, packed bodies."""

from __future__ import annotations

import asyncio
import base64
import zlib
from types import SimpleNamespace as Thing
from typing import Any

import pytest

from aerobee.broker.operations.admin import topics as operations
from aerobee.errors import InvalidParameter
from aerobee.fronts.http import api, shown
from aerobee.fronts.http.given import Given
from aerobee.protocol import bodies
from aerobee.protocol.message import Record, encode


def test_a_packed_body_is_shown_as_it_was_written() -> None:
    told = shown.message(encode(Record("t", zlib.compress(b"text"), sys_flag=0x301)))
    assert (told["bodyText"], base64.b64decode(told["bodyBase64"])) == ("text", b"text")
    broken = shown.message(encode(Record("t", b"not packed", sys_flag=0x301)))
    assert broken["bodyText"] == "not packed"


def test_queues_are_shown_in_their_order(monkeypatch: pytest.MonkeyPatch) -> None:
    found = {
        bodies.MessageQueue(topic="t", broker_name="b", queue_id=n): bodies.TopicOffset(max_offset=n)
        for n in (10, 2, 1)
    }
    monkeypatch.setattr(shown, "_topic", lambda name, broker: {"topic": name})
    monkeypatch.setattr(operations, "topic_stats", lambda *_: Thing(offset_table=found))
    monkeypatch.setattr(operations, "groups_of", lambda *_: ["g"])
    told = shown.topic("t", Thing())  # type: ignore[arg-type]
    assert [(queue["queueId"], queue["maxOffset"]) for queue in told["queues"]] == [(1, 1), (2, 2), (10, 10)]


async def test_a_topic_that_goes_while_others_are_looked_at_is_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    there = {"a": 1, "b": 2, "c": 3}
    broker: Any = Thing(topics=Thing(all=lambda: there, get=there.get))
    monkeypatch.setattr(shown, "_topic", lambda name, _: there[name])
    asked = asyncio.ensure_future(shown.topics(Given({}), broker))
    await asyncio.sleep(0)
    del there["b"]
    assert await asked == {"total": 3, "start": 0, "topics": [1, 3]}


@pytest.mark.parametrize(
    ("method", "origin", "may"),
    [
        ("POST", "http://b.example:8088", True), ("POST", "https://b.example:8088", True), ("POST", None, True),
        ("POST", "http://evil-b.example:8088", False), ("POST", "http://b.example", False), ("POST", "null", False),
        ("POST", "http://b.example:8088.evil", False), ("GET", "http://evil.example", True),
    ],
)  # fmt: skip
def test_only_pages_of_this_server_act(method: str, origin: str | None, may: bool) -> None:
    headers = {"host": "b.example:8088"} | ({} if origin is None else {"origin": origin})
    request: Any = Thing(method=method, headers=headers)
    if may:
        api._same_origin(request)
        return
    with pytest.raises(InvalidParameter, match="may not act here"):
        api._same_origin(request)
