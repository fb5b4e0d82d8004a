# SPDX-License-Identifier: Apache-2.0
"""Groups: settings, progress, assignment, and the files that remember them."""

from __future__ import annotations

from msgspec import field

from aerobee.protocol.bodies.values import Body, DataVersion, MessageModel, MessageQueue, Mode

# -- settings ---------------------------------------------------------------------------------------


class ExponentialRetry(Body):
    initial: int = 5_000
    max: int = 7_200_000
    multiplier: int = 2


class CustomizedRetry(Body):
    next: list[int] = field(default_factory=list)


class RetryPolicy(Body):
    customized_retry_policy: CustomizedRetry | None = None
    exponential_retry_policy: ExponentialRetry | None = None
    type: str = "CUSTOMIZED"


class SimpleSubscription(Body):
    expression: str = "*"
    expression_type: str = "TAG"
    topic: str = ""
    version: int = 0


class GroupConfig(Body):
    """SubscriptionGroupConfig, with Java's defaults."""

    attributes: dict[str, str] = field(default_factory=dict)
    broker_id: int = 0
    consume_broadcast_enable: bool = True
    consume_enable: bool = True
    consume_from_min_enable: bool = True
    consume_message_orderly: bool = False
    consume_timeout_minute: int = 15
    group_name: str = ""
    group_retry_policy: RetryPolicy = field(default_factory=RetryPolicy)
    group_sys_flag: int = 0
    notify_consumer_ids_changed_enable: bool = True
    retry_max_times: int = 16
    retry_queue_nums: int = 1
    subscription_data_set: list[SimpleSubscription] | None = None
    which_broker_when_consume_slowly: int = 1


class GroupConfigs(Body):
    """`subscriptionGroup.json` and the answer to code 201."""

    data_version: DataVersion = field(default_factory=DataVersion)
    forbidden_table: dict[str, dict[str, int]] = field(default_factory=dict)
    subscription_group_table: dict[str, GroupConfig] = field(default_factory=dict)


class GroupConfigList(Body):
    group_config_list: list[GroupConfig] = field(default_factory=list)


class GroupForbidden(Body):
    group: str = ""
    readable: bool = True
    topic: str = ""


# -- progress ---------------------------------------------------------------------------------------


class ConsumerOffsets(Body):
    """`consumerOffset.json` and the answer to code 43; tables by `topic@group`, then queue."""

    data_version: DataVersion = field(default_factory=DataVersion)
    offset_table: dict[str, dict[int, int]] = field(default_factory=dict)


class DelayOffsets(Body):
    """`delayOffset.json`, by delay level."""

    data_version: DataVersion = field(default_factory=DataVersion)
    offset_table: dict[int, int] = field(default_factory=dict)


class QueueProgress(Body):
    broker_offset: int = 0
    consumer_offset: int = 0
    last_timestamp: int = 0
    pull_offset: int = 0


class ConsumeStats(Body):
    consume_tps: float = 0.0
    offset_table: dict[MessageQueue, QueueProgress] = field(default_factory=dict)


class ConsumeStatsList(Body):
    """All groups of a broker (code 317): one map of group to stats per list item."""

    broker_addr: str = ""
    consume_stats_list: list[dict[str, list[ConsumeStats]]] = field(default_factory=list)
    total_diff: int = 0
    total_inflight_diff: int = 0


class ResetOffsetBody(Body):
    offset_table: dict[MessageQueue, int] = field(default_factory=dict)


class ResetOffsetEntry(Body):
    broker_name: str = ""
    offset: int = 0
    queue_id: int = 0
    topic: str = ""


class ResetOffsetList(Body):
    """The form C++ clients read."""

    offset_table: list[ResetOffsetEntry] = field(default_factory=list)


class QueueOffsets(Body):
    """A client's own offsets (code 221)."""

    message_queue_table: dict[MessageQueue, int] = field(default_factory=dict)


class ConsumerStatusTable(Body):
    """The same of all clients of a group (code 223)."""

    consumer_table: dict[str, dict[MessageQueue, int]] = field(default_factory=dict)


class CorrectionOffsets(Body):
    correction_offsets: dict[int, int] = field(default_factory=dict)


class QueueTimeSpan(Body):
    consume_time_stamp: int = 0
    delay_time: int = 0
    max_time_stamp: int = 0
    message_queue: MessageQueue = field(default_factory=MessageQueue)
    min_time_stamp: int = 0


class ConsumeTimeSpans(Body):
    consume_time_span_set: list[QueueTimeSpan] = field(default_factory=list)


# -- who fetches what, and how ----------------------------------------------------------------------


class AssignmentQuery(Body):
    client_id: str = ""
    consumer_group: str = ""
    message_model: MessageModel = MessageModel.CLUSTERING
    strategy_name: str = "AVG"
    topic: str = ""


class AssignedQueue(Body):
    attachments: dict[str, str] | None = None
    message_queue: MessageQueue = field(default_factory=MessageQueue)
    mode: Mode = Mode.PULL


class Assignment(Body):
    """None: keep what you have. Empty: drop all."""

    message_queue_assignments: list[AssignedQueue] | None = None


class RequestMode(Body):
    consumer_group: str = ""
    mode: Mode = Mode.PULL
    pop_share_queue_num: int = 0
    topic: str = ""


class RequestModes(Body):
    """`messageRequestMode.json` and the answer to code 402, by topic, then group."""

    message_request_mode_map: dict[str, dict[str, RequestMode]] = field(default_factory=dict)
