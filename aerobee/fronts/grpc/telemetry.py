# SPDX-License-Identifier: Apache-2.0
"""Who is on the gRPC side: peers by client id, their settings, and the stream on which the broker speaks to them.

A peer is the broker's `Link` to a client: what the broker sends as a remoting command (a transaction check) leaves as a
telemetry command. Clients may call before their settings arrive, over several connections, and re-open a broken
stream at any time; a peer lives as long as it is heard from.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from aerobee.broker.operations.heartbeat import heartbeat
from aerobee.broker.operations.receive import max_attempts
from aerobee.errors import AccessDenied, InvalidParameter, NetworkError, NoPermission, ProtocolError
from aerobee.fronts.grpc import convert, limits
from aerobee.fronts.grpc.codes import Code
from aerobee.fronts.grpc.generated import messaging_pb2 as pb
from aerobee.fronts.grpc.produce import transaction_id
from aerobee.fronts.grpc.status import OK, Refused
from aerobee.protocol import message as records
from aerobee.protocol.addresses import format_address
from aerobee.protocol.bodies import (
    ConsumeFromWhere,
    ConsumerData,
    ConsumeType,
    Heartbeat,
    MessageModel,
    ProducerData,
    SubscriptionData,
)
from aerobee.protocol.codes import LANGUAGES, VERSION, RequestCode
from aerobee.protocol.delay import parse_levels
from aerobee.protocol.filters.tags import SQL92, TAG, subscribe
from aerobee.protocol.headers.transaction import CheckTransaction

if TYPE_CHECKING:
    from aerobee.broker.broker import Broker
    from aerobee.fronts.gates.call import Call
    from aerobee.protocol.command import Command

log = logging.getLogger("aerobee.grpc")

OUTBOX = 1_000  # commands waiting for a client's stream; more are dropped, and asked again by their sender
_LITE = (pb.LITE_PUSH_CONSUMER, pb.LITE_SIMPLE_CONSUMER)
Address = tuple[str, int]
_PRODUCER_BACKOFF = (10, 1_000, 2.0)  # first ms, longest ms, factor


class Peer:
    """One client id. `Link` of broker.state.clients."""

    def __init__(self, client_id: str, language: str, version: str, address: Address) -> None:
        self.client_id = client_id
        self.user: str | None = ""  # whose it is, where users are told apart
        self.address = address
        self.moved_to(address)
        self.attributes: dict[str, Any] = {
            "language": language if language in LANGUAGES else "OTHER",
            "version": VERSION,
            "client_version": version,
            "protocol": "grpc",
        }
        self.settings: Any = None
        self.group = ""
        self.last_seen = 0
        self.gone = False
        self._outbox: asyncio.Queue[Any] = asyncio.Queue(OUTBOX)
        self._streams = 0

    @property
    def request_timeout_ms(self) -> int:
        if self.settings is None or not self.settings.HasField("request_timeout"):
            return limits.REQUEST_TIMEOUT_MS
        return limits.milliseconds(self.settings.request_timeout)

    def moved_to(self, address: Address) -> None:
        """Where it is now: a client may come back over another connection."""
        self.address = address
        self.remote_text = format_address(*address)
        self.host = records.pack_host(*address)

    # -- the broker's way to the client --------------------------------------------------------------------

    @property
    def is_open(self) -> bool:
        return self._streams > 0 and not self.gone

    def send(self, command: Command) -> None:
        if command.code == RequestCode.CHECK_TRANSACTION_STATE:
            self.push(_recover(command))
        elif command.code == RequestCode.NOTIFY_CONSUMER_IDS_CHANGED:
            return  # the broker balances: nothing changes for these clients
        else:
            log.debug("client=%s has no telemetry command for code %d", self.client_id, command.code)

    def start_call(self, command: Command) -> asyncio.Future[Command]:
        raise NetworkError(
            f"client {self.client_id} speaks gRPC: request {command.code} has no counterpart there"
        )

    async def call(self, command: Command, timeout_ms: int = 3000) -> Command:
        return await self.start_call(command)

    def close(self) -> None:
        self.gone = True

    def push(self, telemetry: Any) -> None:
        try:
            self._outbox.put_nowait(telemetry)
        except asyncio.QueueFull:
            log.warning("client=%s does not read its telemetry: a command was dropped", self.client_id)

    # -- the stream ----------------------------------------------------------------------------------------

    def stream_opened(self) -> None:
        self._streams += 1

    def stream_closed(self) -> None:
        self._streams -= 1

    async def next_command(self) -> Any:
        """What is to be sent to the client next."""
        return await self._outbox.get()

    def waiting(self) -> list[Any]:
        """All that is to be sent, taken out at once."""
        return [self._outbox.get_nowait() for _ in range(self._outbox.qsize())]


def _recover(command: Command) -> Any:
    check = command.fields(CheckTransaction)
    half = records.decode(command.body)
    shown = convert.from_record(half, half.topic, None, 1)
    half.queue_offset, half.physical_offset = check.tran_state_table_offset, check.commit_log_offset
    recover = pb.RecoverOrphanedTransactionCommand(message=shown, transaction_id=transaction_id(half))
    return pb.TelemetryCommand(status=OK, recover_orphaned_transaction_command=recover)


class Peers:
    """All gRPC clients, by id."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._by_id: dict[str, Peer] = {}

    def __iter__(self) -> Any:
        return iter(list(self._by_id.values()))

    def of(self, call: Call) -> Peer:
        """The caller; CLIENT_ID_REQUIRED when it does not say who it is. A client id is its user's as long as it
        lives: what the broker tells one client is not told to another user who says to be it."""
        said, user, address = call.fields, call.user, call.remote
        client_id = said.get("x-mq-client-id", "")
        if not client_id:
            raise Refused(pb.CLIENT_ID_REQUIRED, "the metadata x-mq-client-id is missing")
        peer = self._by_id.get(client_id)
        if peer is None or peer.gone:
            language, version = said.get("x-mq-language", "OTHER"), said.get("x-mq-client-version", "")
            peer = self._by_id[client_id] = Peer(client_id, language, version, address)
            peer.user = peer.attributes["user"] = user
            log.info(
                "client=%s peer=%s language=%s version=%s came",
                client_id,
                peer.remote_text,
                language,
                version,
            )
        elif user != peer.user:
            raise AccessDenied(f"the client id {client_id[:200]} is in use by another user")
        elif address != peer.address:
            peer.moved_to(address)
        peer.last_seen = self._broker.clock.now()
        return peer

    def alive(self, client_id: str) -> bool:
        peer = self._by_id.get(client_id)
        return peer is not None and not peer.gone

    def settle(self, peer: Peer, settings: Any) -> Any:
        """Keep a client's settings and answer them, the broker's part filled in."""
        kind = settings.WhichOneof("pub_sub")
        if kind is None:
            raise Refused(pb.BAD_REQUEST, "settings hold neither publishing nor subscription")
        if settings.client_type in _LITE:
            # Let in, it would consume the topic its lite topics belong to as a whole.
            raise Refused(pb.UNSUPPORTED, f"{limits.NO_LITE_TOPICS}; use a push or simple consumer")
        answer = pb.Settings()
        answer.CopyFrom(settings)
        if kind == "publishing":
            for topic in settings.publishing.topics:
                limits.topic_name(topic)
            _publishing(answer, self._broker)
        else:
            group = limits.group_name(settings.subscription.group)
            _subscription(answer, self._broker, group)
            peer.group = group
        peer.settings = settings  # not before: heartbeats repeat what was taken
        answer.metric.on = False
        self.register(peer)
        return answer

    def register(self, peer: Peer) -> None:
        """As a remoting heartbeat would; without settings there is nothing to say yet."""
        if peer.settings is not None:
            heartbeat(peer, _beat(peer, self._broker.clock.now()), self._broker)

    def leave(self, peer: Peer) -> None:
        peer.gone = True
        self._by_id.pop(peer.client_id, None)
        self._broker.clients.closed(peer)

    def expire(self, now: int) -> list[Peer]:
        """Clients silent for longer than the broker lets a channel live."""
        silent = [p for p in self if now - p.last_seen > self._broker.config.channel_expiry_ms]
        for peer in silent:
            log.info("client=%s was silent for %d ms: dropped", peer.client_id, now - peer.last_seen)
            self.leave(peer)
        return silent


