# SPDX-License-Identifier: Apache-2.0
"""What the API refuses before an operation sees it, with the official codes and the reference proxy's limits."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from aerobee.fronts.grpc.generated import messaging_pb2 as pb
from aerobee.fronts.grpc.status import Refused
from aerobee.protocol import names
from aerobee.protocol.properties import RESERVED

MAX_PROPERTIES = 128
MAX_PROPERTY_BYTES = 16_384
MAX_GROUP_BYTES = 64
MAX_INVISIBLE_MS = 12 * 3_600_000
DEFAULT_INVISIBLE_MS = 60_000
MIN_POLL_MS, MAX_POLL_MS = 5_000, 20_000
MAX_RECOVERY_S = 3_600
MAX_BATCH = 32
LAST_SECOND = 253_402_300_799  # of the year 9999: protobuf knows no later one
REQUEST_TIMEOUT_MS = 3_000  # of clients that do not say theirs: every official client's default
NO_LITE_TOPICS = "this broker does not serve lite topics (RocketMQ 5.5)"
# Seen by consumers as user properties on the reference proxy; ours filters them.
INTERNAL = RESERVED | {
    "CHECK_IMMUNITY_TIME_IN_SECONDS",
    "__SHARDINGKEY",
    "TRACE_CONTEXT",
    "INNER_MULTI_DISPATCH",
}


def topic_name(resource: Any) -> str:
    return _good_topic(resolved(resource))


def group_name(resource: Any) -> str:
    return _good_group(resolved(resource))


# Every call names one, and mostly the same again; what is refused is looked at anew.


@lru_cache(4_096)
def _good_topic(name: str) -> str:
    try:
        names.check_topic(name)
    except ValueError as error:
        raise Refused(pb.ILLEGAL_TOPIC, str(error)) from None
    if names.is_system_topic(name):
        raise Refused(pb.ILLEGAL_TOPIC, f"{name!r} is a system topic")
    return name


def is_topic(name: str) -> bool:
    try:
        _good_topic(name)
    except Refused:
        return False
    return True


def is_group(name: str) -> bool:
    try:
        _good_group(name)
    except Refused:
        return False
    return True


@lru_cache(4_096)
def _good_group(name: str) -> str:
    try:
        names.check_group(name)
    except ValueError as error:
        raise Refused(pb.ILLEGAL_CONSUMER_GROUP, str(error)) from None
    if names.is_system_group(name):
        raise Refused(pb.ILLEGAL_CONSUMER_GROUP, f"{name!r} is a system group")
    return name


def resolved(resource: Any) -> str:
    """The stored name: a namespace goes in front, as remoting clients do it."""
    return names.in_namespace(resource.resource_namespace, resource.name)


def check_message(message: Any, max_body: int) -> None:
    body = message.body
    if not body:
        raise Refused(pb.MESSAGE_BODY_EMPTY, "the message has no body")
    if len(body) > max_body:
        raise Refused(
            pb.MESSAGE_BODY_TOO_LARGE,
            f"a body of {len(body)} bytes; the limit is {max_body}, the broker's max_message_bytes",
        )
    system = message.system_properties
    if not system.message_id.strip():
        raise Refused(pb.ILLEGAL_MESSAGE_ID, "the message has no id")
    _check_tag_and_keys(system)
    _check_group(system)
    _check_user_properties(message)
    recovery = system.orphaned_transaction_recovery_duration.seconds
    if recovery > MAX_RECOVERY_S:
        raise Refused(pb.BAD_REQUEST, f"transaction recovery of {recovery} s, limit {MAX_RECOVERY_S}")


def _check_tag_and_keys(system: Any) -> None:
    tag = system.tag
    if system.HasField("tag") and tag and (not tag.strip() or "|" in tag or _has_control(tag)):
        raise Refused(pb.ILLEGAL_MESSAGE_TAG, f"tag {tag!r}: no '|', no control characters, not blank")
    for key in system.keys:
        if not key.strip() or _has_control(key):
            raise Refused(pb.ILLEGAL_MESSAGE_KEY, f"key {key!r}: no control characters, not blank")


def _check_group(system: Any) -> None:
    group = system.message_group
    if not system.HasField("message_group"):
        return
    if not group.strip() or len(group.encode()) >= MAX_GROUP_BYTES or _has_control(group):
        raise Refused(
            pb.ILLEGAL_MESSAGE_GROUP, f"message group {group!r}: not blank, under {MAX_GROUP_BYTES} bytes"
        )


def _check_user_properties(message: Any) -> None:
    user = message.user_properties
    system = message.system_properties
    if (
        not user and not system.keys and len(system.tag) < MAX_PROPERTY_BYTES // 4
    ):  # a character has 4 bytes at most
        return
    if len(user) > MAX_PROPERTIES:
        raise Refused(pb.MESSAGE_PROPERTIES_TOO_LARGE, f"{len(user)} properties, limit {MAX_PROPERTIES}")
    size = len(system.tag.encode()) + sum(len(key.encode()) for key in system.keys)
    for name, value in user.items():
        size += len(name.encode()) + len(value.encode())
        if name in RESERVED:
            raise Refused(pb.ILLEGAL_MESSAGE_PROPERTY_KEY, f"property {name!r} is reserved")
        if not name or _has_control(name) or _has_control(value):
            raise Refused(
                pb.ILLEGAL_MESSAGE_PROPERTY_KEY, f"property {name!r} is empty or holds control characters"
            )
    if size > MAX_PROPERTY_BYTES:
        raise Refused(
            pb.MESSAGE_PROPERTIES_TOO_LARGE, f"{size} bytes of properties, limit {MAX_PROPERTY_BYTES}"
        )


def _has_control(text: str) -> bool:
    return not text.isprintable() and any(ord(c) < 32 or ord(c) == 127 for c in text)


def milliseconds(moment: Any) -> int:
    """Of a timestamp or a duration, if it is one that protobuf knows."""
    seconds, nanos = moment.seconds, moment.nanos
    if 0 <= seconds <= LAST_SECOND and 0 <= nanos < 1_000_000_000:
        return int(seconds * 1000 + nanos // 1_000_000)  # ten times as fast as asking protobuf
    try:
        return int(moment.ToMilliseconds())
    except ValueError as error:
        raise Refused(pb.BAD_REQUEST, str(error)) from None


def invisible_ms(duration: Any, least: int) -> int:
    """The proxy's words: users' programs look for them."""
    value = milliseconds(duration)
    if value < least:
        raise Refused(pb.ILLEGAL_INVISIBLE_TIME, f"the invisibleTime is too small. min is {least}")
    if value > MAX_INVISIBLE_MS:
        raise Refused(pb.ILLEGAL_INVISIBLE_TIME, f"the invisibleTime is too large. max is {MAX_INVISIBLE_MS}")
    return value


def check_delivery_time(system: Any, now: int, furthest_ms: int) -> None:
    """0 is no limit of this API; the store has its own."""
    if furthest_ms <= 0 or not system.HasField("delivery_timestamp"):
        return
    if milliseconds(system.delivery_timestamp) - now > furthest_ms:
        raise Refused(
            pb.ILLEGAL_DELIVERY_TIME, f"the max delay time of message is too large, max is {furthest_ms}"
        )


def check_no_lite_topic(system: Any) -> None:
    """Stored as an ordinary message it would be lost to those who subscribe to the lite topic."""
    if system.lite_topic or system.message_type == pb.LITE:
        raise Refused(pb.UNSUPPORTED, f"{NO_LITE_TOPICS}; send the message without one")
