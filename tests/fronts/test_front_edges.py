# SPDX-License-Identifier: Apache-2.0
"""Small matters of the fronts: whose endpoints clients are told, which gates may be passed ahead, what is timed."""

from __future__ import annotations

from contextlib import contextmanager
from types import SimpleNamespace as Thing
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from aerobee import native
from aerobee.broker.operations.admin import ask_client
from aerobee.broker.state.counted import RequestTimes
from aerobee.broker.state.routes import Host
from aerobee.clock import ManualClock
from aerobee.fronts.gates import audit, remoting, table
from aerobee.fronts.grpc import route
from aerobee.fronts.grpc.generated import messaging_pb2 as pb
from aerobee.fronts.http.app import make_app
from aerobee.fronts.http.connections import HttpConnections, HttpLimits
from aerobee.fronts.remoting import admin, pop
from aerobee.fronts.remoting.front import RemotingFront
from aerobee.protocol import bodies
from aerobee.protocol.codes import RequestCode
from aerobee.protocol.command import Command
from aerobee.protocol.headers.consume import ConsumeDirectly, HeadsRead, ReadHeads
from aerobee.settings import BrokerConfig

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


# -- endpoints ---------------------------------------------------------------------------------------------


def asked(host: str = "", scheme: int = pb.ADDRESS_SCHEME_UNSPECIFIED) -> Any:
    addresses = [pb.Address(host=host, port=1)] if host else []
    return pb.Endpoints(scheme=scheme, addresses=addresses)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("advertise", "request_", "host", "scheme"),
    [
        (None, asked(), "0.0.0.0", pb.IPv4),
        (None, asked("broker.example"), "broker.example", pb.DOMAIN_NAME),
        (None, asked("::1"), "::1", pb.IPv6),
        (None, asked("10.0.0.9"), "10.0.0.9", pb.IPv4),
        (None, asked("10.0.0.9", pb.DOMAIN_NAME), "10.0.0.9", pb.DOMAIN_NAME),  # its own word for it
        ("b.example", asked(), "b.example", pb.DOMAIN_NAME),
        ("b.example", asked("10.0.0.9"), "b.example", pb.DOMAIN_NAME),
        ("10.1.1.1", asked("::1"), "10.1.1.1", pb.IPv4),
    ],
)
def test_clients_are_told_the_advertised_host_or_the_one_they_came_by(
    advertise: str | None, request_: Any, host: str, scheme: int
) -> None:
    config = BrokerConfig(host="0.0.0.0")
    if advertise is not None:
        config = msgspec.structs.replace(config, advertise=advertise)
    found = route._own_endpoints(request_, Thing(config=config), 8081)  # type: ignore[arg-type]
    assert found.scheme == scheme
    assert [(each.host, each.port) for each in found.addresses] == [(host, 8081)]


def test_a_queue_names_its_broker_and_what_it_takes() -> None:
    """Of another broker as that is registered: a master, at its own address."""
    config = msgspec.structs.replace(BrokerConfig(host="10.0.0.1"), name="broker-a", broker_id=7)
    kept = {"bills": bodies.TopicConfig(topic_name="bills", attributes={"message.type": "FIFO"})}
    broker: Any = Thing(config=config, topics=kept)
    request: Any = pb.QueryRouteRequest(topic=pb.Resource(resource_namespace="shop", name="bills"))
    own = route._queue(request, "bills", Host("broker-a", 6, 1, 1), broker, 8081)
    other = route._queue(request, "orders", Host("broker-b", 6, 1, 1, grpc_address="[::1]:9"), broker, 8081)
    assert own.topic == other.topic == request.topic
    assert (own.broker.name, own.broker.id, other.broker.name, other.broker.id) == (
        "broker-a",
        7,
        "broker-b",
        0,
    )
    assert list(own.accept_message_types) == [pb.FIFO]
    assert list(other.accept_message_types) == [pb.NORMAL, pb.FIFO, pb.DELAY, pb.TRANSACTION]
    ends = [(each.host, each.port) for queue in (own, other) for each in queue.broker.endpoints.addresses]
    assert ends == [("10.0.0.1", 8081), ("::1", 9)]