def _publishing(answer: Any, broker: Broker) -> None:
    answer.publishing.validate_message_type = True
    answer.publishing.max_body_size = broker.store.config.max_message_bytes
    first, longest, factor = _PRODUCER_BACKOFF
    answer.backoff_policy.max_attempts = 3
    answer.backoff_policy.exponential_backoff.initial.FromMilliseconds(first)
    answer.backoff_policy.exponential_backoff.max.FromMilliseconds(longest)
    answer.backoff_policy.exponential_backoff.multiplier = factor


def _subscription(answer: Any, broker: Broker, group: str) -> None:
    config = broker.groups.require(group)
    answer.subscription.fifo = config.consume_message_orderly
    answer.subscription.receive_batch_size = limits.MAX_BATCH
    answer.subscription.long_polling_timeout.FromMilliseconds(limits.MAX_POLL_MS)
    policy = answer.backoff_policy
    policy.max_attempts = max_attempts(config)
    exponential = config.group_retry_policy.exponential_retry_policy if config.group_retry_policy else None
    if exponential is not None and config.group_retry_policy.type == "EXPONENTIAL":
        policy.exponential_backoff.initial.FromMilliseconds(exponential.initial)
        policy.exponential_backoff.max.FromMilliseconds(exponential.max)
        policy.exponential_backoff.multiplier = exponential.multiplier
        return
    for delay in parse_levels(broker.store.config.delay_levels):
        policy.customized_backoff.next.add().FromMilliseconds(delay)


