# SPDX-License-Identifier: Apache-2.0
"""Options by role: each option stands in one part, each role has its parts, `Options` has everything."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import msgspec
import pytest

import aerobee
import aerobee.blocking
from aerobee.client.options import ROLES, Options, SessionOptions
from aerobee.client.session.session import Session
from aerobee.settings.declare import fields


def test_options_are_those_of_all_roles_together() -> None:
    together: dict[str, Any] = {}
    for role in ROLES:
        assert isinstance(Options(), role)
        assert issubclass(role, SessionOptions)
        for name, option in fields(role).items():
            said = (option.kind, option.default, option.about)
            assert together.setdefault(name, said) == said, "one declaration, whichever role it is seen in"
    assert set(together) == set(fields(Options))


def test_every_role_has_its_own_options_only() -> None:
    having = {
        name: {role.__name__ for role in ROLES if name in fields(role)}
        for name in ("heartbeat_ms", "compression", "send_timeout_ms", "pull_batch", "span", "poll_batch")
    }
    assert having == {
        "heartbeat_ms": {"ProducerOptions", "PushOptions", "PullOptions", "SimpleOptions"},
        "compression": {"ProducerOptions"},
        "send_timeout_ms": {"ProducerOptions", "PushOptions"},
        "pull_batch": {"PushOptions"},
        "span": {"PushOptions", "PullOptions"},
        "poll_batch": {"PullOptions"},
    }


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (
            lambda: aerobee.ProducerOptions(pull_batch=8),  # type: ignore[call-arg]
            "pull_batch is an option of PushOptions; a producer has none",
        ),
        (
            lambda: aerobee.SimpleOptions(span=8),  # type: ignore[call-arg]
            "span is an option of PushOptions and PullOptions; a simple consumer has none",
        ),
        (lambda: aerobee.PushOptions(poll_batch=8), "of PullOptions; a push consumer has none"),  # type: ignore[call-arg]
        (lambda: aerobee.PullOptions(trace=True), "of ProducerOptions and PushOptions; a pull consumer"),  # type: ignore[call-arg]
        (lambda: Options(pull_bach=8), "pull_bach"),  # type: ignore[call-arg]
    ],
)
def test_an_option_of_another_role_is_refused_with_the_roles_that_have_it(make: Any, said: str) -> None:
    with pytest.raises(TypeError, match=said):
        make()


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"send_timeout_ms": "3s"}, "send_timeout_ms is '3s'; it must be a whole number, at least 0 ms"),
        ({"send_retries": 101}, "send_retries is 101; it must be a whole number, 0 to 100"),
        ({"compression": "rar"}, "compression is 'rar'; it must be one of zlib, lz4, zstd, none"),
        ({"secret_key": "s"}, "access_key and secret_key belong together"),
    ],
)
def test_roles_check_their_options(wrong: dict[str, Any], said: str) -> None:
    for kind in (aerobee.ProducerOptions, Options):
        with pytest.raises(ValueError, match=said):
            kind(**wrong)
        with pytest.raises(ValueError, match=said):
            msgspec.structs.replace(kind(), **wrong)


def test_both_clients_have_them() -> None:
    for kind in (SessionOptions, Options, *ROLES):
        assert getattr(aerobee, kind.__name__) is kind
        assert getattr(aerobee.blocking, kind.__name__) is kind


NAMESRV = "127.0.0.1:9876"
CLIENTS: dict[type[SessionOptions], Any] = {
    aerobee.ProducerOptions: lambda where, **more: aerobee.Producer(where, group="g", **more),
    aerobee.PullOptions: lambda where, **more: aerobee.PullConsumer(where, group="g", **more),
    aerobee.SimpleOptions: lambda where, **more: aerobee.SimpleConsumer(
        where, group="g", topics={"t": "*"}, **more
    ),
    aerobee.PushOptions: lambda where, **more: aerobee.PushConsumer(
        where, group="g", topics={"t": "*"}, handler=print, **more
    ),
}


@pytest.mark.parametrize("role", ROLES)
async def test_a_client_takes_its_roles_options_or_all_of_them(role: type[SessionOptions]) -> None:
    for kind in (role, Options):
        options = CLIENTS[role](NAMESRV, options=kind(request_timeout_ms=77)).session.options
        assert options == Options(request_timeout_ms=77)
    others = [other for other in ROLES if not issubclass(other, role)]
    for other in others:
        with pytest.raises(
            TypeError, match=f"takes {role.__name__} or Options as options, not {other.__name__}"
        ):
            CLIENTS[role](NAMESRV, options=other())


@pytest.mark.parametrize("role", ROLES)
async def test_a_shared_session_serves_every_role(role: type[SessionOptions]) -> None:
    session = Session(NAMESRV, aerobee.ProducerOptions(request_timeout_ms=77, send_retries=5))
    options: Any = CLIENTS[role](session).session.options
    assert (options.request_timeout_ms, options.send_retries, options.pull_batch) == (77, 5, 32)


def test_the_page_of_options_is_fresh_and_whole() -> None:
    root = Path(__file__).parents[2]
    spec = importlib.util.spec_from_file_location("options_page", root / "tools" / "options_page.py")
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    text = made.PAGE.read_text()
    assert text == made.page(), "run `python tools/options_page.py`"
    assert [text.count(f"\n| `{name}` |") for name in fields(Options)] == [1] * len(fields(Options))
