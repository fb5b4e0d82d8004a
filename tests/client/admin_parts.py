# SPDX-License-Identifier: Apache-2.0
"""All parts of the admin client over a fake session and a name server that is a table."""

from __future__ import annotations

from typing import Any

from aerobee.client.admin.access import Access
from aerobee.client.admin.asking import Asking
from aerobee.client.admin.brokers import Brokers
from aerobee.client.admin.groups import Groups
from aerobee.client.admin.messages import Messages
from aerobee.client.admin.progress import Progress
from aerobee.client.admin.topics import Topics
from aerobee.protocol import bodies
from aerobee.protocol.bodies import BrokerData
from aerobee.protocol.command import Command
from aerobee.protocol.headers.offsets import (
    GetMaxOffset,
    GetMinOffset,
    OffsetResult,
    QueryConsumerOffset,
    SearchOffset,
)

PATIENCE_MS = 6_000
CLUSTER = bodies.ClusterInfo(
    broker_addr_table={
        name: BrokerData(broker_name=name, cluster=cluster, broker_addrs=addresses)
        for name, cluster, addresses in (
            ("a", "east", {0: "a:1", 1: "a-slave:1"}),
            ("b", "west", {0: "b:1"}),
            ("c", "west", {1: "c-slave:1"}),
        )
    },
    cluster_addr_table={"east": ["a"], "west": ["b", "c"], "empty": []},
)
NOBODY = bodies.ClusterInfo(broker_addr_table={}, cluster_addr_table={})


class Parts:
    """All parts of the admin client over one fake session whose name server answers from `table`."""

    def __init__(self, session: Any) -> None:
        self.session = session
        self.told_name_server: list[Any] = []
        self.table: dict[str, Any] = {"GetClusterInfo": CLUSTER}
        session.ask_name_server = self._ask
        self.asking = Asking(session)
        self.topics, self.groups = Topics(self.asking), Groups(self.asking)
        self.progress = Progress(self.asking, self.topics, self.groups)
        self.messages = Messages(self.asking, self.topics, self.progress)
        self.brokers, self.access = Brokers(self.asking), Access(self.asking)

    async def _ask(self, header: Any, body: bytes = b"") -> Command:
        self.told_name_server.append(header)
        found = self.table.get(type(header).__name__)
        if isinstance(found, BaseException):
            raise found
        return Command(0, body=b"" if found is None else bodies.encode(found))

    def answer(self, kind: type, *found: Any) -> None:
        self.session.answers[kind] = [
            each
            if isinstance(each, BaseException)
            else (0, None, b"" if each is None else bodies.encode(each))
            for each in found
        ]

    def offsets(self, low: int, high: int, *, stands_at: int | None = None, at_time: int = 0) -> None:
        """Of every queue alike."""
        answers = self.session.answers
        answers[GetMinOffset] = lambda *_: (0, OffsetResult(offset=low), b"")
        answers[GetMaxOffset] = lambda *_: (0, OffsetResult(offset=high), b"")
        answers[SearchOffset] = lambda *_: (0, OffsetResult(offset=at_time), b"")
        none_yet = (22, None, b"")
        answers[QueryConsumerOffset] = lambda *_: (
            none_yet if stands_at is None else (0, OffsetResult(offset=stands_at), b"")
        )

    def asked(self) -> list[tuple[str, int]]:
        return sorted((address, timeout_ms) for address, _, timeout_ms in self.session.asked)
