# SPDX-License-Identifier: Apache-2.0
"""Small decisions of the fronts, each by itself: what is refused before it is looked at, what a request points at."""

from __future__ import annotations

from types import SimpleNamespace as Thing
from typing import Any

import pytest

from aerobee.fronts.gates.changes import settings_before
from aerobee.fronts.gates.needs import view_message
from aerobee.fronts.grpc import offsets
from aerobee.fronts.grpc.generated import messaging_pb2 as pb
from aerobee.fronts.grpc.status import Refused
from aerobee.protocol.access import Action, topic
from aerobee.protocol.codes import RequestCode


@pytest.mark.parametrize("offset", [-1, -(2**63)])
def test_a_group_is_not_moved_to_before_the_first_message(offset: int) -> None:
    request = pb.UpdateOffsetRequest(offset=offset)
    request.group.name, request.message_queue.topic.name = "g", "t"
    caller: Any = None
    broker: Any = Thing()  # not even looked at
    with pytest.raises(Refused, match=f"offset {offset} is negative") as refused:
        offsets.update(caller, request, broker)
    assert refused.value.code == pb.ILLEGAL_OFFSET


@pytest.mark.parametrize(("found", "said", "needed"), [("a", "b", "a"), (None, "b", "b"), (None, None, None)])
def test_who_looks_at_a_message_needs_the_topic_it_is_of_or_else_the_one_he_says(
    found: str | None, said: str | None, needed: str | None
) -> None:
    asked: Any = Thing(look_up=Thing(topic_at=lambda offset: found), header=Thing(offset=5, topic=said))
    assert view_message(asked) == ([topic(needed, Action.GET, Action.SUB)] if needed else [])


def test_settings_are_those_of_the_broker_and_its_store_where_there_is_one() -> None:
    def place(code: int, **parts: Any) -> Any:
        return Thing(code=code, parts=Thing(settings=Thing(value="broker's"), **parts))

    store = Thing(settings=Thing(value="store's"))
    change = RequestCode.UPDATE_BROKER_CONFIG
    assert settings_before(place(change, store=store)) == ["broker's", "store's"]
    assert settings_before(place(RequestCode.UPDATE_NAMESRV_CONFIG)) == ["broker's"]
    assert settings_before(place(RequestCode.SEND_MESSAGE, store=store)) == []
