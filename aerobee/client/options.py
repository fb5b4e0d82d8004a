# SPDX-License-Identifier: Apache-2.0
"""Options of clients, a struct per role; `Options` is all of them in one, which every role takes. An option is
declared once, in the part that reads it. Where RocketMQ's present value differs from the default here, the
description names it; docs/compat.md says why each was chosen."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import msgspec

from aerobee.protocol.failure_text import MAX_LENGTH, USUAL_LENGTH
from aerobee.settings.declare import NOUNS, Declared, choice, fields, interval, setting
from aerobee.settings.parts import Parts

if TYPE_CHECKING:
    from aerobee.settings.declare import Field


class _Role(Parts):
    """Says who has an option that the role has not, or which was meant."""

    taken_by: str

    if not TYPE_CHECKING:  # to type checkers a class with a call of its own is made of anything, and is Any

        def __call__(cls, *args: Any, **given: Any) -> Any:
            for name in given:
                if name not in cls.__struct_fields__:
                    having = [role.__name__ for role in ROLES if name in role.__struct_fields__]
                    if having:
                        raise TypeError(
                            f"{name} is an option of {' and '.join(having)}; {cls.taken_by} has none"
                        )
                    close = difflib.get_close_matches(name, cls.__struct_fields__, 1)
                    hint = f"did you mean {close[0]}?" if close else f"help({cls.__name__}) lists them"
                    raise TypeError(f"{cls.__name__} has no option {name!r}; {hint}")
            return super().__call__(*args, **given)


class SessionOptions(Declared, metaclass=_Role, frozen=True, kw_only=True):
    """What every client has, and all that an Admin has: requests, routes, identity, account, TLS."""

    taken_by: ClassVar[str] = "a session"

    request_timeout_ms: Annotated[int, interval("wait for an ordinary answer", low=0)] = 3_000
    route_refresh_ms: Annotated[
        int, interval("how often routes are asked for", "pollNameServerInterval", low=0)
    ] = 30_000
    heartbeat_ms: Annotated[
        int, interval("how often brokers are told we live", "heartbeatBrokerInterval", low=0)
    ] = 30_000
    offset_timeout_ms: Annotated[int, interval("wait for an offset query or update", low=0)] = 5_000
    client_ip: Annotated[
        str, setting("first part of the client id; empty = the address towards the name server")
    ] = ""
    instance: Annotated[
        str, setting("second part of the client id; empty = pid#nanoseconds", "instanceName")
    ] = ""
    access_key: Annotated[str, setting("ACL account; empty = requests are not signed")] = ""
    secret_key: Annotated[str, setting("ACL secret", secret=True)] = ""
    security_token: Annotated[str, setting("ACL temporary token", secret=True)] = ""
    tls: Annotated[
        str, choice("on: talk TLS to name servers and brokers", "off", "on", official="tls.enable")
    ] = "off"
    tls_ca: Annotated[str, setting("certificate file that brokers must match; empty = not verified")] = ""
    tls_cert: Annotated[
        str, setting("certificate file shown to brokers that ask for one", "tls.client.certPath")
    ] = ""
    tls_key: Annotated[str, setting("its private key file", "tls.client.keyPath")] = ""

    def __post_init__(self) -> None:
        for each in fields(type(self)).values():
            value = getattr(self, each.name)
            if not each.allows(value):
                raise ValueError(f"{each.name} is {each.told(value)!r}; it must be {_wanted(each)}")
        if bool(self.access_key) != bool(self.secret_key):
            raise ValueError("access_key and secret_key belong together; one of them is empty")


class SendOptions(SessionOptions, frozen=True, kw_only=True):
    """Of whoever sends: a producer, and a push consumer, which sends back what failed and writes a trace."""

    send_timeout_ms: Annotated[int, interval("all tries of one send together", "sendMsgTimeout", low=0)] = (
        3_000
    )
    send_retries: Annotated[
        int,
        setting(
            "further tries after a refusal, on other brokers; one that is away is waited for; 0: one try in all",
            "retryTimesWhenSendFailed",
            low=0,
            high=100,
        ),
    ] = 2
    retry_unless_ok: Annotated[
        bool,
        setting("retry also when stored but not flushed or replicated", "retryAnotherBrokerWhenNotStoreOK"),
    ] = False
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
    stop_wait_ms: Annotated[int, interval("how long a stop waits for running handlers and sends", low=0)] = (
        10_000
    )


class QueueOptions(SessionOptions, frozen=True, kw_only=True):
    """Of consumers that own queues: how much they hold, how queues are divided, how often progress is reported."""

    queue_messages: Annotated[
        int,
        setting(
            "unfinished messages of a queue that stop fetching", "pullThresholdForQueue", low=1, high=65_535
        ),
    ] = 1_000
    queue_mebibytes: Annotated[
        int, setting("their size in MiB", "pullThresholdSizeForQueue", unit="MiB", low=1, high=1_024)
    ] = 100
    topic_messages: Annotated[
        int, setting("the same per topic, spread over its queues; -1 = off", "pullThresholdForTopic")
    ] = -1
    topic_mebibytes: Annotated[int, setting("the same in MiB", "pullThresholdSizeForTopic", unit="MiB")] = -1
    span: Annotated[
        int,
        setting(
            "distance of first and last unfinished offset that stops fetching",
            "consumeConcurrentlyMaxSpan",
            low=1,
            high=65_535,
        ),
    ] = 2_000
    flow_control_ms: Annotated[int, interval("pause when one of these limits is passed", low=0)] = 50
    broker_flow_control_ms: Annotated[
        int, interval("pause after the broker answered FLOW_CONTROL", low=0)
    ] = 20
    strategy: Annotated[
        str, setting("AVG, AVG_BY_CIRCLE or CONSISTENT_HASH; other ones are passed as objects")
    ] = "AVG"
    rebalance_ms: Annotated[int, interval("how often queues are divided anew; RocketMQ 20000", low=0)] = (
        10_000
    )
    rebalance_min_ms: Annotated[int, interval("shortest time between two divisions", low=0)] = 1_000
    rebalance_soon_ms: Annotated[int, interval("the same while something did not work", low=0)] = 1_000
    persist_offsets_ms: Annotated[
        int, interval("how often offsets are reported", "persistConsumerOffsetInterval", low=0)
    ] = 5_000


class ProducerOptions(SendOptions, frozen=True, kw_only=True):
    """Of a Producer or TransactionProducer."""

    taken_by = "a producer"

    max_in_flight: Annotated[
        int, setting("sends under way before a further one waits", low=1, high=1_000_000)
    ] = 10_000
    max_in_flight_bytes: Annotated[
        int, setting("body bytes under way before a further send waits", unit="bytes")
    ] = 64 * 1024 * 1024
    merge_sends: Annotated[
        bool, setting("plain sends to one queue in one turn of the event loop leave as one batch")
    ] = True
    max_message_bytes: Annotated[
        int, setting("largest body, and largest batch", "maxMessageSize", unit="bytes")
    ] = 4 * 1024 * 1024
    compress_over_bytes: Annotated[
        int, setting("bodies from this size on are compressed", "compressMsgBodyOverHowmuch", unit="bytes")
    ] = 4_096
    compression: Annotated[
        str, choice("what bodies are compressed with", "zlib", "lz4", "zstd", "none", official="compressType")
    ] = "zlib"
    compression_level: Annotated[int, setting("zlib level", "compressLevel", low=0, high=9)] = 5


class PushOptions(SendOptions, QueueOptions, frozen=True, kw_only=True):
    """Of a PushConsumer."""

    taken_by = "a push consumer"

    # fetching
    pull_batch: Annotated[int, setting("messages asked for at once", "pullBatchSize", low=1, high=16_384)] = (
        32
    )
    pull_backlog_batch: Annotated[
        int,
        setting(
            "the same while more than that wait in the queue; RocketMQ's brokers give 32", low=1, high=16_384
        ),
    ] = 256
    pull_batch_bytes: Annotated[
        int, setting("bytes asked for at once", "pullBatchSizeInBytes", unit="bytes")
    ] = 262_144
    pull_interval_ms: Annotated[
        int, setting("pause after an answer with messages", "pullInterval", unit="ms", low=0, high=65_535)
    ] = 0
    pull_hold_ms: Annotated[int, interval("how long the broker may hold an empty pull", low=0)] = 15_000
    pull_timeout_ms: Annotated[int, interval("wait for the answer of a held pull", low=0)] = 30_000
    exception_ms: Annotated[
        int,
        interval(
            "pause after a failed pull; RocketMQ 1000 (field default 3000)",
            "pullTimeDelayMillsWhenException",
            low=0,
        ),
    ] = 3_000
    suspended_ms: Annotated[int, interval("pause while the consumer is suspended", low=0)] = 1_000
    offset_repair_ms: Annotated[
        int, interval("wait before an illegal offset is repaired; RocketMQ since 5.1: 0", low=0)
    ] = 10_000
    post_subscription: Annotated[
        bool, setting("send the filter with every pull", "postSubscriptionWhenPull")
    ] = False

    # consuming
    concurrency: Annotated[
        int, setting("handlers running at once, tasks or threads", "consumeThreadMax", low=1, high=1_000)
    ] = 20
    consume_batch: Annotated[
        int, setting("messages per call of a batch handler", "consumeMessageBatchMaxSize", low=1, high=1_024)
    ] = 1
    max_reconsume: Annotated[
        int, setting("retries before the dead letters; -1 = 16, ordered: no limit", "maxReconsumeTimes")
    ] = -1
    send_back_timeout_ms: Annotated[
        int, interval("wait for a send-back, and pause before a local retry when it failed", low=0)
    ] = 5_000
    consume_timeout_ms: Annotated[
        int, interval("a handler running longer has its message sent back", "consumeTimeout", low=0)
    ] = 15 * 60_000
    failure_text_length: Annotated[
        int,
        setting(
            "characters of a handler's error that go back with its message and stand beside the dead letter; 0 = none",
            low=0,
            high=MAX_LENGTH,
        ),
    ] = USUAL_LENGTH
    suspend_queue_ms: Annotated[
        int, interval("rest of an ordered queue after a failure", "suspendCurrentQueueTimeMillis", low=0)
    ] = 1_000
    ordered_auto_commit: Annotated[
        bool, setting("ordered: success commits; off = COMMIT and ROLLBACK decide", "autoCommit")
    ] = True
    ordered_slice_ms: Annotated[
        int, interval("an ordered queue yields its worker after this long", low=0)
    ] = 60_000

    # rebalance, locks, offsets
    rebalance: Annotated[
        str,
        choice(
            "who divides the queues; auto: POP where the broker says so, else divided here",
            "auto",
            "client",
            "broker",
        ),
    ] = "auto"
    dispatch_ms: Annotated[
        int, interval("pause before a new queue is first pulled; RocketMQ since 5.0: 500", low=0)
    ] = 0
    idle_queue_ms: Annotated[int, interval("a queue not pulled this long is taken anew", low=0)] = 120_000
    lock_renew_ms: Annotated[int, interval("how often ordered queues are locked again", low=0)] = 20_000
    lock_life_ms: Annotated[int, interval("age at which a lock counts as lost", low=0)] = 30_000
    lock_timeout_ms: Annotated[int, interval("wait for a lock request", low=0)] = 1_000
    unlock_wait_ms: Annotated[
        int, interval("wait for a running ordered handler before unlocking; RocketMQ since 5.1: 500", low=0)
    ] = 1_000
    forced_unlock_ms: Annotated[
        int, interval("a lost queue whose handler still runs is unlocked after this long", low=0)
    ] = 20_000
    local_offsets: Annotated[
        str,
        setting(
            "directory of broadcast offsets; empty = ~/.rocketmq_offsets",
            "rocketmq.client.localOffsetStoreDir",
        ),
    ] = ""

    # POP
    pop_batch: Annotated[int, setting("messages asked for at once", "popBatchNums", low=1, high=32)] = 32
    pop_invisible_ms: Annotated[
        int,
        setting(
            "time to finish a popped message",
            "popInvisibleTime",
            unit="ms",
            low=5_000,
            high=300_000,
        ),
    ] = 60_000
    pop_hold_ms: Annotated[int, interval("how long the broker may hold an empty pop", low=0)] = 15_000
    pop_unacked: Annotated[
        int, setting("un-acked messages of a queue that stop popping", "popThresholdForQueue")
    ] = 96


class PullOptions(QueueOptions, frozen=True, kw_only=True):
    """Of a PullConsumer or ScheduledPull."""

    taken_by = "a pull consumer"

    poll_timeout_ms: Annotated[int, interval("default wait of poll()", "pollTimeoutMillis", low=0)] = 5_000
    auto_commit_ms: Annotated[
        int, interval("how often poll() commits; 0 = only commit() does", "autoCommitIntervalMillis", low=0)
    ] = 5_000
    poll_batch: Annotated[int, setting("messages asked for at once", "pullBatchSize", low=1, high=16_384)] = (
        32
    )
    poll_messages: Annotated[
        int, setting("fetched and not yet polled, all queues; stops fetching", "pullThresholdForAll")
    ] = 10_000
    poll_hold_ms: Annotated[
        int, interval("how long the broker may hold an empty pull", "brokerSuspendMaxTimeMillis", low=0)
    ] = 20_000


class SimpleOptions(SessionOptions, frozen=True, kw_only=True):
    """Of a SimpleConsumer, whose `receive` is told everything else with each call."""

    taken_by = "a simple consumer"


class Options(ProducerOptions, PushOptions, PullOptions, SimpleOptions, frozen=True, kw_only=True):
    """Of every role: for programs that share them, and those that do not care."""

    taken_by = "a client"


ROLES = (ProducerOptions, PushOptions, PullOptions, SimpleOptions)


def whole(options: SessionOptions | None) -> Options:
    """All options, of which those of a role say some; the others have their defaults."""
    if options is None or isinstance(options, Options):
        return options or Options()
    return Options(**msgspec.structs.asdict(options))


def _wanted(option: Field) -> str:
    if option.about.words:
        return f"one of {', '.join(option.about.words)}"
    return ", ".join(filter(None, (NOUNS[option.kind], option.range)))
