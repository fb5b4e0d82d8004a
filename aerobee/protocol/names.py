# SPDX-License-Identifier: Apache-2.0
"""Names of topics and groups: what is allowed, what is reserved, what is derived from what."""

from __future__ import annotations

import re

RETRY_PREFIX = "%RETRY%"
DEAD_LETTER_PREFIX = "%DLQ%"
LIGHT_QUEUE_PREFIX = "%LMQ%"
SYSTEM_PREFIX = "rmq_sys_"
SYSTEM_GROUP_PREFIX = "CID_RMQ_SYS_"
REVIVE_PREFIX = f"{SYSTEM_PREFIX}REVIVE_LOG_"
TRACE_PREFIX = f"{SYSTEM_PREFIX}TRACE_DATA_"  # and a region: where Java clients of a cloud send their traces

RESERVE_TIME = "reserve.time"  # topic attribute: hours for which its messages are served
DEFAULT_TOPIC = "TBW102"  # topics are created after this one's settings
SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
TIMER_TOPIC = "rmq_sys_wheel_timer"
HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"
OP_TOPIC = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
CHECK_MAX_TOPIC = "TRANS_CHECK_MAX_TIME_TOPIC"
TRACE_TOPIC = "RMQ_SYS_TRACE_TOPIC"
SELF_TEST_TOPIC = "SELF_TEST_TOPIC"
BENCHMARK_TOPIC = "BenchmarkTest"
OFFSET_MOVED_TOPIC = "OFFSET_MOVED_EVENT"
CHECKPOINT_TOPIC = "CHECKPOINT_TOPIC"
REPLY_SUFFIX = "_REPLY_TOPIC"

ORDER_TOPIC_NAMESPACE = "ORDER_TOPIC_CONFIG"  # the name server's key-value namespace of ordered topics
INNER_PRODUCER_GROUP = "CLIENT_INNER_PRODUCER"
TRANSACTION_GROUP = "CID_RMQ_SYS_TRANS"
TOOLS_GROUP = "TOOLS_CONSUMER"

MAX_TOPIC = 127
MAX_DERIVED_TOPIC = 255  # %RETRY% and %DLQ% names, which carry a group name
MAX_GROUP = 120
MAX_NAME_BYTES = 255  # of a directory, and of a topic in a record
MAX_QUEUES = 65_536  # of one topic

SYSTEM_TOPICS = frozenset(
    {
        DEFAULT_TOPIC,
        SCHEDULE_TOPIC,
        BENCHMARK_TOPIC,
        HALF_TOPIC,
        TRACE_TOPIC,
        OP_TOPIC,
        CHECK_MAX_TOPIC,
        SELF_TEST_TOPIC,
        OFFSET_MOVED_TOPIC,
        CHECKPOINT_TOPIC,
    }
)
# Besides these, clients may send to no topic with the system's prefix (`may_send`).
NO_SEND_TOPICS = frozenset(
    {SCHEDULE_TOPIC, HALF_TOPIC, OP_TOPIC, CHECK_MAX_TOPIC, SELF_TEST_TOPIC, OFFSET_MOVED_TOPIC}
)
SYSTEM_GROUPS = frozenset(
    {
        TOOLS_GROUP,
        "FILTERSRV_CONSUMER",
        "SELF_TEST_C_GROUP",
        "CID_ONS-HTTP-PROXY",
        "CID_ONSAPI_PULL",
        "CID_ONSAPI_PERMISSION",
        "CID_ONSAPI_OWNER",
        TRANSACTION_GROUP,
    }
)

_allowed = re.compile(r"[%|a-zA-Z0-9_-]+").fullmatch
_named_or_derived = re.compile(r"[%|a-zA-Z0-9_-]{1,255}|%RETRY%[%|a-zA-Z0-9_+-]{1,248}").fullmatch


def check_topic(name: str) -> None:
    """Raise ValueError when RocketMQ would refuse the topic name."""
    limit = MAX_DERIVED_TOPIC if is_retry(name) or is_dead_letter(name) else MAX_TOPIC
    _check("topic", name, limit)


