# SPDX-License-Identifier: Apache-2.0
"""Each gate alone, with a guard that says what it is told to: who it lets through, whom it asks, what it writes down."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from aerobee.errors import (
    AccessDenied,
    AclDenied,
    InvalidParameter,
    ProtocolError,
    RequestCodeNotSupported,
    SystemFailure,
)
from aerobee.fronts.gates import accounts, audit, limits, permissions, vip
from aerobee.fronts.gates.call import Port
from aerobee.fronts.gates.guard import request_name
from aerobee.protocol import bodies
from aerobee.protocol.codes import RequestCode
from aerobee.protocol.headers.offsets import ResetOffset
from tests.fronts.guarded import NOW, Asked, Guard, at, for_grpc, for_http, for_remoting

# -- who is it ------------------------------------------------------------------------------------------------------


def identified(port: Port, fields: dict[str, str], source: str = "10.0.0.1", body: bytes = b"") -> str | None:
    gate = accounts.gate(at(Guard(ann="s3cret"), port, code=None if port is Port.GRPC else 310))
    assert gate is not None
    call = Asked(port, fields, source=source, body=body)
    gate(call)
    return call.user


def test_who_signs_well_is_known() -> None:
    assert identified(Port.GRPC, for_grpc("ann", "s3cret")) == "ann"
    assert identified(Port.BROKER, for_remoting("ann", "s3cret", b"body"), body=b"body") == "ann"
    assert identified(Port.VIP, for_remoting("ann", "s3cret", b"body"), body=b"body") == "ann"
    assert identified(Port.HTTP, for_http("ann", "s3cret"), body=b"body") == "ann"


def test_a_signature_is_of_what_a_client_of_that_version_signs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Old ones leave out fields."""
    told: list[tuple[Any, ...]] = []

    class Old(Asked):
        version = 407  # type: ignore[assignment]

    monkeypatch.setattr("aerobee.protocol.accounts.is_signed", lambda *given: told.append(given) or True)
    gate = accounts.gate(at(Guard(ann="s3cret")))
    assert gate is not None
    fields = {"AccessKey": "ann"}
    gate(Old(fields=fields, body=b"body"))
    assert told == [("s3cret", fields, b"body", 407)]


@pytest.mark.parametrize("port", [Port.GRPC, Port.BROKER, Port.HTTP])
def test_who_comes_from_a_trusted_address_is_asked_for_nothing(port: Port) -> None:
    assert identified(port, {}, source="trusted") is None
    wrong = {Port.GRPC: for_grpc("ann", "wrong"), Port.HTTP: for_http("ann", "wrong")}
    assert identified(port, wrong.get(port, for_remoting("ann", "wrong", b"")), source="trusted") is None


@pytest.mark.parametrize(
    ("port", "fields", "why"),
    [
        (Port.GRPC, {}, "no "),
        (Port.GRPC, for_grpc("eve", "x"), "no eve"),
        (Port.GRPC, for_grpc("ann", "wrong"), "bad signature of ann"),
        (
            Port.GRPC,
            for_grpc("ann", "s3cret") | {"x-mq-date-time": "20260101T000001Z"},
            "bad signature of ann",
        ),
        (Port.GRPC, {"authorization": for_grpc("ann", "s3cret")["authorization"]}, "datetime is null."),
        (Port.BROKER, {}, "no "),
        (Port.BROKER, for_remoting("eve", "x", b""), "no eve"),
        (Port.BROKER, for_remoting("ann", "s3cret", b"other"), "bad signature of ann"),
        (Port.HTTP, {}, "no "),
        (Port.HTTP, for_http("eve", "s3cret"), "no eve"),
        (Port.HTTP, for_http("ann", "wrong"), "bad signature of ann"),
        (Port.HTTP, for_http("ann", ""), "bad signature of ann"),
        (Port.HTTP, {"AccessKey": "ann"}, "bad signature of ann"),
        (Port.HTTP, for_remoting("ann", "s3cret", b""), "bad signature of ann"),
    ],
)
def test_who_does_not_is_refused(port: Port, fields: dict[str, str], why: str) -> None:
    with pytest.raises(AccessDenied) as refused:
        identified(port, fields)
    assert refused.value.remark == why


