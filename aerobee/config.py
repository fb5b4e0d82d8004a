# SPDX-License-Identifier: Apache-2.0
"""Settings: one frozen struct per process, each field with its default, unit and one sentence.

TOML files, RocketMQ's own `broker.conf` property files, environment and command-line flags all end here; unknown
keys are refused. `alias` is RocketMQ's name for the same setting where it is not simply the camel-case form.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

Meta = msgspec.Meta


def doc(text: str, alias: str | None = None) -> msgspec.Meta:
    return Meta(description=text, extra_json_schema={"alias": alias} if alias else None)


class StoreConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    flush: Annotated[
        str, doc("'async' survives a kill of the process, 'sync' power loss too", "flushDiskType")
    ] = "async"
    flush_interval_ms: Annotated[
        int, doc("async: at most this long between syncs of the log", "flushIntervalCommitLog")
    ] = 500
    commit_log_segment_bytes: Annotated[
        int, doc("size of one commit-log file", "mappedFileSizeCommitLog")
    ] = 1 << 30
    consume_queue_units: Annotated[int, doc("units of 20 bytes in one consume-queue file")] = 300_000
    index_slots: Annotated[int, doc("hash slots of one index file", "maxHashSlotNum")] = 5_000_000
    index_entries: Annotated[int, doc("entries of one index file", "maxIndexNum")] = 20_000_000
    record_check: Annotated[bool, doc("write a CRC over the whole record", "enabledAppendPropCRC")] = True
    open_files: Annotated[int, doc("consume-queue files kept open; the least recently used is closed")] = 512
    retention_hours: Annotated[
        float, doc("age at which commit-log files are deleted", "fileReservedTime")
    ] = 72
    retention_bytes: Annotated[int, doc("total size at which the oldest are deleted, 0 = no limit")] = 0
    disk_clean_ratio: Annotated[float, doc("disk use at which old files go whatever their age")] = 0.85
    disk_full_ratio: Annotated[float, doc("disk use at which sends are refused")] = 0.90
    min_free_bytes: Annotated[int, doc("free bytes below which sends are refused; 0 = by ratio only")] = 0
    max_message_bytes: Annotated[int, doc("largest body", "maxMessageSize")] = 4 * 1024 * 1024
    timer_max_delay_ms: Annotated[int, doc("furthest delivery time ahead")] = 40 * 24 * 3600 * 1000
    delay_levels: Annotated[str, doc("delays of levels 1, 2, ...", "messageDelayLevel")] = (
        "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
    )


class NamesrvConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    host: Annotated[str, doc("address to listen on")] = "127.0.0.1"
    port: Annotated[int, doc("port, 0 = any free one", "listenPort")] = 9876
    broker_expiry_ms: Annotated[int, doc("a broker silent this long is dropped")] = 120_000
    scan_interval_ms: Annotated[int, doc("how often silent brokers are looked for")] = 5_000


class BrokerConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    cluster: Annotated[str, doc("cluster name", "brokerClusterName")] = "DefaultCluster"
    name: Annotated[str, doc("broker name", "brokerName")] = "broker-a"
    broker_id: Annotated[int, doc("0 = master", "brokerId")] = 0
    host: Annotated[str, doc("address to listen on")] = "127.0.0.1"
    advertise: Annotated[str, doc("address that routes tell clients; empty = host", "brokerIP1")] = ""
    port: Annotated[int, doc("remoting port, 0 = any free one, -1 = off", "listenPort")] = 10911
    vip_port: Annotated[int, doc("second port for 4.4 and older Java clients; -1 = off")] = -1
    grpc_port: Annotated[int, doc("gRPC port, 0 = any free one, -1 = off")] = 8081
    namesrv: Annotated[str, doc("name servers to register with, ';' between them", "namesrvAddr")] = ""
    region: Annotated[str, doc("region id stamped on messages", "regionId")] = "DefaultRegion"
    perm: Annotated[int, doc("broker permission: 2 write, 4 read", "brokerPermission")] = 6
    tls_cert: Annotated[str, doc("certificate file; with tls_key turns TLS on, on the same port")] = ""
    tls_key: Annotated[str, doc("private key file")] = ""
    tls_required: Annotated[bool, doc("refuse plain connections")] = False
    auto_create_topics: Annotated[bool, doc("create unknown topics on send", "autoCreateTopicEnable")] = True
    auto_create_groups: Annotated[
        bool, doc("create unknown groups on use", "autoCreateSubscriptionGroup")
    ] = True
    default_queues: Annotated[int, doc("queues of the template topic TBW102", "defaultTopicQueueNums")] = 8
    property_filter: Annotated[bool, doc("allow SQL92 filters", "enablePropertyFilter")] = True
    long_polling: Annotated[
        bool, doc("hold empty pulls until data or their deadline", "longPollingEnable")
    ] = True
    short_polling_ms: Annotated[int, doc("hold time without long polling", "shortPollingTimeMills")] = 1_000
    hold_check_ms: Annotated[int, doc("safety check of held pulls")] = 5_000
    max_held_pulls: Annotated[int, doc("held pulls in all; more are answered at once")] = 200_000
    max_pull_messages: Annotated[int, doc("messages in one pull answer when the client asks for bulk")] = (
        16_384
    )
    max_pull_bytes: Annotated[int, doc("bytes in one pull answer when the client asks for bulk")] = (
        4 * 1024 * 1024
    )
    pull_bytes: Annotated[
        int, doc("bytes in one ordinary pull answer", "maxTransferBytesOnMessageInMemory")
    ] = 262_144
    offset_flush_ms: Annotated[int, doc("how often offsets are written", "flushConsumerOffsetInterval")] = (
        5_000
    )
    register_ms: Annotated[int, doc("how often the broker registers", "registerNameServerPeriod")] = 30_000
    channel_expiry_ms: Annotated[
        int, doc("a client silent this long is dropped", "channelExpiredTimeout")
    ] = 120_000
    lock_expiry_ms: Annotated[int, doc("life of a queue lock of an ordered consumer")] = 60_000
    max_connections: Annotated[int, doc("accepted connections, remoting")] = 100_000
    max_frame_bytes: Annotated[int, doc("largest frame")] = 16 * 1024 * 1024
    max_pending_bytes: Annotated[int, doc("unread answer bytes after which a slow reader is cut off")] = (
        32 * 1024 * 1024
    )
    idle_close_ms: Annotated[int, doc("a connection without traffic this long is closed")] = 120_000
    transaction_timeout_ms: Annotated[
        int, doc("age of a half message at its first check", "transactionTimeOut")
    ] = 6_000
    transaction_check_max: Annotated[
        int, doc("checks before a half message is given up", "transactionCheckMax")
    ] = 15
    transaction_check_ms: Annotated[
        int, doc("how often half messages are checked", "transactionCheckInterval")
    ] = 30_000
    pop_polling_per_key: Annotated[int, doc("held pops of one topic, group, queue", "popPollingSize")] = 1_024
    pop_polling_total: Annotated[int, doc("held pops in all", "maxPopPollingSize")] = 100_000
    pop_retry_percent: Annotated[
        int, doc("pops that look at the retry topic first", "popFromRetryProbability")
    ] = 20
    pop_checkpoint_memory_ms: Annotated[int, doc("a checkpoint open longer goes to the revive log")] = 3_000
    pop_checkpoint_cap: Annotated[
        int, doc("checkpoints held in memory before the oldest go to the revive log", "popCkMaxBufferSize")
    ] = 200_000
    pop_retry_v2: Annotated[bool, doc("retry topics %RETRY%group+topic", "enableRetryTopicV2")] = False
    revive_queues: Annotated[int, doc("queues of the revive log", "reviveQueueNum")] = 8
    revive_interval_ms: Annotated[int, doc("how often due checkpoints are looked for", "reviveInterval")] = (
        200
    )
    server_balances: Annotated[
        bool,
        doc("divide queues among a group's members; off = everybody gets all", "serverLoadBalancerEnable"),
    ] = True
    server_side_reset: Annotated[
        bool, doc("reset offsets on the broker, not by the clients", "useServerSideResetOffset")
    ] = True
    recall: Annotated[bool, doc("allow recall of delayed messages", "recallMessageEnable")] = True