@pytest.mark.parametrize(
    ("perm", "read", "write", "expected"),
    [
        (6, 2, 2, "RW RW"),
        (6, 3, 1, "RW R R"),
        (6, 1, 3, "RW W W"),
        (4, 2, 2, "R R"),
        (2, 2, 3, "W W W"),
        (0, 2, 3, "- - -"),
        (1, 0, 0, "-"),  # one, so that clients see the topic
        (6, 0, 0, "-"),
    ],
)
def test_queues_are_told_with_what_may_be_done_to_them(
    perm: int, read: int, write: int, expected: str
) -> None:
    shown = {pb.READ_WRITE: "RW", pb.READ: "R", pb.WRITE: "W", pb.NONE: "-"}
    found = route._permissions(Host("b", perm, read, write))
    assert " ".join(shown[each] for each in found) == expected


@pytest.mark.parametrize("ordered", [False, True])
async def test_every_queue_of_every_host_is_told_and_only_readable_hosts_are_assigned(
    ordered: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = [
        Host("broker-b", 6, 3, 1, grpc_address="10.0.0.2:1"),
        Host("broker-c", 2, 2, 2, grpc_address="10.0.0.3:1"),
        Host("broker-d", 4, 2, 0, grpc_address="10.0.0.4:1"),
    ]

    async def hosts(topic: str, broker: Any) -> list[Host]:
        return there

    monkeypatch.setattr(route, "hosts_or_new_topic", hosts)
    monkeypatch.setattr(route, "hosts_of", hosts)
    group = Thing(consume_message_orderly=ordered)
    broker: Any = Thing(
        config=BrokerConfig(),
        topics=Thing(get=lambda name: None),
        groups=Thing(require=lambda name: group),
    )
    caller: Any = Thing(port=8081)
    asked = pb.QueryRouteRequest(topic=pb.Resource(name="orders"))
    told = [
        (each.broker.name, each.id, each.permission)
        for each in (await route.query_route(caller, asked, broker)).message_queues
    ]
    assert told == [
        ("broker-b", 0, pb.READ_WRITE), ("broker-b", 1, pb.READ), ("broker-b", 2, pb.READ),
        ("broker-c", 0, pb.WRITE), ("broker-c", 1, pb.WRITE), ("broker-d", 0, pb.READ), ("broker-d", 1, pb.READ),
    ]  # fmt: skip
    wanted = pb.QueryAssignmentRequest(topic=pb.Resource(name="orders"), group=pb.Resource(name="g"))
    assigned = (await route.query_assignment(caller, wanted, broker)).assignments
    given = [each.message_queue for each in assigned]
    found = [(each.broker.name, each.id, each.permission) for each in given]
    if ordered:
        expected = [("broker-b", n, pb.READ_WRITE) for n in range(3)] + [
            ("broker-d", n, pb.READ) for n in range(2)
        ]
    else:
        expected = [("broker-b", -1, pb.READ_WRITE), ("broker-d", -1, pb.READ)]
    assert found == expected


# -- gates -------------------------------------------------------------------------------------------------


def test_gates_are_passed_ahead_only_where_nothing_but_access_control_stands(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Runs of requests that were checked together pass no other gate: none may stand there, and none may be audited."""

    def gate(name: str, stands: bool) -> Callable[[Any], Any]:
        return lambda place: name if stands else None

    account, right = gate("account", True), gate("right", True)
    change = next(iter(audit.CHANGES))
    for limits, code, expected in (
        (False, 10, ("account", "right")),
        (True, 10, ()),
        (False, change, ()),
        (True, change, ()),
    ):
        other = gate("limit", limits)
        monkeypatch.setattr(table, "CHECKS", (account, right))
        monkeypatch.setattr(table, "GATES", (audit.gate, account, right, other))
        assert table.checks_at(Thing(code=code)) == expected  # type: ignore[arg-type]


async def test_what_is_answered_later_is_timed_until_its_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = iter([7_000_000, 9_000_000])
    monkeypatch.setattr(remoting, "perf_counter_ns", lambda: next(ticks))
    times = RequestTimes()
    path: Any = remoting.RemotingPath.__new__(remoting.RemotingPath)
    path._times = times

    async def later() -> bytes:
        return b"frame"

    for code in (RequestCode.PULL_MESSAGE, RequestCode.SEND_MESSAGE_V2):
        request: Any = Thing(command=Thing(code=int(code)), connection=Thing(remote_text=""))
        assert await path._later(request, later(), 2_000_000) == b"frame"
    assert {key: each.sum for key, each in times} == {(11, 0, True): 5_000_000, (310, 0, False): 7_000_000}


# -- what is not answered, and what is not believed ----------------------------------------------------------


@pytest.mark.parametrize(
    ("serialize", "flag", "is_frame"), [(0, 0, True), (0, 2, False), (1, 0, False), (1, 2, False)]
)
def test_only_an_ack_that_wants_a_json_answer_is_answered_by_a_frame(
    serialize: int, flag: int, is_frame: bool
) -> None:
    found = pop.acked(Command(int(RequestCode.ACK_MESSAGE), 7, flag, serialize=serialize))
    assert isinstance(found, bytes) is is_frame


def test_http_tells_nothing_of_itself_and_believes_no_forwarder() -> None:
    made = HttpConnections(make_app([], None, max_body=10, hosts=None), ManualClock(), HttpLimits())._config
    assert (made.server_header, made.date_header, made.proxy_headers, made.access_log) == (False,) * 4
    assert (made.ws, made.lifespan, made.timeout_keep_alive) == ("none", "off", 15)
    assert made.h11_max_incomplete_event_size == 16 * 1024
    quick = HttpConnections(
        make_app([], None, max_body=10, hosts=None), ManualClock(), HttpLimits(idle_ms=10)
    )
    assert quick._config.timeout_keep_alive == 1, "a second at least"


# -- adapters ----------------------------------------------------------------------------------------------


async def test_a_client_and_message_that_are_not_named_are_empty_texts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told: list[tuple[Any, ...]] = []

    async def noted(*given: Any) -> bytes:
        told.append(given[:4])
        return b"result"

    monkeypatch.setattr(ask_client, "consume_directly", noted)
    for header in (
        ConsumeDirectly(consumer_group="g"),
        ConsumeDirectly(consumer_group="g", client_id="c", msg_id="m"),
    ):
        answer = await admin.consume_directly(Thing(), header, Thing())  # type: ignore[arg-type]
        assert answer.body == b"result"  # type: ignore[union-attr]
    assert told == [("g", "", "", None), ("g", "c", "m", None)]


async def test_heads_are_told_of_topics_that_are_named_and_of_all_that_moved(peer: Any, server: Any) -> None:
    await peer.send("orders")
    named = await peer.call(ReadHeads(), b'["orders","nowhere"]')
    first = named.fields(HeadsRead)
    assert (named.code, first.since) == (0, None)
    topics = bodies.decode(named.body, bodies.QueueHeads).topics
    assert set(topics) == {"orders"}
    assert tuple(topics["orders"][0]) == (0, 0, 1)
    same = await peer.call(ReadHeads(since=first.stamp))
    assert (same.code, same.body, same.fields(HeadsRead).since) == (0, b"", first.stamp)
    await peer.send("orders", queue_id=2)
    moved = await peer.call(ReadHeads(since=first.stamp))
    found = bodies.decode(moved.body, bodies.QueueHeads).topics
    assert {name: [tuple(queue) for queue in queues] for name, queues in found.items()} == {
        "orders": [(2, 0, 1)]
    }
    assert moved.fields(HeadsRead).since == first.stamp
    unknown = await peer.call(ReadHeads(since="not a stamp"))
    assert (unknown.body, unknown.fields(HeadsRead).since) == (b"", None)
    many = await peer.call(ReadHeads(), b"[" + b",".join(b'"t%d"' % n for n in range(257)) + b"]")
    assert many.code != 0


async def test_a_port_without_a_console_says_what_it_has() -> None:
    app = make_app([], None, max_body=10, hosts=None)
    sent: list[Any] = []

    async def receive() -> Any:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "GET", "path": "/", "headers": [], "query_string": b""}
    await app(scope, receive, send)
    assert sent[0]["status"] == 200
    assert sent[1]["body"] == (
        b"Aerobee. /healthz and /readyz say how it is, /metrics what it does, /api answers in JSON.\n"
    )


# -- who comes and goes ------------------------------------------------------------------------------------


def test_the_broker_hears_of_a_client_whose_connection_is_lost() -> None:
    gone: list[Any] = []
    broker: Any = Thing(
        guard=None,
        clock=ManualClock(),
        stats=Thing(counted=Thing(rpc=RequestTimes())),
        clients=Thing(closed=gone.append),
    )
    with native_off():
        front = RemotingFront(broker)
    assert front.run is None
    connection: Any = Thing(remote_text="somebody")
    front.opened(connection)
    assert gone == []
    front.closed(connection)
    assert gone == [connection]


@contextmanager
def native_off() -> Iterator[None]:
    was, native.is_on = native.is_on, False
    try:
        yield
    finally:
        native.is_on = was
