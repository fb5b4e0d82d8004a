# SPDX-License-Identifier: Apache-2.0
"""The table of docs/access-control.md: what each command needs, no more."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from aerobee.testing import TestServer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from conftest import Done

NAME = "Cluster:DefaultCluster"
DLQ = "%DLQ%g"
ROWS: list[tuple[tuple[str, ...], dict[str, str]]] = [
    (("send", "t", "x", "--keys", "k"), {"Topic:t": "Pub"}),
    (("consume", "t", "-g", "g", "--from", "first", "-c", "1"), {"Topic:t": "Sub", "Group:g": "Sub"}),
    (("groups", "show", "g"), {"Group:g": "Get"}),
    (("groups", "dead", "g"), {"Group:g": "Get", f"Topic:{DLQ}": "Sub"}),
    (("groups", "reset", "g", "-t", "t", "--yes"), {"Group:g": "Get,Update", "Topic:t": "Get,Update"}),
    (("groups", "create", "h"), {"Group:h": "Create"}),
    (("groups", "delete", "h", "--yes"), {"Group:h": "Get,Delete"}),
    (("groups", "list"), {"Group:*": "List,Get"}),
    (("topics", "list"), {"Topic:*": "List,Get"}),
    (("topics", "show", "t"), {"Topic:t": "Get", "Group:g": "Get"}),
    (("topics", "create", "u"), {"Topic:u": "Create"}),
    (("topics", "update", "u", "--retention", "12h"), {"Topic:u": "Create,Get"}),
    (("topics", "delete", "u", "--yes"), {"Topic:u": "Get,Delete", NAME: "Update"}),
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


@pytest.fixture(scope="module")
def server() -> Iterator[TestServer]:
    with TestServer.secured() as made:
        made.create_topic("t", queues=1)
        made.create_topic(DLQ, queues=1)
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