@pytest.mark.parametrize("port", [Port.GRPC, Port.BROKER])
def test_a_request_on_the_white_list_is_anybodys_but_who_signs_it_well_is_known(port: Port) -> None:
    guard = Guard(ann="s3cret")
    place = at(guard, port, "SendMessage", None if port is Port.GRPC else 310)
    guard.open = {request_name(place)}
    assert guard.open == {"apache.rocketmq.v2.SendMessageRequest" if port is Port.GRPC else "310"}
    gate = accounts.gate(place)
    assert gate is not None
    signed = for_grpc("ann", "s3cret") if port is Port.GRPC else for_remoting("ann", "s3cret", b"")
    for fields, user in ((signed, "ann"), ({}, "")):
        call = Asked(port, fields)
        call.user = "somebody else"
        gate(call)
        assert call.user == user


def test_without_a_guard_there_are_no_gates_of_its() -> None:
    for make in (accounts.gate, permissions.gate, audit.gate):
        assert make(at(None)) is None
    assert audit.gate(at(Guard())) is None, "and none that writes where nothing is written"
    assert request_name(at(None, Port.GRPC, "", None)) == ""


# -- may they ---------------------------------------------------------------------------------------------------------


def checked(user: str | None, asked: Any = None, route: str = "SendMessageV2", code: int = 310) -> list[Any]:
    guard = Guard()
    gate = permissions.gate(at(guard, route=route, code=code))
    assert gate is not None
    call = Asked(asked=asked, route=route, code=code)
    call.user = user
    gate(call)
    return guard.asked


def test_rights_are_asked_of_users_alone() -> None:
    topic, request = SimpleNamespace(topic="orders"), ("DeleteTopic", RequestCode.DELETE_TOPIC_IN_BROKER)
    assert checked(None, topic, *request) == [], "an address that is trusted is asked nothing"
    assert checked("root", topic, *request) == [("everything", "root")]
    everything, (what, user, needs, source, code) = checked("ann", topic, *request)
    assert (everything, what, user) == (("everything", "ann"), "check", "ann")
    assert (source, code) == ("10.0.0.1", request[1])
    assert [need.resource.text for need in needs] == ["Topic:orders"]


@pytest.mark.parametrize("wrong", [ProtocolError("x"), ValueError("x"), AttributeError("x")])
def test_a_request_that_cannot_be_read_is_nobodys_right(wrong: Exception) -> None:
    with pytest.raises(AccessDenied, match="unreadable from ann"):
        checked("ann", wrong)


def test_what_nobody_listed_has_no_needs_to_be_met() -> None:
    assert checked("ann", None, "", 9_999)[-1] == ("check", "ann", None, "10.0.0.1", 9_999)


@pytest.mark.parametrize(
    ("checks_rights", "open_requests", "there"),
    [(True, set(), True), (False, set(), False), (True, {"310"}, False)],
)
def test_rights_are_checked_where_the_settings_say_so(
    checks_rights: bool, open_requests: set[str], there: bool
) -> None:
    guard = Guard()
    guard.checks_rights, guard.open = checks_rights, open_requests
    assert (permissions.gate(at(guard)) is not None) is there


# -- what is written down -----------------------------------------------------------------------------------------------


class Written:
    def __init__(self) -> None:
        self.lines: list[tuple[Any, ...]] = []

    def changed(self, now: int, facts: dict[str, Any]) -> None:
        self.lines.append(("changed", now, facts))

    def refused(self, now: int, source: str, facts: dict[str, Any]) -> None:
        self.lines.append(("refused", now, source, facts))


def written(error: BaseException | None, user: str | None = "ann", **more: Any) -> list[tuple[Any, ...]]:
    guard, book = Guard(), Written()
    guard.audit = book
    code = more.get("code", RequestCode.UPDATE_AND_CREATE_TOPIC)
    place = at(guard, route=more.get("route", "CreateTopic"), code=code)
    gate = audit.gate(place)
    assert gate is not None
    call = Asked(**{"route": "CreateTopic", "code": code, "asked": SimpleNamespace(topic="orders"), **more})
    call.user = user
    ended = gate(call)
    assert ended is not None
    ended(error)
    return book.lines


