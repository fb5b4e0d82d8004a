# SPDX-License-Identifier: Apache-2.0
"""The table of docs/access-control.md: what each command needs, no more."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from aerobee import Message, Options, Producer, blocking
from aerobee.testing import TestServer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from conftest import Done

NAME = "Cluster:DefaultCluster"
DLQ = "%DLQ%g"
ROWS: list[tuple[tuple[str, ...], dict[str, str]]] = [
    (("send", "t", "x", "--keys", "k"), {"Topic:t": "Pub"}),
    (("send", "made-by-a-send", "x"), {"Topic:made-by-a-send": "Pub"}),
    (("consume", "t", "-g", "g", "--from", "first", "-c", "1"), {"Topic:t": "Sub", "Group:g": "Sub"}),
    (("groups", "show", "g"), {"Group:g": "Get"}),
    (("groups", "dead", "g"), {"Group:g": "Get", f"Topic:{DLQ}": "Sub"}),
    (("groups", "reset", "g", "-t", "t", "--yes"), {"Group:g": "Get,Update", "Topic:t": "Get,Update"}),
    (("groups", "create", "h"), {"Group:h": "Create"}),
    (("groups", "delete", "old", "--yes"), {"Group:old": "Get,Delete"}),
    (("groups", "list"), {"Group:*": "List,Get"}),
    (("topics", "list"), {"Topic:*": "List,Get"}),
    (("topics", "show", "t"), {"Topic:t": "Get", "Group:g": "Get"}),
    (("topics", "create", "u"), {"Topic:u": "Create"}),
    (("topics", "update", "changed", "--retention", "12h"), {"Topic:changed": "Create,Get"}),
    (("topics", "delete", "old", "--yes"), {"Topic:old": "Get,Delete", NAME: "Update"}),
    (("messages", "browse", "t", "-c", "1"), {"Topic:t": "Sub"}),
    (("messages", "by-key", "t", "k"), {"Topic:t": "Get"}),
    (
        ("messages", "delayed"),
        {NAME: "Get", "Topic:SCHEDULE_TOPIC_XXXX": "Sub", "Topic:rmq_sys_wheel_timer": "Sub"},
    ),
    (("cluster",), {NAME: "Get"}),
    (("settings", "-b", "broker-a"), {NAME: "Get"}),
    (("cluster", "set", "popPollingSize=1024"), {NAME: "Get,Update"}),
    (("access", "users"), {NAME: "Get"}),
]


@pytest.fixture(scope="module")  # and each row finds what it needs, whichever ran before it
def server() -> Iterator[TestServer]:
    with TestServer.secured() as made:
        for topic in ("t", DLQ, "changed", "old"):
            made.create_topic(topic, queues=1)
        with blocking.Admin(made.namesrv, options=Options(**made.account)) as admin:
            for group in ("g", "old"):
                admin.create_group(group)
        with blocking.Producer(made.namesrv, group="shop", options=Options(**made.account)) as producer:
            producer.send(Message("t", b"x", keys=["k"]))
        yield made


@pytest.mark.parametrize(("command", "rights"), ROWS, ids=[" ".join(row[0]) for row in ROWS])
def test_a_command_needs_what_the_page_says(
    aerobee: Callable[..., Done],
    server: TestServer,
    monkeypatch: pytest.MonkeyPatch,
    command: tuple[str, ...],
    rights: dict[str, str],
) -> None:
    user = "user-" + str(ROWS.index((command, rights)))
    server.add_user(user, "secret-of-it", rights)
    monkeypatch.setenv("AEROBEE_ACCESS_KEY", user)
    monkeypatch.setenv("AEROBEE_SECRET_KEY", "secret-of-it")
    done = aerobee(*command)
    assert done.code == 0, done.err


async def test_a_trace_needs_only_to_look_at_the_topic_and_at_that_of_traces(
    aerobee: Callable[..., Done], server: TestServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = Options(trace=True, **server.account)
    async with Producer(server.namesrv, group="traced", options=options) as producer:
        sent = await producer.send(Message("t", b"x"))
    server.add_user("looks", "secret-of-it", {"Topic:t": "Get", "Topic:RMQ_SYS_TRACE_TOPIC": "Get"})
    monkeypatch.setenv("AEROBEE_ACCESS_KEY", "looks")
    monkeypatch.setenv("AEROBEE_SECRET_KEY", "secret-of-it")
    done = await asyncio.to_thread(aerobee, "messages", "trace", sent.message_id, "--json")
    assert done.code == 0, done.err
    assert [(row["what"], row["group"], row["result"]) for row in done.json] == [("sent", "traced", "ok")]
