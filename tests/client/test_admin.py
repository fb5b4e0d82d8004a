# SPDX-License-Identifier: Apache-2.0
"""The admin client's door: every question goes, as it was asked, to the part that answers it."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from aerobee.client.admin import Admin

PARTS = ("_topics", "_groups", "_progress", "_messages", "_brokers", "_access", "_asking")
LIFE = ("start", "stop")
QUESTIONS = [
    name
    for name, function in inspect.getmembers(Admin, inspect.isfunction)
    if not name.startswith("_") and name not in LIFE
]


class Recording:
    """Stands in for one method of a part: what it was called with is the answer."""

    def __init__(self, signature: inspect.Signature) -> None:
        self._signature = signature

    def __call__(self, *args: Any, **named: Any) -> Any:
        bound = self._signature.bind(*args, **named)
        bound.apply_defaults()
        told = dict(bound.arguments)
        told.update(told.pop("settings", {}) if self._collects else {})
        return self._later(told) if self._is_async else told

    _collects = False
    _is_async = True

    async def _later(self, told: dict[str, Any]) -> dict[str, Any]:
        self.told = told
        return told


def recording(part: object, name: str) -> Recording:
    real = getattr(part, name)
    made = Recording(inspect.signature(real))
    made._is_async = inspect.iscoroutinefunction(real)
    made._collects = "settings" in made._signature.parameters and name == "create_group"
    return made


@pytest.fixture
def admin() -> Admin:
    return Admin("127.0.0.1:1")


def given(name: str, *, all_of_them: bool) -> dict[str, Any]:
    """An argument for each parameter of the question; only those that must be given, when not all."""
    found: dict[str, Any] = {}
    for parameter in list(inspect.signature(getattr(Admin, name)).parameters.values())[1:]:
        if parameter.kind is parameter.VAR_KEYWORD:
            found.update({"retry_max_times": 3} if all_of_them else {})
        elif all_of_them or parameter.default is parameter.empty:
            found[parameter.name] = f"<{parameter.name}>"
    return found


@pytest.mark.parametrize("all_of_them", [True, False], ids=["all said", "the rest as usual"])
@pytest.mark.parametrize("name", QUESTIONS)
async def test_a_question_reaches_the_part_that_answers_it_whole(
    admin: Admin, monkeypatch: pytest.MonkeyPatch, name: str, all_of_them: bool
) -> None:
    (part,) = [each for each in PARTS if callable(getattr(getattr(admin, each), name, None))][:1]
    asked = recording(getattr(admin, part), name)
    monkeypatch.setattr(getattr(admin, part), name, asked)
    question = getattr(Admin, name)
    arguments = given(name, all_of_them=all_of_them)
    usual = {
        each.name: each.default
        for each in inspect.signature(question).parameters.values()
        if each.default is not each.empty
    }
    answer = getattr(admin, name)(**arguments)
    answer = await answer if inspect.iscoroutine(answer) else answer
    expected = {**usual, **arguments}
    if inspect.signature(question).return_annotation == "None":
        answer = asked.told
    assert answer == expected


@pytest.mark.parametrize("name", QUESTIONS)
def test_what_is_left_out_means_the_same_at_the_door_and_behind_it(admin: Admin, name: str) -> None:
    (part,) = [each for each in PARTS if callable(getattr(getattr(admin, each), name, None))][:1]
    behind = inspect.signature(getattr(getattr(admin, part), name)).parameters
    for parameter in list(inspect.signature(getattr(Admin, name)).parameters.values())[1:]:
        if behind[parameter.name].default is not parameter.empty:
            assert behind[parameter.name].default == parameter.default


def test_what_is_usual_is_what_the_pages_say() -> None:
    usual = {
        name: {
            each.name: each.default
            for each in inspect.signature(getattr(Admin, name)).parameters.values()
            if each.default not in (each.empty, None)
        }
        for name in QUESTIONS
    }
    assert {name: found for name, found in usual.items() if found} == {
        "create_topic": {"queues": 8, "perm": 6},
        "set_consume_mode": {"share": 0},
        "reset_offsets": {"queue_id": -1},
        "plan_reset": {"queue_id": -1},
        "messages_by_key": {"max_messages": 64, "begin": 0, "end": 2**63 - 1},
        "users": {"part_of_name": ""},
        "acls": {"part_of_subject": "", "part_of_resource": ""},
        "delete_acl": {"resource": ""},
        "may": {"source": "127.0.0.1"},
        "audit": {"last": 100},
        "trace": {"topic": "RMQ_SYS_TRACE_TOPIC"},
        "replace_white_addresses": {"file": ""},
    }


async def test_it_uses_its_session_while_it_is_open() -> None:
    admin = Admin("127.0.0.1:1")
    async with admin as entered:
        assert entered is admin
        assert admin.session.users == 1
    assert admin.session.users == 0