def check_group(name: str) -> None:
    """Raise ValueError when RocketMQ would refuse the group name."""
    _check("group", name, MAX_GROUP)


def _check(kind: str, name: str, limit: int) -> None:
    if not name or name.isspace():
        raise ValueError(f"{kind} name is blank: give it a name")
    if len(name) > limit:
        raise ValueError(f"{kind} name {name[:64]!r}... has {len(name)} characters, at most {limit} may be")
    if not _allowed(name):
        raise ValueError(f"{kind} name {name!r} has other characters than letters, digits and % | _ -")


# -- derived names ----------------------------------------------------------------------------------


def retry_topic(group: str) -> str:
    return RETRY_PREFIX + group


def dead_letter_topic(group: str) -> str:
    return DEAD_LETTER_PREFIX + group


def pop_retry_topic(topic: str, group: str) -> str:
    """Where POP redelivers from, in the form RocketMQ uses by default."""
    return f"{RETRY_PREFIX}{group}_{topic}"


def pop_retry_topic_v2(topic: str, group: str) -> str:
    """The later form; + is not allowed in names, so the parts can be told apart."""
    return f"{RETRY_PREFIX}{group}+{topic}"


def normal_topic(topic: str, group: str) -> str:
    """A POP retry topic's own topic; any other name unchanged."""
    for prefix in (f"{RETRY_PREFIX}{group}_", f"{RETRY_PREFIX}{group}+"):
        if topic.startswith(prefix) and len(topic) > len(prefix):
            return topic[len(prefix) :]
    return topic


def reply_topic(cluster: str) -> str:
    return f"{cluster}{REPLY_SUFFIX}"


def revive_topic(cluster: str) -> str:
    return f"{REVIVE_PREFIX}{cluster}"


def broker_member_topic(broker: str) -> str:
    return f"{SYSTEM_PREFIX}SYNC_BROKER_MEMBER_{broker}"


# -- classes of names -------------------------------------------------------------------------------


def is_retry(topic: str) -> bool:
    return topic.startswith(RETRY_PREFIX)


def is_dead_letter(topic: str) -> bool:
    return topic.startswith(DEAD_LETTER_PREFIX)


def is_light_queue(topic: str) -> bool:
    return topic.startswith(LIGHT_QUEUE_PREFIX)


def is_system_topic(topic: str) -> bool:
    """Known to every broker by name; a broker adds its cluster's, its own and the reply topic."""
    return topic in SYSTEM_TOPICS or topic.startswith(SYSTEM_PREFIX)


def is_system_group(group: str) -> bool:
    return group in SYSTEM_GROUPS or group.startswith(SYSTEM_GROUP_PREFIX)


def may_exist(topic: str) -> bool:
    """Whether any topic may have the name, those that brokers name after clusters and groups too: it must be the name
    of one directory, no path, and not too long for one."""
    if topic in ("", ".", "..") or "/" in topic or "\0" in topic:
        return False
    try:
        return len(topic.encode()) <= MAX_NAME_BYTES
    except UnicodeEncodeError:  # a file name that is no text
        return False


def may_send(topic: str) -> bool:
    """Whether clients may send to it: not to what only the broker writes and believes. Its reply topic is one more."""
    if topic.startswith(SYSTEM_PREFIX):
        return topic.startswith(TRACE_PREFIX)
    return topic not in NO_SEND_TOPICS


def may_deliver(topic: str) -> bool:
    """Whether a message that waits in the log may name the topic as where it goes next.

    What clients may send to, and POP's retry topics, which may have a +; also a revive log, for RocketMQ sends its
    checkpoints through its timer.
    """
    if topic.startswith(REVIVE_PREFIX):
        return may_exist(topic)
    return _named_or_derived(topic) is not None and may_send(topic)


def in_namespace(space: str, name: str) -> str:
    """The stored name of what a client of RocketMQ 5 names by two parts, as older ones write it."""
    return f"{space}%{name}" if space else name


def retry_group(topic: str) -> str:
    """The group of a retry or dead-letter topic; empty for any other."""
    for prefix in (RETRY_PREFIX, DEAD_LETTER_PREFIX):
        if topic.startswith(prefix):
            return topic[len(prefix) :]
    return ""
