# SPDX-License-Identifier: Apache-2.0
"""gRPC clients as the broker knows them: who they are, how long, what they are told of its settings."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from aerobee.broker.broker import assemble
from aerobee.broker.operations.admin.groups import consumer_connection
from aerobee.broker.operations.receive import max_attempts
from aerobee.clock import ManualClock
from aerobee.errors import AccessDenied, NetworkError
from aerobee.fronts.grpc import telemetry
from aerobee.fronts.grpc.generated import messaging_pb2 as pb
from aerobee.fronts.grpc.status import Refused
from aerobee.fronts.grpc.telemetry import OUTBOX, Peer, Peers
from aerobee.protocol.bodies import (
    Connection,
    ConsumeFromWhere,
    ConsumerData,
    ConsumeType,
    ExponentialRetry,
    GroupConfig,
    Heartbeat,
    MessageModel,
    ProducerData,
    RetryPolicy,
)
from aerobee.protocol.codes import VERSION
from aerobee.protocol.command import request as command_of
from aerobee.protocol.headers.consume import NotifyIdsChanged
from aerobee.protocol.headers.transaction import CheckTransaction
from aerobee.protocol.message import Record, encode
from aerobee.protocol.transaction_id import TransactionId
from aerobee.settings import BrokerConfig, StoreConfig

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SMALL = StoreConfig(
    commit_log_segment_bytes=1 << 20, consume_queue_units=1000, index_slots=1000, index_entries=4000
)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Any]:
    made = assemble(BrokerConfig(), SMALL, tmp_path, ManualClock())
    yield made
    made.store.close()


HERE, THERE = ("10.0.0.1", 1), ("10.0.0.2", 2)


def calling(
    client_id: str = "c1", peer: tuple[str, int] = HERE, user: str = "", said: dict[str, str] | None = None
) -> Any:
    who = {"x-mq-client-id": client_id} if client_id else {}
    return SimpleNamespace(fields={**who, **(said or {})}, user=user, remote=peer)


@pytest.fixture
def peers(broker: Any) -> Peers:
    return Peers(broker)


def test_a_client_is_known_by_its_id_and_what_it_says_first(peers: Peers, broker: Any) -> None:
    first = peers.of(calling(said={"x-mq-language": "JAVA", "x-mq-client-version": "5.0.7"}))
    assert (first.client_id, first.remote_text) == ("c1", "10.0.0.1:1")
    assert (first.attributes["language"], first.attributes["client_version"]) == ("JAVA", "5.0.7")
    assert first.last_seen == broker.clock.now()
    broker.clock.advance(5)
    assert peers.of(calling()) is first
    assert first.last_seen == broker.clock.now()
    assert (first.user, first.group, first.settings, first.gone) == ("", "", None, False)
    assert peers.of(calling("c2")) is not first
    assert list(peers) == [first, peers.of(calling("c2"))]
    assert [peers.alive(name) for name in ("c1", "c2", "c3")] == [True, True, False]


def test_languages_that_rocketmq_does_not_know_are_other(peers: Peers) -> None:
    assert peers.of(calling(said={"x-mq-language": "COBOL"})).attributes["language"] == "OTHER"
    silent = peers.of(calling("c2"))
    assert (silent.attributes["language"], silent.attributes["client_version"]) == ("OTHER", "")


def test_who_does_not_say_who_it_is_is_refused(peers: Peers) -> None:
    with pytest.raises(Refused) as refused:
        peers.of(calling(""))
    assert refused.value.code == pb.CLIENT_ID_REQUIRED


def test_a_client_that_moves_is_reached_at_its_new_address(peers: Peers) -> None:
    peer = peers.of(calling(peer=HERE))
    before = peer.host
    peers.of(calling(peer=THERE))
    assert (peer.address, peer.remote_text) == (("10.0.0.2", 2), "10.0.0.2:2")
    assert peer.host != before


def test_a_client_id_is_its_users_as_long_as_it_lives(peers: Peers) -> None:
    peer = peers.of(calling(user="ann"))
    assert peers.of(calling(user="ann")) is peer
    with pytest.raises(AccessDenied, match="c1 is in use by another user"):
        peers.of(calling(user="eve"))
    peers.leave(peer)
    assert (peer.gone, peers.alive("c1"), peer.is_open) == (True, False, False)
    assert peers.of(calling(user="eve")).user == "eve"


def test_the_silent_are_dropped_after_what_a_channel_may_live(peers: Peers, broker: Any) -> None:
    old = peers.of(calling())
    broker.clock.advance(1)
    young = peers.of(calling("c2"))
    limit = broker.config.channel_expiry_ms
    assert peers.expire(old.last_seen + limit) == []
    assert peers.expire(old.last_seen + limit + 1) == [old]
    assert list(peers) == [young]


def test_a_client_is_open_while_one_of_its_streams_is() -> None:
    peer = Peer("c1", "JAVA", "5", ("10.0.0.1", 1))
    seen = [peer.is_open]
    for step in (peer.stream_opened, peer.stream_opened, peer.stream_closed, peer.stream_closed):
        step()
        seen.append(peer.is_open)
    assert seen == [False, True, True, True, False]
    peer.stream_opened()
    peer.close()
    assert not peer.is_open


async def test_commands_wait_for_the_stream_and_too_many_are_dropped(
    caplog: pytest.LogCaptureFixture,
) -> None:
    peer = Peer("c1", "JAVA", "5", ("10.0.0.1", 1))
    for number in range(OUTBOX + 1):
        peer.push(number)
    assert caplog.text.count("a command was dropped") == 1
    assert [await peer.next_command() for _ in range(OUTBOX)] == list(range(OUTBOX))
    waiting = asyncio.ensure_future(peer.next_command())
    peer.send(command_of(NotifyIdsChanged(consumer_group="g")))  # the broker balances: it is told nothing
    await asyncio.sleep(0)
    assert not waiting.done()
    peer.push("one more")
    assert await waiting == "one more"
    with pytest.raises(NetworkError, match="has no counterpart"):
        await peer.call(command_of(NotifyIdsChanged(consumer_group="g")))


def test_a_clients_request_time_out_is_what_it_says_or_every_clients() -> None:
    peer = Peer("c1", "JAVA", "5", ("10.0.0.1", 1))
    assert peer.request_timeout_ms == 3_000
    peer.settings = pb.Settings()
    assert peer.request_timeout_ms == 3_000
    peer.settings.request_timeout.FromMilliseconds(7_000)
    assert peer.request_timeout_ms == 7_000


def test_a_producer_is_told_how_to_send(peers: Peers, broker: Any) -> None:
    peer = peers.of(calling())
    settings = pb.Settings(client_type=pb.PRODUCER)
    settings.publishing.topics.add().name = "orders"
    expected = pb.Settings(client_type=pb.PRODUCER)
    expected.publishing.topics.add().name = "orders"
    expected.publishing.validate_message_type = True
    expected.publishing.max_body_size = broker.store.config.max_message_bytes
    expected.backoff_policy.max_attempts = 3
    expected.backoff_policy.exponential_backoff.initial.FromMilliseconds(10)
    expected.backoff_policy.exponential_backoff.max.FromMilliseconds(1_000)
    expected.backoff_policy.exponential_backoff.multiplier = 2
    expected.metric.on = False
    assert peers.settle(peer, settings) == expected
    assert peer.settings == settings
    assert telemetry._beat(peer, 5) == Heartbeat(
        client_id="c1", producer_data_set=[ProducerData(group_name="orders")]
    )
    assert [each.client_id for each in broker.clients.producers("orders")] == ["c1"]


def consuming(group: str = "billing", **topics: str) -> Any:
    settings = pb.Settings(client_type=pb.PUSH_CONSUMER)
    settings.subscription.group.name = group
    for topic, expression in topics.items():
        entry = settings.subscription.subscriptions.add()
        entry.topic.name, entry.expression.expression = topic, expression
    return settings


@pytest.mark.parametrize("ordered", [False, True])
def test_a_consumer_is_told_how_to_receive(peers: Peers, broker: Any, ordered: bool) -> None:
    broker.groups.put(GroupConfig(group_name="billing", consume_message_orderly=ordered, retry_max_times=7))
    peer, settings = peers.of(calling()), consuming(orders="A")
    answer = peers.settle(peer, settings)
    expected = consuming(orders="A")
    expected.subscription.fifo = ordered
    expected.subscription.receive_batch_size = 32
    expected.subscription.long_polling_timeout.FromMilliseconds(20_000)
    expected.backoff_policy.max_attempts = max_attempts(broker.groups.get("billing"))
    for ms in broker.store.delays:
        expected.backoff_policy.customized_backoff.next.add().FromMilliseconds(ms)
    expected.metric.on = False
    assert answer == expected
    assert peer.group == "billing"
    (entry,) = telemetry._beat(peer, 5).consumer_data_set
    assert entry == ConsumerData(
        group_name="billing",
        consume_type=ConsumeType.CONSUME_POP,
        message_model=MessageModel.CLUSTERING,
        consume_from_where=ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET,
        subscription_data_set=entry.subscription_data_set,
    )
    assert [(each.topic, each.sub_string) for each in entry.subscription_data_set] == [("orders", "A")]
    assert broker.clients.consumer_ids("billing") == ["c1"]


def test_tools_list_a_client_as_they_list_those_of_remoting(peers: Peers, broker: Any) -> None:
    peers.settle(peers.of(calling(said={"x-mq-language": "JAVA"})), consuming(orders="*"))
    (shown,) = consumer_connection("billing", broker).connection_set
    assert shown == Connection(client_addr="10.0.0.1:1", client_id="c1", language="JAVA", version=VERSION)


def test_a_group_with_a_backoff_of_its_own_is_told_that(peers: Peers, broker: Any) -> None:
    policy = RetryPolicy(
        type="EXPONENTIAL", exponential_retry_policy=ExponentialRetry(initial=5, max=60, multiplier=3)
    )
    broker.groups.put(GroupConfig(group_name="billing", group_retry_policy=policy))
    told = peers.settle(peers.of(calling()), consuming(orders="*")).backoff_policy
    assert told.WhichOneof("strategy") == "exponential_backoff"
    backoff = told.exponential_backoff
    assert (backoff.initial.ToMilliseconds(), backoff.max.ToMilliseconds(), backoff.multiplier) == (5, 60, 3)


@pytest.mark.parametrize(
    "policy",
    [
        RetryPolicy(exponential_retry_policy=ExponentialRetry(initial=5, max=60, multiplier=3)),
        RetryPolicy(type="EXPONENTIAL"),
        RetryPolicy(),
    ],
)
def test_a_group_that_does_not_say_so_in_full_has_the_backoff_of_delay_levels(
    peers: Peers, broker: Any, policy: RetryPolicy
) -> None:
    broker.groups.put(GroupConfig(group_name="billing", group_retry_policy=policy))
    told = peers.settle(peers.of(calling()), consuming(orders="*")).backoff_policy
    assert told.WhichOneof("strategy") == "customized_backoff"
    assert [each.ToMilliseconds() for each in told.customized_backoff.next][:3] == [1_000, 5_000, 10_000]


@pytest.mark.parametrize(
    ("settings", "code"),
    [
        (pb.Settings(client_type=pb.PRODUCER), pb.BAD_REQUEST),
        (consuming("a b"), pb.ILLEGAL_CONSUMER_GROUP),
        *((pb.Settings(client_type=kind, publishing={}), pb.UNSUPPORTED) for kind in telemetry._LITE),
        (pb.Settings(client_type=pb.PRODUCER, publishing={"topics": [{"name": "a b"}]}), pb.ILLEGAL_TOPIC),
    ],
)
def test_settings_that_are_not_taken_register_nobody(
    peers: Peers, broker: Any, settings: Any, code: int
) -> None:
    peer = peers.of(calling())
    peers.register(peer)  # nothing was said yet
    with pytest.raises(Refused) as refused:
        peers.settle(peer, settings)
    assert refused.value.code == code
    peers.register(peer)  # as its next heartbeat does
    assert broker.clients.find_client("c1") is None


def test_settings_that_are_not_taken_leave_those_before_them(peers: Peers, broker: Any) -> None:
    peer = peers.of(calling())
    peers.settle(peer, consuming(orders="A"))
    bad = consuming(group="a b", bills="*")
    with pytest.raises(Refused):
        peers.settle(peer, bad)
    peers.register(peer)
    (group,) = broker.clients.groups().values()
    assert (group.name, list(group.subscriptions)) == ("billing", ["orders"])


def test_a_group_of_a_namespace_is_told_its_own_settings(peers: Peers, broker: Any) -> None:
    broker.groups.put(GroupConfig(group_name="shop%g", consume_message_orderly=True))
    settings = pb.Settings()
    settings.subscription.group.resource_namespace, settings.subscription.group.name = "shop", "g"
    peer = peers.of(calling())
    assert peers.settle(peer, settings).subscription.fifo
    assert peer.group == "shop%g"
    assert broker.groups.get("g") is None
    assert list(broker.clients.group("shop%g").members) == ["c1"]


def test_an_id_whose_client_was_sent_away_is_anybodys(peers: Peers) -> None:
    first = peers.of(calling(user="ann"))
    first.close()
    assert not first.is_open
    second = peers.of(calling(user="bob"))
    assert second is not first
    assert (second.user, peers.of(calling(user="bob"))) == ("bob", second)


async def test_a_producer_is_asked_about_its_transaction_by_telemetry() -> None:
    peer = Peer("c1", "JAVA", "5", ("10.0.0.1", 1))
    half = Record("orders", b"body", "UNIQ_KEY\x01m1\x02", 0, 5, physical_offset=77)
    header = CheckTransaction(tran_state_table_offset=9, commit_log_offset=1_234, transaction_id="m1")
    peer.send(command_of(header, encode(half)))
    told = await peer.next_command()
    assert told.status == pb.Status(code=pb.OK, message="OK")
    recover = told.recover_orphaned_transaction_command
    assert (recover.message.body, recover.message.topic.name) == (b"body", "orders")
    assert recover.message.system_properties.delivery_attempt == 1
    assert recover.transaction_id == TransactionId(9, 1_234, "m1").text
