# SPDX-License-Identifier: Apache-2.0
"""Settings of the broker: who it is, where it listens, how it serves pulls, pops and transactions."""

from __future__ import annotations

from typing import Annotated, TypeVar

import msgspec

from aerobee.settings.declare import (
    CENTURY_MS,
    MEGABYTE,
    NO_LIMIT,
    Setting,
    interval,
    port_number,
    setting,
    size,
)
from aerobee.settings.watching import Watching

T = TypeVar("T")
_FIRST_USER = '{"username":"u","password":"p"}'
_OWN_ACCOUNT = '{"accessKey":"u","secretKey":"p"}'
VIP_BELOW = -2  # the default of vip_port: that much below the broker's port


def _count(text: str, official: str = "", *, low: int = 1, live: bool = False) -> Setting:
    return setting(text, official, low=low, high=10_000_000, live=live)


def _switch(text: str, official: str) -> Setting:
    return setting(text, official, live=True)


class BrokerConfig(Watching, frozen=True, kw_only=True):
    cluster: Annotated[str, setting("cluster name", "brokerClusterName")] = "DefaultCluster"
    name: Annotated[str, setting("broker name", "brokerName")] = "broker-a"
    broker_id: Annotated[int, setting("0 = master", "brokerId", low=0, high=NO_LIMIT)] = 0
    host: Annotated[str, setting("address to listen on", "bindAddress")] = "127.0.0.1"
    advertise: Annotated[str, setting("address that routes tell clients; empty = host", "brokerIP1")] = ""
    port: Annotated[int, port_number("remoting port, 0 = any free one, -1 = off", "listenPort")] = 10911
    vip_port: Annotated[
        int,
        port_number(
            "second port, for the official dashboard and old Java clients; 0 = any free one, -1 = off,"
            " -2 = two below the broker's where that is given",
            low=VIP_BELOW,
        ),
    ] = VIP_BELOW
    grpc_port: Annotated[int, port_number("gRPC port, 0 = any free one, -1 = off")] = 8081
    namesrv: Annotated[str, setting("name servers to register with, ';' between them", "namesrvAddr")] = ""
    region: Annotated[str, setting("region id stamped on messages", "regionId", live=True)] = "DefaultRegion"
    perm: Annotated[
        int,
        setting("broker permission: 2 write, 4 read, 6 both", "brokerPermission", low=0, high=7, live=True),
    ] = 6
    tls_cert: Annotated[
        str,
        setting("certificate file; with tls_key turns TLS on, on the same port", "tls.server.certPath"),
    ] = ""
    tls_key: Annotated[str, setting("private key file", "tls.server.keyPath")] = ""
    tls_required: Annotated[
        bool,
        setting(
            "refuse plain connections, on every port",
            "tls.server.mode",
            words={"enforcing": True, "permissive": False},
        ),
    ] = False
    tls_client_auth: Annotated[
        str,
        setting(
            "certificates of clients: none, optional or required; those shown are verified by tls_client_ca",
            "tls.server.need.client.auth",
            words={"none": "none", "optional": "optional", "require": "required"},
        ),
    ] = "none"
    tls_client_ca: Annotated[
        str, setting("certificate file that clients must match", "tls.server.trustCertPath")
    ] = ""
    namesrv_tls: Annotated[bool, setting("talk TLS to name servers and other brokers")] = False
    namesrv_tls_ca: Annotated[
        str, setting("certificate file that name servers must match; empty = not verified")
    ] = ""
    namesrv_tls_cert: Annotated[str, setting("certificate file shown to name servers that ask for one")] = ""
    namesrv_tls_key: Annotated[str, setting("its private key file")] = ""
    authentication: Annotated[
        bool,
        setting(
            "requests must be signed by a user, on every port and on the name server of this process",
            "authenticationEnabled",
        ),
    ] = False
    authorization: Annotated[
        bool, setting("users may do what their policies say; needs authentication", "authorizationEnabled")
    ] = False
    init_user: Annotated[
        str,
        setting(
            'first super user, made where there is none of the name: {"username":"u","password":"p"}',
            "initAuthenticationUser",
            secret=True,
        ),
    ] = ""
    inner_credentials: Annotated[
        str,
        setting(
            "who this broker is to name servers and other brokers; made a super user here:"
            ' {"accessKey":"u","secretKey":"p"}',
            "innerClientAuthenticationCredentials",
            secret=True,
        ),
    ] = ""
    authentication_whitelist: Annotated[
        str,
        setting("codes and gRPC requests that need no signature: `105,apache.rocketmq.v2.QueryRouteRequest`"),
    ] = ""
    authorization_whitelist: Annotated[str, setting("the same for rights")] = ""
    authentication_metadata_provider: Annotated[
        str, setting("any name: users may be made before authentication is turned on")
    ] = ""
    acl: Annotated[
        bool,
        setting("accounts and rights of RocketMQ 4's plain_acl.yml, read again when it changes", "aclEnable"),
    ] = False
    acl_file: Annotated[
        str,
        setting("that file; further ones are in `acl` beside it; empty = conf/plain_acl.yml under the data"),
    ] = ""
    migrate_acl: Annotated[
        bool, setting("make users of the accounts of that file at a start", "migrateAuthFromV1Enabled")
    ] = False
    audit_log: Annotated[
        str,
        setting(
            "file of JSON lines: who changed what from where, and what was refused; its directory is made; needs access"
            " control"
        ),
    ] = ""
    audit_log_bytes: Annotated[int, size("size at which an audit log is full", low=4096)] = 64 * MEGABYTE
    audit_logs: Annotated[
        int, setting("full audit logs that are kept: FILE.1 is the newest", low=1, high=10_000)
    ] = 10
    hide_passwords: Annotated[
        bool,
        setting(
            "users' passwords are told to nobody, super users included; mqadmin's copyUser and the"
            " dashboard's login need them"
        ),
    ] = False
    auto_create_topics: Annotated[bool, _switch("create unknown topics on send", "autoCreateTopicEnable")] = (
        True
    )
    auto_create_groups: Annotated[
        bool, _switch("create unknown groups on use", "autoCreateSubscriptionGroup")
    ] = True
    mixed_topics: Annotated[bool, _switch("allow topics of message type MIXED", "enableMixedMessageType")] = (
        False
    )
    default_queues: Annotated[
        int,
        setting(
            "queues of a topic that `aerobee topics create` or the console makes without a number; the most of one that "
            "a send makes (the template topic TBW102 has so many; clients ask for 4)",
            "defaultTopicQueueNums",
            low=1,
            high=1_024,
            live=True,
        ),
    ] = 8
    property_filter: Annotated[bool, _switch("allow SQL92 filters", "enablePropertyFilter")] = True
    long_polling: Annotated[
        bool, _switch("hold empty pulls until data or their deadline", "longPollingEnable")
    ] = True
    short_polling_ms: Annotated[
        int, interval("hold time without long polling", "shortPollingTimeMills", live=True)
    ] = 1_000
    hold_check_ms: Annotated[int, interval("safety check of held pulls", live=True)] = 5_000
    max_held_pulls: Annotated[
        int, _count("held pulls in all; more are answered at once", low=0, live=True)
    ] = 200_000
    max_pull_messages: Annotated[
        int, _count("messages in one pull answer when the client asks for bulk", live=True)
    ] = 16_384
    max_pull_bytes: Annotated[
        int,
        size("bytes in one pull answer when the client asks for bulk", low=1, high=1 << 30, live=True),
    ] = 4 * MEGABYTE
    pull_messages: Annotated[
        int, _count("messages in one ordinary answer", "maxTransferCountOnMessageInMemory", live=True)
    ] = 32
    pull_bytes: Annotated[
        int,
        size(
            "bytes in one ordinary answer",
            "maxTransferBytesOnMessageInMemory",
            low=1,
            high=1 << 30,
            live=True,
        ),
    ] = 262_144
    cold_pull_messages: Annotated[
        int,
        _count(
            "messages in one answer that has to come from disk", "maxTransferCountOnMessageInDisk", live=True
        ),
    ] = 8
    cold_pull_bytes: Annotated[
        int,
        size(
            "bytes in one answer that has to come from disk",
            "maxTransferBytesOnMessageInDisk",
            low=1,
            high=1 << 30,
            live=True,
        ),
    ] = 65_536
    slave_read: Annotated[bool, _switch("send readers far behind to a slave", "slaveReadEnable")] = False
    offset_flush_ms: Annotated[
        int, interval("how often offsets are written", "flushConsumerOffsetInterval", live=True)
    ] = 5_000
    register_ms: Annotated[
        int, interval("how often the broker registers", "registerNameServerPeriod", live=True)
    ] = 30_000
    channel_expiry_ms: Annotated[
        int, interval("a client silent this long is dropped", "channelExpiredTimeout", live=True)
    ] = 120_000
    lock_expiry_ms: Annotated[int, interval("life of a queue lock of an ordered consumer", live=True)] = (
        60_000
    )
    max_connections: Annotated[int, _count("accepted connections of a port")] = 100_000
    max_frame_bytes: Annotated[int, size("largest frame", low=1024, high=1 << 30)] = 16 * MEGABYTE
    max_unfinished_bytes: Annotated[
        int,
        size("frames not yet whole, all connections together; the oldest are cut off first", low=1024),
    ] = 256 * MEGABYTE
    max_pending_bytes: Annotated[
        int, size("unread answer bytes after which a slow reader is cut off", low=1024)
    ] = 32 * MEGABYTE
    idle_close_ms: Annotated[
        int,
        setting(
            "a connection without traffic this long is closed",
            "serverChannelMaxIdleTimeSeconds",
            unit="ms",
            low=1,
            high=CENTURY_MS,
            factor=1_000,
        ),
    ] = 120_000
    transaction_timeout_ms: Annotated[
        int, interval("age of a half message at its first check", "transactionTimeOut", low=0, live=True)
    ] = 6_000
    transaction_check_max: Annotated[
        int,
        setting(
            "checks before a half message is given up: it goes to TRANS_CHECK_MAX_TIME_TOPIC",
            "transactionCheckMax",
            low=0,
            high=1_000_000,
            live=True,
        ),
    ] = 15
    transaction_check_ms: Annotated[
        int, interval("how often half messages are checked", "transactionCheckInterval", live=True)
    ] = 30_000
    pop_polling_per_key: Annotated[
        int, _count("held pops of one topic, group, queue", "popPollingSize", low=0, live=True)
    ] = 1_024
    pop_polling_total: Annotated[int, _count("held pops in all", "maxPopPollingSize", low=0, live=True)] = (
        100_000
    )
    pop_retry_percent: Annotated[
        int,
        setting(
            "pops that look at the retry topic first",
            "popFromRetryProbability",
            unit="%",
            low=0,
            high=100,
            live=True,
        ),
    ] = 20
    pop_checkpoint_memory_ms: Annotated[
        int, interval("a checkpoint open longer goes to the revive log", "popCkStayBufferTime")
    ] = 3_000
    pop_checkpoint_cap: Annotated[
        int,
        _count(
            "checkpoints held in memory before the oldest go to the revive log",
            "popCkMaxBufferSize",
            live=True,
        ),
    ] = 200_000
    pop_retry_v2: Annotated[bool, _switch("retry topics %RETRY%group+topic", "enableRetryTopicV2")] = False
    revive_queues: Annotated[
        int, setting("queues of the revive log", "reviveQueueNum", low=1, high=1_024)
    ] = 8
    revive_interval_ms: Annotated[
        int, interval("how often due checkpoints are looked for", "reviveInterval", live=True)
    ] = 200
    server_balances: Annotated[
        bool,
        _switch(
            "divide queues among a group's members; off = everybody gets all", "serverLoadBalancerEnable"
        ),
    ] = True
    server_side_reset: Annotated[
        bool, _switch("reset offsets on the broker, not by the clients", "useServerSideResetOffset")
    ] = True
    recall: Annotated[bool, _switch("allow recall of delayed messages", "recallMessageEnable")] = True
    grpc_auto_create_on_route: Annotated[
        bool,
        setting(
            "gRPC: with auto_create_topics, asking for the route of an unknown topic creates it", live=True
        ),
    ] = False
    grpc_min_invisible_ms: Annotated[
        int,
        interval("gRPC: least invisible time of a receive", low=0, live=True),
    ] = 10_000
    grpc_max_delay_ms: Annotated[
        int,
        interval(
            "gRPC: furthest delivery time ahead; 0 = the store's timer_max_delay_ms",
            low=0,
            live=True,
        ),
    ] = 24 * 3600 * 1000

    def check_together(self) -> None:
        super().check_together()
        if bool(self.tls_cert) != bool(self.tls_key):
            missing = "tls_key" if self.tls_cert else "tls_cert"
            raise ValueError(f"setting '{missing}' is empty: a certificate and its key go together")
        if self.tls_required and not self.tls_cert:
            raise ValueError(
                "setting 'tls_required' needs a certificate: give tls_cert and tls_key, or leave it out"
            )
        if self.tls_client_auth != "none" and not (self.tls_cert and self.tls_client_ca):
            raise ValueError(
                "setting 'tls_client_auth' needs tls_cert, tls_key and tls_client_ca: without them no certificate of a"
                " client can be verified"
            )
        if self.authorization and not self.authentication:
            raise ValueError(
                "setting 'authorization' needs 'authentication': rights of users that anybody can say to be are none"
            )
        if self.acl and self.authentication:
            raise ValueError(
                "settings 'acl' and 'authentication' are two kinds of access control: turn one on; 'migrate_acl' makes"
                " users of the accounts of plain_acl.yml"
            )
        if self.audit_log and not (self.acl or self.authentication):
            raise ValueError("setting 'audit_log' needs 'authentication' or 'acl': nobody is known without")
        first_user(self)
        own_account(self)


