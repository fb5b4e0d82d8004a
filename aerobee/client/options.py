# SPDX-License-Identifier: Apache-2.0
"""Settings of producers and consumers. Where RocketMQ's present value differs from the default here, the
description names it; docs/compat.md says why each was chosen."""

from __future__ import annotations

from typing import Annotated

import msgspec

from aerobee.settings.declare import setting


class Options(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    # -- session -------------------------------------------------------------------------------------------
    request_timeout_ms: Annotated[int, setting("wait for an ordinary answer")] = 3_000
    route_refresh_ms: Annotated[int, setting("how often routes are asked for", "pollNameServerInterval")] = (
        30_000
    )
    heartbeat_ms: Annotated[int, setting("how often brokers are told we live", "heartbeatBrokerInterval")] = (
        30_000
    )
    client_ip: Annotated[
        str, setting("first part of the client id; empty = the address towards the name server")
    ] = ""
    instance: Annotated[
        str, setting("second part of the client id; empty = pid#nanoseconds", "instanceName")
    ] = ""
    access_key: Annotated[str, setting("ACL account; empty = requests are not signed")] = ""
    secret_key: Annotated[str, setting("ACL secret")] = ""
    security_token: Annotated[str, setting("ACL temporary token")] = ""
    tls: Annotated[str, setting("'on': talk TLS to name servers and brokers", "tls.enable")] = "off"
    tls_ca: Annotated[str, setting("certificate file that brokers must match; empty = not verified")] = ""
    stop_wait_ms: Annotated[int, setting("how long a stop waits for running handlers and sends")] = 10_000

    # -- producer ------------------------------------------------------------------------------------------
    send_timeout_ms: Annotated[int, setting("all tries of one send together", "sendMsgTimeout")] = 3_000
    send_retries: Annotated[int, setting("further tries, on other brokers", "retryTimesWhenSendFailed")] = 2
    retry_unless_ok: Annotated[
        bool,
        setting("retry also when stored but not flushed or replicated", "retryAnotherBrokerWhenNotStoreOK"),
    ] = False
    max_in_flight: Annotated[int, setting("sends under way before a further one waits")] = 10_000
    max_in_flight_bytes: Annotated[int, setting("body bytes under way before a further send waits")] = (
        64 * 1024 * 1024
    )
    max_message_bytes: Annotated[int, setting("largest body, and largest batch", "maxMessageSize")] = (
        4 * 1024 * 1024
    )
    compress_over_bytes: Annotated[
        int, setting("bodies from this size on are compressed", "compressMsgBodyOverHowmuch")
    ] = 4_096
    compression: Annotated[str, setting("'zlib', 'lz4', 'zstd' or 'none'", "compressType")] = "zlib"
    compression_level: Annotated[int, setting("zlib level", "compressLevel")] = 5
    template_topic: Annotated[
        str, setting("topic whose settings an unknown topic gets", "createTopicKey")
    ] = "TBW102"
    new_topic_queues: Annotated[
        int, setting("queues of a topic created by a send", "defaultTopicQueueNums")
    ] = 4
    avoid_slow_brokers: Annotated[
        bool, setting("keep away from brokers that were slow or failed", "sendLatencyFaultEnable")
    ] = False
    trace: Annotated[bool, setting("write RocketMQ trace messages", "enableMsgTrace")] = False
    trace_topic: Annotated[str, setting("where trace messages go", "traceTopic")] = "RMQ_SYS_TRACE_TOPIC"

    # -- consumers: fetching -------------------------------------------------------------------------------
    pull_batch: Annotated[int, setting("messages asked for at once", "pullBatchSize")] = 32
    pull_batch_bytes: Annotated[int, setting("bytes asked for at once", "pullBatchSizeInBytes")] = 262_144
    pull_interval_ms: Annotated[int, setting("pause after an answer with messages", "pullInterval")] = 0
    pull_hold_ms: Annotated[int, setting("how long the broker may hold an empty pull")] = 15_000
    pull_timeout_ms: Annotated[int, setting("wait for the answer of a held pull")] = 30_000
    queue_messages: Annotated[
        int, setting("unfinished messages of a queue that stop fetching", "pullThresholdForQueue")
    ] = 1_000
    queue_mebibytes: Annotated[int, setting("their size in MiB", "pullThresholdSizeForQueue")] = 100
    topic_messages: Annotated[
        int, setting("the same per topic, spread over its queues; -1 = off", "pullThresholdForTopic")
    ] = -1
    topic_mebibytes: Annotated[int, setting("the same in MiB", "pullThresholdSizeForTopic")] = -1
    span: Annotated[
        int,
        setting(
            "distance of first and last unfinished offset that stops fetching", "consumeConcurrentlyMaxSpan"
        ),
    ] = 2_000
    flow_control_ms: Annotated[int, setting("pause when one of these limits is passed")] = 50
    exception_ms: Annotated[
        int,
        setting(
            "pause after a failed pull; RocketMQ 1000 (field default 3000)", "pullTimeDelayMillsWhenException"
        ),
    ] = 3_000
    suspended_ms: Annotated[int, setting("pause while the consumer is suspended")] = 1_000
    broker_flow_control_ms: Annotated[int, setting("pause after the broker answered FLOW_CONTROL")] = 20
    offset_repair_ms: Annotated[
        int, setting("wait before an illegal offset is repaired; RocketMQ since 5.1: 0")
    ] = 10_000
    post_subscription: Annotated[
        bool, setting("send the filter with every pull", "postSubscriptionWhenPull")
    ] = False

    # -- consumers: consuming ------------------------------------------------------------------------------
    concurrency: Annotated[int, setting("handlers running at once, tasks or threads", "consumeThreadMax")] = (
        20
    )
    consume_batch: Annotated[
        int, setting("messages per call of a batch handler", "consumeMessageBatchMaxSize")
    ] = 1
    max_reconsume: Annotated[
        int, setting("retries before the dead letters; -1 = 16, ordered: no limit", "maxReconsumeTimes")
    ] = -1
    send_back_timeout_ms: Annotated[
        int, setting("wait for a send-back, and pause before a local retry when it failed")
    ] = 5_000
    consume_timeout_ms: Annotated[
        int, setting("a handler running longer has its message sent back", "consumeTimeout")
    ] = 15 * 60_000
    suspend_queue_ms: Annotated[
        int, setting("rest of an ordered queue after a failure", "suspendCurrentQueueTimeMillis")
    ] = 1_000
    ordered_auto_commit: Annotated[
        bool, setting("ordered: success commits; off = COMMIT and ROLLBACK decide", "autoCommit")
    ] = True
    ordered_slice_ms: Annotated[int, setting("an ordered queue yields its worker after this long")] = 60_000

    # -- consumers: rebalance, locks, offsets --------------------------------------------------------------
    rebalance: Annotated[
        str, setting("'auto': POP where the broker says so, else divided here; 'client'; 'broker'")
    ] = "auto"
    strategy: Annotated[
        str, setting("AVG, AVG_BY_CIRCLE or CONSISTENT_HASH; other ones are passed as objects")
    ] = "AVG"
    rebalance_ms: Annotated[int, setting("how often queues are divided anew; RocketMQ 20000")] = 10_000
    rebalance_min_ms: Annotated[int, setting("shortest time between two divisions")] = 1_000
    rebalance_soon_ms: Annotated[int, setting("the same while something did not work")] = 1_000
    dispatch_ms: Annotated[
        int, setting("pause before a new queue is first pulled; RocketMQ since 5.0: 500")
    ] = 0
    idle_queue_ms: Annotated[int, setting("a queue not pulled this long is taken anew")] = 120_000
    lock_renew_ms: Annotated[int, setting("how often ordered queues are locked again")] = 20_000
    lock_life_ms: Annotated[int, setting("age at which a lock counts as lost")] = 30_000
    lock_timeout_ms: Annotated[int, setting("wait for a lock request")] = 1_000
    unlock_wait_ms: Annotated[
        int, setting("wait for a running ordered handler before unlocking; RocketMQ since 5.1: 500")
    ] = 1_000
    forced_unlock_ms: Annotated[
        int, setting("a lost queue whose handler still runs is unlocked after this long")
    ] = 20_000
    persist_offsets_ms: Annotated[
        int, setting("how often offsets are reported", "persistConsumerOffsetInterval")
    ] = 5_000
    offset_timeout_ms: Annotated[int, setting("wait for an offset query or update")] = 5_000
    local_offsets: Annotated[
        str,
        setting(
            "directory of broadcast offsets; empty = ~/.rocketmq_offsets",
            "rocketmq.client.localOffsetStoreDir",
        ),
    ] = ""

    # -- consumers: POP ------------------------------------------------------------------------------------
    pop_batch: Annotated[int, setting("messages asked for at once, at most 32", "popBatchNums")] = 32
    pop_invisible_ms: Annotated[
        int,
        setting("time to finish a popped message, 5000 to 300000", "popInvisibleTime"),
    ] = 60_000
    pop_hold_ms: Annotated[int, setting("how long the broker may hold an empty pop")] = 15_000
    pop_unacked: Annotated[
        int, setting("un-acked messages of a queue that stop popping", "popThresholdForQueue")
    ] = 96

    # -- pull consumer -------------------------------------------------------------------------------------
    poll_timeout_ms: Annotated[int, setting("default wait of poll()", "pollTimeoutMillis")] = 5_000
    auto_commit_ms: Annotated[
        int, setting("how often poll() commits; 0 = only commit() does", "autoCommitIntervalMillis")
    ] = 5_000
    poll_batch: Annotated[int, setting("messages asked for at once", "pullBatchSize")] = 32
    poll_messages: Annotated[
        int, setting("fetched and not yet polled, all queues; stops fetching", "pullThresholdForAll")
    ] = 10_000
    poll_hold_ms: Annotated[
        int, setting("how long the broker may hold an empty pull", "brokerSuspendMaxTimeMillis")
    ] = 20_000

    def __post_init__(self) -> None:
        for name, low, high in _RANGES:
            value = getattr(self, name)
            if not low <= value <= high:
                raise ValueError(f"{name} is {value}; it must be {low} to {high}")
        for name, allowed in _CHOICES:
            if getattr(self, name) not in allowed:
                raise ValueError(f"{name} is {getattr(self, name)!r}; it must be one of {', '.join(allowed)}")
        if bool(self.access_key) != bool(self.secret_key):
            raise ValueError("access_key and secret_key belong together; one of them is empty")


_RANGES = (
    ("pull_batch", 1, 16_384),
    ("poll_batch", 1, 16_384),
    ("pull_interval_ms", 0, 65_535),
    ("queue_messages", 1, 65_535),
    ("queue_mebibytes", 1, 1_024),
    ("span", 1, 65_535),
    ("concurrency", 1, 1_000),
    ("consume_batch", 1, 1_024),
    ("pop_batch", 1, 32),
    ("pop_invisible_ms", 5_000, 300_000),
    ("compression_level", 0, 9),
    ("send_retries", 0, 100),
    ("max_in_flight", 1, 1_000_000),
)
_CHOICES = (
    ("compression", ("zlib", "lz4", "zstd", "none")),
    ("rebalance", ("auto", "client", "broker")),
    ("tls", ("off", "on")),
)
