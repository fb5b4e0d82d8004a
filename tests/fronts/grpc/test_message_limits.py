# SPDX-License-Identifier: Apache-2.0
"""What the API takes of a message and what it refuses: each limit, just within and just beyond, with its code."""

from __future__ import annotations

from typing import Any

import pytest

from aerobee.fronts.grpc import limits
from aerobee.fronts.grpc.generated import messaging_pb2 as pb
from aerobee.fronts.grpc.status import Refused
from aerobee.protocol.properties import RESERVED

NOW = 1_700_000_000_000


def message(user: dict[str, str] | None = None, body: bytes = b"x", **system: Any) -> Any:
    told = pb.SystemProperties(**{"message_id": "m1", **system})
    return pb.Message(body=body, user_properties=user or {}, system_properties=told)


def code_of(made: Any, max_body: int = 10) -> Any:
    try:
        limits.check_message(made, max_body)
    except Refused as refused:
        return refused.code
    return pb.OK


def seconds(count: int) -> Any:
    made = pb.SystemProperties()
    made.orphaned_transaction_recovery_duration.seconds = count
    return made.orphaned_transaction_recovery_duration


@pytest.mark.parametrize(
    ("made", "code"),
    [
        (message(), pb.OK),
        (message(body=b"x" * 10), pb.OK),
        (message(body=b"x" * 11), pb.MESSAGE_BODY_TOO_LARGE),
        (message(body=b""), pb.MESSAGE_BODY_EMPTY),
        (message(message_id=""), pb.ILLEGAL_MESSAGE_ID),
        (message(message_id=" \t"), pb.ILLEGAL_MESSAGE_ID),
        # Tags: none is none, blank is wrong.
        (message(tag="A"), pb.OK),
        (message(tag=""), pb.OK),
        (message(tag="a b"), pb.OK),
        (message(tag=" "), pb.ILLEGAL_MESSAGE_TAG),
        (message(tag="a|b"), pb.ILLEGAL_MESSAGE_TAG),
        (message(tag="a\x1f"), pb.ILLEGAL_MESSAGE_TAG),
        (message(tag="a\x7f"), pb.ILLEGAL_MESSAGE_TAG),
        (message(tag="a\x80\x7e"), pb.OK),
        # All properties together, in bytes: an umlaut has two.
        (message({"k": "v"}, tag="\u00e4" * 8_191), pb.OK),
        (message({"k": "v"}, tag="\u00e4" * 8_191 + "x"), pb.MESSAGE_PROPERTIES_TOO_LARGE),
        (message(keys=["\u00e4" * 8_192]), pb.OK),
        (message(keys=["\u00e4" * 8_192, "x"]), pb.MESSAGE_PROPERTIES_TOO_LARGE),
        (message({"\u00e4": "\u00e4" * 8_191}), pb.OK),
        (message({"\u00e4": "\u00e4" * 8_191 + "x"}), pb.MESSAGE_PROPERTIES_TOO_LARGE),
        (message({"\u00e4\u00e4": "\u00e4" * 8_191}), pb.MESSAGE_PROPERTIES_TOO_LARGE),
        # Keys: each of them.
        (message(keys=["k1", "k2"]), pb.OK),
        (message(keys=["k1", ""]), pb.ILLEGAL_MESSAGE_KEY),
        (message(keys=["k1", " "]), pb.ILLEGAL_MESSAGE_KEY),
        (message(keys=["k\x01"]), pb.ILLEGAL_MESSAGE_KEY),
        # Message groups: under 64 bytes, where there is one.
        (message(message_group="g"), pb.OK),
        (message(message_group="g" * 63), pb.OK),
        (message(message_group="g" * 64), pb.ILLEGAL_MESSAGE_GROUP),
        (message(message_group="é" * 31 + "g"), pb.OK),
        (message(message_group="é" * 32), pb.ILLEGAL_MESSAGE_GROUP),
        (message(message_group=""), pb.ILLEGAL_MESSAGE_GROUP),
        (message(message_group=" "), pb.ILLEGAL_MESSAGE_GROUP),
        (message(message_group="a\x00"), pb.ILLEGAL_MESSAGE_GROUP),
        # User properties: 128 of them, 16 KiB with tag and keys.
        (message({f"p{i}": "v" for i in range(128)}), pb.OK),
        (message({f"p{i}": "v" for i in range(129)}), pb.MESSAGE_PROPERTIES_TOO_LARGE),
        (message({"p": "v" * 16_383}), pb.OK),
        (message({"p": "v" * 16_384}), pb.MESSAGE_PROPERTIES_TOO_LARGE),
        (message({"p": "v" * 16_380}, tag="t", keys=["k", "l"]), pb.OK),
        (message({"p": "v" * 16_380}, tag="tt", keys=["k", "l"]), pb.MESSAGE_PROPERTIES_TOO_LARGE),
        (message({"p": "v" * 16_380}, tag="t", keys=["k", "ll"]), pb.MESSAGE_PROPERTIES_TOO_LARGE),
        (message({"p": "é" * 8_191 + "v"}), pb.OK),
        (message({"p": "é" * 8_192}), pb.MESSAGE_PROPERTIES_TOO_LARGE),
        (message({"é": "v" * 16_383}), pb.MESSAGE_PROPERTIES_TOO_LARGE),
        (message({"": "v"}), pb.ILLEGAL_MESSAGE_PROPERTY_KEY),
        (message({"p\x01": "v"}), pb.ILLEGAL_MESSAGE_PROPERTY_KEY),
        (message({"p": "v\x02"}), pb.ILLEGAL_MESSAGE_PROPERTY_KEY),
        (message({"TAGS": "v"}), pb.ILLEGAL_MESSAGE_PROPERTY_KEY),
        (message({"p": ""}), pb.OK),
        # How long an orphaned transaction waits.
        (message(orphaned_transaction_recovery_duration=seconds(3_600)), pb.OK),
        (message(orphaned_transaction_recovery_duration=seconds(3_601)), pb.BAD_REQUEST),
    ],
)
def test_a_message_at_its_limits(made: Any, code: int) -> None:
    assert code_of(made) == code