class _UserText(msgspec.Struct):
    username: str
    password: str


class _AccountText(msgspec.Struct, rename="camel"):
    access_key: str
    secret_key: str
    security_token: str = ""


def first_user(config: BrokerConfig) -> tuple[str, str]:
    """Name and password of the user to be there from the start; empty when there is none."""
    if not config.init_user:
        return "", ""
    given = _read("init_user", config.init_user, _UserText, _FIRST_USER)
    return given.username, given.password


def own_account(config: BrokerConfig) -> tuple[str, str, str]:
    """Access key, secret and token of the broker as a client of others; empty when it has none."""
    if not config.inner_credentials:
        return "", "", ""
    given = _read("inner_credentials", config.inner_credentials, _AccountText, _OWN_ACCOUNT)
    return given.access_key, given.secret_key, given.security_token


def _read(name: str, text: str, kind: type[T], example: str) -> T:
    try:
        given = msgspec.json.decode(text, type=kind)
    except (msgspec.DecodeError, UnicodeError):
        raise ValueError(f"setting '{name}' is not of the form {example}") from None
    if not all(value.strip() for value in msgspec.structs.astuple(given)[:2]):  # type: ignore[arg-type]
        raise ValueError(f"setting '{name}' has an empty name or secret: write {example}")
    return given