FACTS = {
    "user": "ann",
    "from": "10.0.0.1",
    "port": "broker",
    "request": "CreateTopic",
    "action": "Create",
    "resources": ["Topic:orders"],
}


def test_changes_are_written_however_they_end_and_refusals_apart() -> None:
    assert written(None) == [("changed", NOW, {**FACTS, "result": "allowed"})]
    assert written(SystemFailure("no room")) == [
        ("changed", NOW, {**FACTS, "result": "failed", "why": "no room"})
    ]
    assert written(AccessDenied("not you")) == [
        ("refused", NOW, "10.0.0.1", {**FACTS, "result": "refused", "why": "not you"})
    ]


def test_the_right_that_was_missing_is_written_not_the_first_that_was_asked_for() -> None:
    asked = SimpleNamespace(topic="orders", consumer_group="g")
    reading: Any = {"code": RequestCode.PULL_MESSAGE, "route": "PullMessage", "asked": asked}
    ((_, _, _, facts),) = written(AccessDenied("no right", lacks="Update"), **reading)
    assert facts["action"] == "Update"
    ((_, _, _, facts),) = written(AccessDenied("not you"), **reading)
    assert facts["action"] == "Sub"


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ({"queue_id": 0, "offset": 0}, "g on t queue 0 to offset 0"),
        ({"queue_id": -1, "offset": 7}, "g on t to offset 7"),
        ({"offset": -1, "timestamp": 0}, "g on t to the first message"),
        ({"timestamp": -1}, "g on t to the end"),
        ({"timestamp": 1_700_000_000_123}, "g on t to 2023-11-14T22:13:20.123+00:00"),
    ],
)
def test_where_a_group_was_moved_is_written(asked: dict[str, int], told: str) -> None:
    header = ResetOffset(group="g", topic="t", **asked)  # type: ignore[arg-type]
    code = RequestCode.INVOKE_BROKER_TO_RESET_OFFSET
    ((_, _, facts),) = written(None, code=code, route="ResetOffset", asked=header)
    assert facts["change"] == told


def test_of_what_changes_nothing_only_refusals_are_written() -> None:
    reading: Any = {"code": RequestCode.PULL_MESSAGE, "route": "PullMessage"}
    asked = SimpleNamespace(topic="orders", consumer_group="g")
    assert written(None, **reading, asked=asked) == written(SystemFailure("x"), **reading, asked=asked) == []
    ((_, _, _, facts),) = written(AccessDenied("not you"), route="", code=9_999)
    assert facts["request"] == "code 9999"
    ((kind, _, _, facts),) = written(AccessDenied("not you"), **reading, asked=asked)
    assert (kind, facts["request"], facts["result"]) == ("refused", "PullMessage", "refused")


@pytest.mark.parametrize(
    ("user", "fields", "shown"),
    [
        ("ann", {"AccessKey": "eve"}, "ann"),
        ("", {"AccessKey": "eve"}, "eve?"),
        ("", for_grpc("eve", "x"), "eve?"),
        ("", {}, ""),
        ("", {"authorization": "nonsense"}, ""),
        (None, {"AccessKey": "eve"}, "eve?"),
        ("u" * 5_000, {}, "u" * 256),
    ],
)
def test_who_was_not_found_is_written_as_who_it_says_to_be(
    user: str | None, fields: dict[str, str], shown: str
) -> None:
    ((_, _, facts),) = written(None, user, fields=fields)
    assert facts["user"][:256] == shown
    assert len(facts["user"]) <= 256


@pytest.mark.parametrize(
    ("asked", "target"),
    [
        (SimpleNamespace(topic="t", username="shop"), "shop"),
        (SimpleNamespace(topic="t", subject="User:shop"), "User:shop"),
        (SimpleNamespace(topic="t", username="", subject="User:shop"), "User:shop"),
        (SimpleNamespace(topic="t"), None),
        (ProtocolError("x"), None),
    ],
)
def test_a_change_of_a_user_names_the_user(asked: Any, target: str | None) -> None:
    ((_, _, facts),) = written(None, asked=asked)
    assert facts.get("target") == target


