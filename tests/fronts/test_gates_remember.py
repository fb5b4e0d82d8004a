# SPDX-License-Identifier: Apache-2.0
"""Who was let through once: known again by what decides, asked again when any of it is different."""

from __future__ import annotations

import base64
import hashlib
import hmac
from types import SimpleNamespace
from typing import Any

import pytest

from aerobee.errors import AccessDenied
from aerobee.fronts.gates import permissions
from aerobee.fronts.gates.call import Port
from aerobee.fronts.gates.recognised import recognised_at
from aerobee.protocol.codes import RequestCode
from tests.fronts.guarded import Asked, Guard, at


def test_who_was_let_through_is_asked_again_when_anything_that_decides_is_different() -> None:
    guard = Guard()
    pull: dict[str, Any] = {"route": "PullMessage", "code": RequestCode.PULL_MESSAGE}
    usual: dict[str, Any] = {"user": "ann", "topic": "t", "group": "g", "source": "10.0.0.1", **pull}

    def asks(**other: Any) -> bool:
        """Whether the guard is asked for it, and again for the same."""
        told = {**usual, **other}
        gate = permissions.gate(at(guard, route=told["route"], code=told["code"]))
        assert gate is not None
        header = SimpleNamespace(topic=told["topic"], consumer_group=told["group"], properties=None)
        call = Asked(asked=header, route=told["route"], code=told["code"], source=told["source"])
        call.user = told["user"]
        guard.asked.clear()
        gate(call)
        return bool(guard.asked)

    lite: dict[str, Any] = {"route": "LitePullMessage", "code": RequestCode.LITE_PULL_MESSAGE}
    others: list[dict[str, Any]] = [
        {}, {"user": "bob"}, {"topic": "u"}, {"group": "h"}, {"source": "10.0.0.2"}, lite,
        {"topic": "t" * 255}, {"group": "g" * 255},
    ]  # fmt: skip
    for other in others:
        assert asks(**other), other
    assert not any(asks(**other) for other in others), "all of them are known now"
    for never in ({"topic": "t" * 256}, {"group": "g" * 256}, {"topic": "%RETRY%g"}, {"user": ""}):
        assert asks(**never) and asks(**never), never


def test_a_refusal_is_not_remembered() -> None:
    guard = Guard()

    def refuse(*told: Any) -> None:
        raise AccessDenied("no")

    guard.check = refuse  # type: ignore[method-assign,assignment]
    gate = permissions.gate(at(guard))
    assert gate is not None
    for _ in range(2):
        call = Asked(asked=SimpleNamespace(topic="t", properties=None))
        call.user = "ann"
        with pytest.raises(AccessDenied):
            gate(call)
    assert not guard.passed


def test_as_many_as_may_be_are_remembered_and_then_it_begins_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(permissions, "MAX_REMEMBERED", 3)
    guard, known = Guard(), []
    gate = permissions.gate(at(guard))
    assert gate is not None
    for name in "abcde":
        call = Asked(asked=SimpleNamespace(topic=name, properties=None))
        call.user = "ann"
        gate(call)
        known.append(len(guard.passed))
    assert known == [1, 2, 3, 1, 2]


def test_only_signed_requests_of_remoting_are_known_again() -> None:
    def known(**other: Any) -> Any:
        guard = Guard()
        guard.open = other.pop("open", set())
        return recognised_at(at(other.pop("guard", guard), **other))

    for port in (Port.BROKER, Port.VIP):
        found = known(port=port)
        assert (found.route, found.needs_right) == ("SendMessageV2", True)
    assert known(guard=None) is None
    for port in (Port.GRPC, Port.HTTP, Port.NAMESRV):
        assert known(port=port) is None
    assert known(route="DeleteTopic", code=RequestCode.DELETE_TOPIC_IN_BROKER) is None
    assert known(open={"310"}) is None, "anybody's: its signature decides nothing"
    careless = Guard()
    careless.checks_rights = False
    assert known(guard=careless).needs_right is False


@pytest.mark.parametrize(
    ("passed", "source", "user", "secret", "admitted"),
    [
        (True, "10.0.0.1", "ann", b"s3cret", True),
        (False, "10.0.0.1", "ann", b"s3cret", False),
        (True, "10.0.0.2", "ann", b"s3cret", False),
        (True, "10.0.0.1", "eve", b"s3cret", False),
        (True, "10.0.0.1", "ann", b"wrong", False),
        (True, "trusted", "ann", b"s3cret", False),
    ],
)
def test_who_was_let_through_is_known_again_by_name_place_and_signature(
    passed: bool, source: str, user: str, secret: bytes, admitted: bool
) -> None:
    guard = Guard(ann="s3cret")
    if passed:
        guard.passed = {
            ("SendMessageV2", who, place, "orders")
            for who, place in (("ann", "10.0.0.1"), ("eve", "10.0.0.1"), ("ann", "trusted"))
        }
    found = recognised_at(at(guard))
    assert found is not None
    signature = base64.b64encode(hmac.new(secret, b"content", hashlib.sha1).digest())
    signed: Any = SimpleNamespace(user=user, names=("orders",), content=b"content", signature=signature)
    assert found.admits(signed, source) is admitted
    other: Any = SimpleNamespace(user=user, names=("bills",), content=b"content", signature=signature)
    assert not found.admits(other, source)
