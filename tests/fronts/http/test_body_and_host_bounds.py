# SPDX-License-Identifier: Apache-2.0
"""Bodies and hosts of the HTTP port as an application is called: what passes, what is refused, and what was said by
then."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from starlette.requests import ClientDisconnect

from aerobee.fronts.http.bounds import BodyBound, KnownHost, is_loopback

if TYPE_CHECKING:
    from collections.abc import Callable

START = {"type": "http.response.start", "status": 200, "headers": []}


class App:
    """Reads all, then answers how much it was; or answers first."""

    def __init__(self, *, answers_first: bool = False) -> None:
        self.answers_first = answers_first
        self.seen: list[Any] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.seen.append(scope)
        if self.answers_first:
            await send(START)
        read, more = 0, scope["type"] == "http"
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise ClientDisconnect
            read += len(message.get("body", b""))
            more = message.get("more_body", False)
        if not self.answers_first:
            await send(START)
        await send({"type": "http.response.body", "body": b"%d" % read})


async def asked(
    app: Any, *pieces: bytes, leaves: bool = False, scope: dict[str, Any] | None = None, **headers: str
) -> list[Any]:
    """What is sent in answer to a body in these pieces."""
    coming = [{"type": "http.request", "body": piece, "more_body": True} for piece in pieces]
    coming.append({"type": "http.disconnect"} if leaves else {"type": "http.request", "more_body": False})
    sent: list[Any] = []

    async def receive() -> Any:
        return coming.pop(0)

    async def send(message: Any) -> None:
        sent.append(message)

    named = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    await app(scope or {"type": "http", "method": "POST", "path": "/x", "headers": named}, receive, send)
    return sent


def status(sent: list[Any]) -> list[int]:
    return [message["status"] for message in sent if message["type"] == "http.response.start"]


@pytest.mark.parametrize(
    ("stated", "code"),
    [("0", 200), ("10", 200), ("11", 413), ("-1", 413), ("ten", 413), ("", 413), ("1e1", 413), ("²", 413)],
)
async def test_a_stated_length_is_a_number_within_the_bound(stated: str, code: int) -> None:
    app = App()
    sent = await asked(BodyBound(app, 10), content_length=stated)
    assert status(sent) == [code]
    assert len(app.seen) == (code == 200), "what is refused is not looked at"


@pytest.mark.parametrize(
    ("pieces", "code"), [([b"x" * 10], 200), ([b"x" * 5, b"x" * 5], 200), ([b"x" * 5] * 3, 413)]
)
async def test_a_body_without_a_length_is_counted_as_it_comes(pieces: list[bytes], code: int) -> None:
    sent = await asked(BodyBound(App(), 10), *pieces)
    assert status(sent) == [code]


async def test_a_refusal_says_why_and_closes_what_would_go_on() -> None:
    start, body = await asked(BodyBound(App(), 10), b"x" * 11)
    headers = dict(start["headers"])
    assert (start["status"], headers[b"connection"]) == (413, b"close")
    assert json.loads(body["body"]) == {"error": "a body of more than 10 bytes"}


async def test_who_has_begun_to_answer_is_not_interrupted_by_another_answer() -> None:
    sent = await asked(BodyBound(App(answers_first=True), 10), b"x" * 11)
    assert sent == [START]


async def test_who_leaves_in_the_middle_is_no_failure() -> None:
    assert await asked(BodyBound(App(), 10), b"x", leaves=True) == []


async def test_other_failures_are_not_hidden() -> None:
    async def fails(scope: Any, receive: Any, send: Any) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await asked(BodyBound(fails, 10))


@pytest.mark.parametrize("make", [lambda app: BodyBound(app, 0), lambda app: KnownHost(app, ["here"])])
async def test_what_is_no_request_passes(make: Callable[[Any], Any]) -> None:
    app, life = App(), {"type": "lifespan", "path": "/x", "headers": []}
    await asked(make(app), scope=life)
    assert app.seen == [life]


@pytest.mark.parametrize(
    ("path", "host", "code"),
    [
        ("/x", "here", 200), ("/x", "HERE:80", 200), ("/x", "there", 421), ("/x", "127.0.0.1:80", 200),
        ("/healthz", "there", 200), ("/readyz", "there", 200), ("/metrics", "there", 200),
        ("/metrics/x", "there", 421), ("/api", "there", 421), ("/x", "sub.localhost", 200), ("/x", "notlocalhost", 421),
    ],
)  # fmt: skip
async def test_a_server_is_spoken_to_by_its_names(path: str, host: str, code: int) -> None:
    scope = {"type": "http", "method": "GET", "path": path, "headers": [(b"host", host.encode())]}
    sent = await asked(KnownHost(App(), ["Here"]), scope=scope)
    assert status(sent) == [code]
    if code == 421:
        said = json.loads(sent[1]["body"])
        assert said == {"error": f"host {host!r} is not served here; setting http_hosts names more"}


async def test_a_host_is_told_back_in_part() -> None:
    scope = {"type": "http", "method": "GET", "path": "/x", "headers": [(b"host", b"y" * 1_000)]}
    sent = await asked(KnownHost(App(), []), scope=scope)
    assert f"host {'y' * 100!r} is" in json.loads(sent[1]["body"])["error"]


@pytest.mark.parametrize(
    ("host", "is_ours"),
    [
        ("localhost", True), ("a.localhost", True), ("127.0.0.1", True), ("127.9.9.9", True), ("::1", True),
        ("alocalhost", False), ("localhost.example", False), ("10.0.0.1", False), ("0.0.0.0", False), ("", False),
    ],
)  # fmt: skip
def test_the_loopback_is_known_by_its_names(host: str, is_ours: bool) -> None:
    assert is_loopback(host) is is_ours