def test_what_is_written_down_is_bounded() -> None:
    long = "x" * 1_000
    topics = [bodies.TopicConfig(topic_name=f"{n}-{long}") for n in range(9)]
    body = bodies.encode(bodies.TopicConfigList(topic_config_list=topics))
    ((_, _, facts),) = written(
        SystemFailure(long), code=RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, body=body,
        asked=SimpleNamespace(subject=long),
    )  # fmt: skip
    assert (facts["target"], facts["why"]) == (long[:256], long[:256])
    assert facts["resources"] == [f"Topic:{n}-{long}"[:256] for n in range(8)]


def test_an_account_of_a_list_is_named_as_the_target() -> None:
    ((_, _, facts),) = written(None, asked=SimpleNamespace(topic="t", access_key="shop"))
    assert facts["target"] == "shop"


def test_an_error_without_a_remark_is_written_as_it_reads() -> None:
    ((_, _, facts),) = written(ValueError("odd"))
    assert (facts["result"], facts["why"]) == ("failed", "odd")


def test_a_refusal_by_a_list_of_rocketmq_4_is_one_too() -> None:
    ((kind, *_, facts),) = written(AclDenied("not you"))
    assert (kind, facts["result"]) == ("refused", "refused")


def test_a_strangers_large_request_is_not_read_to_be_written_down() -> None:
    limit = audit._MAX_STRANGERS_BODY
    for size, user, resources in (
        (limit, "", ["Topic:orders"]),
        (limit + 1, "", []),
        (limit + 1, "ann", ["Topic:orders"]),
    ):
        ((_, _, facts),) = written(None, user, body=bytes(size))
        assert facts["resources"] == resources
    ((_, _, facts),) = written(None, asked=ProtocolError("x"))
    assert facts["resources"] == []


# -- how much, and where ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("route", ["UpdateBrokerConfig", "UpdateNamesrvConfig"])
def test_settings_are_of_a_size(route: str) -> None:
    gate = limits.gate(at(None, route=route))
    assert gate is not None
    gate(Asked(body=bytes(65_536)))
    with pytest.raises(InvalidParameter, match="settings of 65537 bytes, limit 65536"):
        gate(Asked(body=bytes(65_537)))


@pytest.mark.parametrize(
    ("route", "name", "what"),
    [("SendMessage", "messages", "messages"), ("AckMessage", "entries", "receipts")],
)
def test_grpc_requests_hold_so_much(route: str, name: str, what: str) -> None:
    gate = limits.gate(at(None, Port.GRPC, route, None))
    assert gate is not None
    gate(Asked(route=route, asked=SimpleNamespace(**{name: [0] * 1_000})))
    with pytest.raises(InvalidParameter, match=f"1001 {what} in one request, limit 1000"):
        gate(Asked(route=route, asked=SimpleNamespace(**{name: [0] * 1_001})))
    assert limits.gate(at(None, Port.BROKER, route)) is None
    assert limits.gate(at(None, Port.GRPC, "QueryRoute", None)) is None


READING = (
    RequestCode.PULL_MESSAGE,
    RequestCode.LITE_PULL_MESSAGE,
    RequestCode.POP_MESSAGE,
    RequestCode.PEEK_MESSAGE,
    RequestCode.NOTIFICATION,
    RequestCode.POLLING_INFO,
)


def test_the_second_port_reads_nothing() -> None:
    refused = {code for code in RequestCode if vip.gate(at(None, Port.VIP, "x", code)) is not None}
    assert refused == set(READING)
    assert all(vip.gate(at(None, Port.BROKER, "x", code)) is None for code in READING)
    gate = vip.gate(at(None, Port.VIP, "x", RequestCode.POP_MESSAGE))
    assert gate is not None
    with pytest.raises(RequestCodeNotSupported, match=f"request code {RequestCode.POP_MESSAGE}"):
        gate(Asked(code=RequestCode.POP_MESSAGE))