@pytest.mark.parametrize("name", sorted(RESERVED))
def test_no_producer_sets_a_property_of_the_brokers(name: str) -> None:
    assert code_of(message({name: "v"})) == pb.ILLEGAL_MESSAGE_PROPERTY_KEY


def resource(name: str, namespace: str = "") -> Any:
    return pb.Resource(name=name, resource_namespace=namespace)


def test_names_of_topics_and_groups() -> None:
    assert limits.topic_name(resource("orders")) == "orders"
    assert limits.topic_name(resource("orders", "shop")) == "shop%orders"
    assert limits.group_name(resource("billing")) == "billing"
    assert limits.group_name(resource("billing", "shop")) == "shop%billing"
    for name in ("", "a b", "x" * 300, "SCHEDULE_TOPIC_XXXX", "rmq_sys_x"):
        with pytest.raises(Refused) as refused:
            limits.topic_name(resource(name))
        assert refused.value.code == pb.ILLEGAL_TOPIC
    for name in ("", "a b", "x" * 300, "CID_RMQ_SYS_TRANS", "TOOLS_CONSUMER"):
        with pytest.raises(Refused) as refused:
            limits.group_name(resource(name))
        assert refused.value.code == pb.ILLEGAL_CONSUMER_GROUP


@pytest.mark.parametrize(
    ("ms", "least", "words"),
    [
        (10_000, 10_000, ""),
        (9_999, 10_000, "the invisibleTime is too small. min is 10000"),
        (0, 0, ""),
        (12 * 3_600_000, 0, ""),
        (12 * 3_600_000 + 1, 0, "the invisibleTime is too large. max is 43200000"),
    ],
)
def test_how_long_a_message_may_be_invisible(ms: int, least: int, words: str) -> None:
    duration = pb.ChangeInvisibleDurationRequest().invisible_duration
    duration.FromMilliseconds(ms)
    if not words:
        assert limits.invisible_ms(duration, least) == ms
        return
    with pytest.raises(Refused, match=words) as refused:
        limits.invisible_ms(duration, least)
    assert refused.value.code == pb.ILLEGAL_INVISIBLE_TIME


def test_a_time_that_protobuf_does_not_know_is_a_bad_request() -> None:
    moment = pb.SystemProperties().born_timestamp
    moment.seconds = 253_402_300_800  # of the year 10000
    with pytest.raises(Refused) as refused:
        limits.milliseconds(moment)
    assert refused.value.code == pb.BAD_REQUEST


@pytest.mark.parametrize(
    ("ahead_ms", "furthest_ms", "allowed"),
    [(5_000, 5_000, True), (5_001, 5_000, False), (5_001, 0, True), (5_001, -1, True), (2, 1, False)],
)
def test_how_far_off_a_delivery_may_be(ahead_ms: int, furthest_ms: int, allowed: bool) -> None:
    system = pb.SystemProperties()
    limits.check_delivery_time(system, NOW, 1)  # none at all
    system.delivery_timestamp.FromMilliseconds(NOW + ahead_ms)
    if allowed:
        limits.check_delivery_time(system, NOW, furthest_ms)
        return
    with pytest.raises(Refused, match=f"max is {furthest_ms}") as refused:
        limits.check_delivery_time(system, NOW, furthest_ms)
    assert refused.value.code == pb.ILLEGAL_DELIVERY_TIME


def test_messages_of_lite_topics_are_refused_however_they_say_it() -> None:
    limits.check_no_lite_topic(pb.SystemProperties(message_type=pb.NORMAL))
    for system in (pb.SystemProperties(lite_topic="l"), pb.SystemProperties(message_type=pb.LITE)):
        with pytest.raises(Refused) as refused:
            limits.check_no_lite_topic(system)
        assert refused.value.code == pb.UNSUPPORTED