def _beat(peer: Peer, now: int) -> Heartbeat:
    settings = peer.settings
    if settings.WhichOneof("pub_sub") == "publishing":
        # The producer group of this API is the topic: checks of a topic's transactions reach all who publish to it.
        groups = [ProducerData(group_name=limits.resolved(topic)) for topic in settings.publishing.topics]
        return Heartbeat(client_id=peer.client_id, producer_data_set=groups)
    data = ConsumerData(
        group_name=peer.group,
        consume_type=ConsumeType.CONSUME_POP,
        message_model=MessageModel.CLUSTERING,
        consume_from_where=ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET,
        subscription_data_set=[
            _subscription_data(entry, now) for entry in settings.subscription.subscriptions
        ],
    )
    return Heartbeat(client_id=peer.client_id, consumer_data_set=[data])


def _subscription_data(entry: Any, now: int) -> SubscriptionData:
    kind = SQL92 if entry.expression.type == pb.SQL else TAG
    parsed = subscribe(limits.resolved(entry.topic), entry.expression.expression or "*", now, kind)
    return SubscriptionData(
        topic=parsed.topic,
        sub_string=parsed.expression,
        tags_set=sorted(parsed.tags),
        code_set=sorted(parsed.codes),
        sub_version=parsed.version,
        expression_type=kind,
    )


def ending(error: BaseException) -> Code:
    """How a stream ends whose settings were not taken: whose fault it is, or that the kind of client is not served."""
    if isinstance(error, Refused) and error.code == pb.UNSUPPORTED:
        return Code.UNIMPLEMENTED
    if isinstance(error, (Refused, ProtocolError, InvalidParameter)):
        return Code.INVALID_ARGUMENT
    if isinstance(error, NoPermission):
        return Code.PERMISSION_DENIED
    return Code.INTERNAL
