# SPDX-License-Identifier: Apache-2.0
"""What the gRPC adapters make of a request and of an answer, by tables: times to wait, filters, permissions, codes."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from aerobee import errors
from aerobee.broker.delivery.reading import Start
from aerobee.broker.operations.pop import Pop
from aerobee.broker.operations.pull import Pull
from aerobee.broker.operations.receive import Delivery
from aerobee.broker.state.routes import Host
from aerobee.clock import ManualClock
from aerobee.fronts.grpc import offsets, receive, route, status, telemetry
from aerobee.fronts.grpc.codes import Code
from aerobee.fronts.grpc.front import GrpcFront
from aerobee.fronts.grpc.generated import messaging_pb2 as pb
from aerobee.fronts.grpc.status import Refused
from aerobee.protocol.bodies import TopicConfig
from aerobee.protocol.message import Record, encode
from aerobee.protocol.receipt import Receipt
from aerobee.store.results import Found, ReadStatus

NOW = 1_700_000_000_000


# -- how long a receive waits ----------------------------------------------------------------------------------


def receiving(poll_ms: int | None = None, **fields: Any) -> Any:
    request = pb.ReceiveMessageRequest(**fields)
    if poll_ms is not None:
        request.long_polling_timeout.FromMilliseconds(poll_ms)
    return request


@pytest.mark.parametrize(
    ("asked_ms", "timeout_ms", "remaining_ms", "waits_ms"),
    [
        # What it asks for, between 5 and 20 s.
        (6_000, 3_000, None, 6_000),
        (4_999, 3_000, None, 5_000),
        (0, 3_000, None, 5_000),
        (20_001, 3_000, None, 20_000),
        (None, 3_000, None, 20_000),
        # Its deadline, less half of what a request may take, where it asks for nothing.
        (None, 3_000, 10_000, 8_500),
        (None, 3_001, 10_000, 8_500),
        (None, 4_000, 10_000, 8_000),
        (None, 3_000, 40_000, 20_000),
        # In any case there is an answer half a second before the deadline.
        (6_000, 3_000, 6_500, 6_000),
        (6_000, 3_000, 6_499, 5_999),
        (6_000, 3_000, 5_000, 4_500),
        (6_000, 3_000, 501, 1),
        (6_000, 3_000, 500, 0),
        (6_000, 3_000, 499, "499 ms until the deadline"),
    ],
)
def test_how_long_a_receive_waits(
    asked_ms: int | None, timeout_ms: int, remaining_ms: int | None, waits_ms: int | str
) -> None:
    if isinstance(waits_ms, str):
        with pytest.raises(Refused, match=waits_ms) as refused:
            receive._poll_ms(receiving(asked_ms), timeout_ms, remaining_ms)
        assert refused.value.code == pb.ILLEGAL_POLLING_TIME
    else:
        assert receive._poll_ms(receiving(asked_ms), timeout_ms, remaining_ms) == waits_ms


# -- filters -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "text", "found"),
    [
        (pb.TAG, "", ("TAG", "*")),
        (pb.TAG, "  ", ("TAG", "*")),
        (pb.TAG, "*", ("TAG", "*")),
        (pb.TAG, " * ", ("TAG", "*")),
        (pb.TAG, " A || B ", ("TAG", "A || B")),
        (pb.TAG, "||", None),
        (pb.SQL, "a > 1", ("SQL92", "a > 1")),
        (pb.SQL, "", None),
        (pb.SQL, " ", None),
    ],
)
def test_filters_of_a_receive(kind: Any, text: str, found: tuple[str, str] | None) -> None:
    expression = pb.FilterExpression(type=kind, expression=text)
    if found is not None:
        assert receive._filter(expression) == found
        return
    with pytest.raises(Refused) as refused:
        receive._filter(expression)
    assert refused.value.code == pb.ILLEGAL_FILTER_EXPRESSION


# -- the operations' requests --------------------------------------------------------------------------------------


def broker_with(**parts: Any) -> Any:
    clock = SimpleNamespace(wall=lambda: NOW, now=lambda: NOW)
    groups = SimpleNamespace(require=lambda name: SimpleNamespace(consume_message_orderly=name == "ordered"))
    config = SimpleNamespace(grpc_min_invisible_ms=10_000)
    return SimpleNamespace(clock=clock, groups=groups, config=config, **parts)


@pytest.mark.parametrize(("batch", "wanted"), [(-1, 1), (0, 1), (1, 1), (2, 2), (32, 32), (33, 32)])
@pytest.mark.parametrize("group", ["billing", "ordered"])
def test_a_receive_is_a_pop_of_any_queue(batch: int, wanted: int, group: str) -> None:
    request = receiving(7_000, batch_size=batch, attempt_id="try-1")
    request.message_queue.topic.name, request.message_queue.id = "orders", 3
    request.group.name = group
    request.invisible_duration.FromMilliseconds(30_000)
    request.filter_expression.CopyFrom(pb.FilterExpression(type=pb.SQL, expression="a > 1"))
    peer = SimpleNamespace(request_timeout_ms=3_000)
    made = receive._pop_request(request, broker_with(), peer, None)  # type: ignore[arg-type]
    assert made == Pop(
        group=group,
        topic="orders",
        start=Start.MAX,
        queue_id=-1,
        max_messages=wanted,
        invisible_ms=30_000,
        poll_ms=7_000,
        born_time=NOW,
        expression="a > 1",
        expression_type="SQL92",
        ordered=group == "ordered",
        attempt_id="try-1",
    )
    request.auto_renew, request.attempt_id = True, ""
    renewed = receive._pop_request(request, broker_with(), peer, None)  # type: ignore[arg-type]
    assert (renewed.invisible_ms, renewed.attempt_id) == (60_000, None)


async def answers(made: Any) -> list[Any]:
    return [each async for each in made]


async def test_what_was_on_its_way_when_its_client_left_is_given_back_with_the_rest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = [
        Delivery(Record("orders", b"%d" % at, "", 0, at), Receipt(0, 1, 60_000, 0, "0", "b", 0, at), 1)
        for at in range(4)
    ]
    back: list[tuple[str, str, int]] = []

    async def received(request: Any, broker: Any) -> list[Delivery]:
        return found

    def given_back(group: str, topic: str, receipt: Receipt, broker: Any) -> None:
        back.append((group, topic, receipt.offset))

    monkeypatch.setattr(receive, "receive", received)
    monkeypatch.setattr(receive, "give_back", given_back)
    asked = SimpleNamespace(group="billing", topic="orders")
    monkeypatch.setattr(receive, "_pop_request", lambda *_: asked)
    monkeypatch.setattr(receive, "_brought", lambda delivery, topic: (topic, delivery.record.body))
    caller: Any = SimpleNamespace(peer=None, remaining_ms=None)
    stream = receive.receive_message(caller, receiving(), None)  # type: ignore[arg-type]
    assert (await anext(stream)).status.code == pb.OK
    assert [await anext(stream), await anext(stream)] == [("orders", b"0"), ("orders", b"1")]
    await stream.aclose()  # type: ignore[attr-defined]
    assert back == [("billing", "orders", 1), ("billing", "orders", 2), ("billing", "orders", 3)]


@pytest.mark.parametrize(("batch", "wanted"), [(-1, 1), (0, 1), (1, 1), (2, 2), (32, 32), (33, 32)])
@pytest.mark.parametrize(
    ("kind", "text", "filter_"),
    [(pb.TAG, "", ("TAG", "*")), (pb.TAG, "A", ("TAG", "A")), (pb.SQL, "a > 1", ("SQL92", "a > 1"))],
)
async def test_a_pull_by_offset_is_a_pull(
    batch: int, wanted: int, kind: Any, text: str, filter_: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Pull] = []
    record = Record("orders", b"body", "", 3, 5, reconsume_times=2)

    def pull(request: Pull, broker: Any) -> Found:
        asked.append(request)
        return Found(ReadStatus.FOUND, 6, 0, 6, [encode(record)], [5])

    monkeypatch.setattr(offsets, "pull", pull)
    request = pb.PullMessageRequest(offset=5, batch_size=batch)
    request.message_queue.topic.name, request.message_queue.id, request.group.name = "orders", 3, "billing"
    request.long_polling_timeout.FromMilliseconds(8_000)
    request.filter_expression.CopyFrom(pb.FilterExpression(type=kind, expression=text))
    first, message, last = await answers(offsets.pull_message(None, request, None))  # type: ignore[arg-type]
    assert asked == [
        Pull(
            "billing",
            "orders",
            3,
            5,
            wanted,
            hold_ms=8_000,
            expression=filter_[1],
            expression_type=filter_[0],
        )
    ]
    assert (first.status.code, first.status.message) == (pb.OK, "OK")
    assert (message.message.body, message.message.system_properties.delivery_attempt) == (b"body", 3)
    assert not message.message.system_properties.HasField("receipt_handle")
    assert last.next_offset == 6


@pytest.mark.parametrize(
    ("found", "code"),
    [
        (ReadStatus.OFFSET_TOO_SMALL, pb.ILLEGAL_OFFSET),
        (ReadStatus.OFFSET_OVERFLOW_BADLY, pb.ILLEGAL_OFFSET),
        (ReadStatus.OFFSET_RESET, pb.ILLEGAL_OFFSET),
        (ReadStatus.OFFSET_OVERFLOW_ONE, pb.MESSAGE_NOT_FOUND),
        (ReadStatus.NO_MATCHED_MESSAGE, pb.MESSAGE_NOT_FOUND),
        (ReadStatus.NO_MESSAGE_IN_QUEUE, pb.MESSAGE_NOT_FOUND),
    ],
)
async def test_a_pull_that_finds_nothing_says_why_and_where_to_go_on(
    found: ReadStatus, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def later() -> Found:
        return Found(found, 9, 0, 9)

    monkeypatch.setattr(offsets, "pull", lambda request, broker: later())
    request = pb.PullMessageRequest(offset=5)
    request.message_queue.topic.name, request.group.name = "orders", "billing"
    first, last = await answers(offsets.pull_message(None, request, None))  # type: ignore[arg-type]
    assert (first.status.code, first.status.message) == (code, found.name)
    assert last.next_offset == 9


# -- routes ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("perm", "reads", "writes", "permissions"),
    [
        (6, 2, 2, [pb.READ_WRITE] * 2),
        (6, 3, 1, [pb.READ_WRITE, pb.READ, pb.READ]),
        (6, 1, 3, [pb.READ_WRITE, pb.WRITE, pb.WRITE]),
        (4, 2, 3, [pb.READ] * 2),
        (2, 2, 3, [pb.WRITE] * 3),
        (0, 2, 3, [pb.NONE] * 3),
        (0, 3, 2, [pb.NONE] * 3),
        (6, 0, 0, [pb.NONE]),
        (7, 1, 0, [pb.READ]),
    ],
)
def test_permissions_of_a_brokers_queues(perm: int, reads: int, writes: int, permissions: list[int]) -> None:
    assert route._permissions(Host("b", perm, reads, writes)) == permissions


@pytest.mark.parametrize(
    ("host", "scheme"), [("10.0.0.1", pb.IPv4), ("::1", pb.IPv6), ("broker.local", pb.DOMAIN_NAME)]
)
def test_an_address_says_what_it_is(host: str, scheme: int) -> None:
    made = route._endpoints(host, 8_081)
    assert (made.scheme, [(each.host, each.port) for each in made.addresses]) == (scheme, [(host, 8_081)])


@pytest.mark.parametrize(
    ("asked", "advertise", "expected"),
    [
        ("", "", (pb.IPv4, "0.0.0.0")),
        ("", "10.9.9.9", (pb.IPv4, "10.9.9.9")),
        ("by.name", "", (pb.DOMAIN_NAME, "by.name")),
        ("by.name", "10.9.9.9", (pb.IPv4, "10.9.9.9")),
    ],
)
def test_a_client_is_told_the_address_by_which_it_came_unless_another_is_set(
    asked: str, advertise: str, expected: tuple[int, str]
) -> None:
    broker: Any = SimpleNamespace(config=SimpleNamespace(advertise=advertise, host="0.0.0.0"))
    came_by = pb.Endpoints(addresses=[pb.Address(host=asked, port=1)] if asked else [])
    made = route._own_endpoints(came_by, broker, 8_081)
    assert (made.scheme, made.addresses[0].host, made.addresses[0].port) == (*expected, 8_081)
    if asked and not advertise:
        came_by.scheme = pb.IPv4
        assert route._own_endpoints(came_by, broker, 8_081).scheme == pb.IPv4


ALL = (pb.NORMAL, pb.FIFO, pb.DELAY, pb.TRANSACTION)


@pytest.mark.parametrize(
    ("attribute", "types"),
    [
        (None, ALL),
        ("MIXED", ALL),
        ("UNSPECIFIED", ALL),
        ("NORMAL", (pb.NORMAL,)),
        ("fifo", (pb.FIFO,)),
        ("DELAY", (pb.DELAY,)),
        ("TRANSACTION", (pb.TRANSACTION,)),
    ],
)
def test_types_that_a_topic_takes(attribute: str | None, types: tuple[int, ...]) -> None:
    attributes = {} if attribute is None else {"message.type": attribute}
    assert route.accepted_types(TopicConfig(topic_name="t", attributes=attributes)) == types
    assert route.accepted_types(None) == ALL


# -- codes ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.TopicNotFound("why"), pb.TOPIC_NOT_FOUND),
        (errors.GroupNotFound("why"), pb.CONSUMER_GROUP_NOT_FOUND),
        (errors.SystemBusy("why"), pb.TOO_MANY_REQUESTS),
        (errors.FlowControl("why"), pb.TOO_MANY_REQUESTS),
        (errors.RequestCodeNotSupported("why"), pb.NOT_IMPLEMENTED),
        (errors.SubscriptionParseFailed("why"), pb.ILLEGAL_FILTER_EXPRESSION),
        (errors.NoPermission("why"), pb.FORBIDDEN),
        (errors.AccessDenied("why"), pb.UNAUTHORIZED),
        (errors.AclDenied("why"), pb.UNAUTHORIZED),
        (errors.MessageIllegal("why"), pb.BAD_REQUEST),
        (errors.InvalidParameter("why"), pb.BAD_REQUEST),
        (errors.NoMessage("why"), pb.INVALID_RECEIPT_HANDLE),
        (errors.IllegalOperation("why"), pb.BAD_REQUEST),
        (errors.QueryNotFound("why"), pb.OFFSET_NOT_FOUND),
        (errors.DiskFull("why"), pb.INTERNAL_SERVER_ERROR),
        (errors.SystemFailure("why"), pb.INTERNAL_SERVER_ERROR),
        (Refused(pb.ILLEGAL_TOPIC, "why"), pb.ILLEGAL_TOPIC),
        (ValueError("why"), pb.INTERNAL_SERVER_ERROR),
    ],
)
def test_the_code_of_each_error(error: Exception, code: int) -> None:
    told = status.status_of(error)
    assert told.code == code
    assert told.message.endswith("why")


def test_an_error_without_a_word_is_told_by_its_name() -> None:
    assert status.status_of(ValueError()).message == "ValueError"


def test_the_status_of_several_parts() -> None:
    fine, wrong = pb.Status(code=pb.OK, message="a"), pb.Status(code=pb.FORBIDDEN, message="b")
    assert status.common([fine, fine]) == pb.Status(code=pb.OK, message="OK")
    assert status.common([wrong]) == pb.Status(code=pb.FORBIDDEN, message="FORBIDDEN")
    assert status.common([fine, wrong]) == pb.Status(code=pb.MULTIPLE_RESULTS, message="MULTIPLE_RESULTS")
    assert status.common([]).code == pb.INTERNAL_SERVER_ERROR
    assert pb.Status(code=pb.OK, message="OK") == status.OK


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (Refused(pb.UNSUPPORTED, "x"), Code.UNIMPLEMENTED),
        (Refused(pb.ILLEGAL_TOPIC, "x"), Code.INVALID_ARGUMENT),
        (errors.ProtocolError("x"), Code.INVALID_ARGUMENT),
        (errors.InvalidParameter("x"), Code.INVALID_ARGUMENT),
        (errors.NoPermission("x"), Code.PERMISSION_DENIED),
        (errors.SystemFailure("x"), Code.INTERNAL),
        (ValueError("x"), Code.INTERNAL),
    ],
)
def test_how_a_stream_ends_whose_settings_were_not_taken(error: Exception, code: Code) -> None:
    assert telemetry.ending(error) is code


@pytest.mark.parametrize(
    ("kind", "text", "expected"),
    [
        (pb.TAG, "", ("*", "TAG", [])),
        (pb.TAG, "B || A", ("B || A", "TAG", ["A", "B"])),
        (pb.SQL, "a > 1", ("a > 1", "SQL92", [])),
    ],
)
def test_a_subscription_as_the_broker_keeps_it(
    kind: Any, text: str, expected: tuple[str, str, list[str]]
) -> None:
    entry = pb.SubscriptionEntry(expression=pb.FilterExpression(type=kind, expression=text))
    entry.topic.name, entry.topic.resource_namespace = "orders", "shop"
    made = telemetry._subscription_data(entry, NOW)
    assert (made.topic, made.sub_version) == ("shop%orders", NOW)
    assert (made.sub_string, made.expression_type, made.tags_set) == expected
    assert len(made.code_set) == len(expected[2])
    assert made.code_set == sorted(made.code_set)


# -- the port ---------------------------------------------------------------------------------------------------------


async def test_the_front_looks_at_its_clients_every_second() -> None:
    clock, seen = ManualClock(start=0), []
    front = SimpleNamespace(
        _broker=SimpleNamespace(clock=clock), service=SimpleNamespace(tick=lambda now: seen.append(now))
    )
    ticking = asyncio.ensure_future(GrpcFront._tick(front))  # type: ignore[arg-type]
    for _ in range(3):
        await asyncio.sleep(0)
        clock.advance(999)
        await asyncio.sleep(0)
        clock.advance(1)
        await asyncio.sleep(0)
    assert seen == [1_000, 2_000, 3_000]
    ticking.cancel()
