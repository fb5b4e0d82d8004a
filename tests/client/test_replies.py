# SPDX-License-Identifier: Apache-2.0
"""Requests that wait for a reply: what goes with them, which reply is theirs, and what a reply carries back."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aerobee.client.produce.replies import Replies, nobody_waits
from aerobee.errors import RequestTimeout, SystemFailure
from aerobee.protocol import properties as props
from aerobee.protocol.headers.produce import PushReply


def reply_to(correlation_id: str, **more: Any) -> PushReply:
    text = props.render({"CORRELATION_ID": correlation_id, "KEYS": "k"})
    return PushReply(topic="DefaultCluster_REPLY_TOPIC", properties=text, **more)


async def test_a_reply_reaches_the_request_it_names_and_no_other(session: Any) -> None:
    replies = Replies(session)
    with replies.expect(5_000) as one, replies.expect(5_000) as two:
        assert one.correlation_id != two.correlation_id
        header = reply_to(
            two.correlation_id, queue_id=3, flag=9, born_timestamp=11, store_timestamp=12, reconsume_times=4,
            born_host="/10.0.0.1:1234", store_host="10.0.0.2:5",
        )  # fmt: skip
        assert replies.arrived(header, b"answer")
        found = await two.reply()
        assert not one.arrived.done()
        assert not replies.arrived(header, b"again"), "it has one already"
        assert not replies.arrived(reply_to("unknown"), b"whose?")
        assert not replies.arrived(PushReply(topic="x"), b"whose?")
    assert (found.body, found.queue_id, found.flag, found.reconsume_times) == (b"answer", 3, 9, 4)
    assert (found.born_timestamp, found.store_timestamp, found.keys) == (11, 12, ["k"])
    assert found.born_address == "10.0.0.1:1234"
    assert found.store_host == b"\x0a\0\0\x02\0\0\0\x05"
    assert not replies.arrived(reply_to(one.correlation_id), b"too late"), "nobody waits any more"


async def test_no_reply_in_time_is_an_error_that_says_so(session: Any) -> None:
    replies = Replies(session)
    with (
        replies.expect(1) as waiting,
        pytest.raises(RequestTimeout, match="no reply to the request within 1 ms"),
    ):
        await waiting.reply()


async def test_a_reply_goes_to_the_cluster_and_client_that_asked(session: Any, make_message: Any) -> None:
    replies = Replies(session)
    asked = {"CORRELATION_ID": "c", "REPLY_TO_CLIENT": "me", "CLUSTER": "east", "TTL": "3000"}
    topic, text = replies.answer_properties(make_message(1, properties=props.render(asked)))
    assert topic == "east_REPLY_TOPIC"
    assert props.parse(text) == {
        "MSG_TYPE": "reply",
        "CORRELATION_ID": "c",
        "REPLY_TO_CLIENT": "me",
        "TTL": "3000",
    }
    del asked["TTL"]
    assert "TTL" not in replies.answer_properties(make_message(1, properties=props.render(asked)))[1]


@pytest.mark.parametrize("missing", ["CORRELATION_ID", "REPLY_TO_CLIENT", "CLUSTER"])
async def test_what_was_not_sent_as_a_request_waits_for_no_reply(
    session: Any, make_message: Any, missing: str
) -> None:
    asked = {"CORRELATION_ID": "c", "REPLY_TO_CLIENT": "me", "CLUSTER": "east"}
    del asked[missing]
    with pytest.raises(ValueError, match="message ID1 waits for no reply"):
        Replies(session).answer_properties(make_message(1, properties=props.render(asked)))


async def test_one_who_stops_waiting_is_forgotten(session: Any) -> None:
    replies = Replies(session)
    with pytest.raises(asyncio.CancelledError), replies.expect(5_000):
        raise asyncio.CancelledError
    assert replies._waiting == {}


async def test_only_a_refusal_that_names_who_asked_means_that_nobody_waits(make_message: Any) -> None:
    asked = {"CORRELATION_ID": "c", "REPLY_TO_CLIENT": "10.0.0.1@7", "CLUSTER": "east"}
    request = make_message(1, properties=props.render(asked))
    for told in (
        "client '10.0.0.1@7', which waits for the reply, is not connected to this broker",
        "push reply message fail, channel of <10.0.0.1@7> not found.",
    ):
        assert nobody_waits(request, SystemFailure(told))
    assert not nobody_waits(request, SystemFailure("the disk is gone"))
    assert not nobody_waits(make_message(1), SystemFailure("the disk is gone"))
