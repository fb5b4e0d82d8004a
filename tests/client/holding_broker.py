# SPDX-License-Identifier: Apache-2.0
"""A broker behind the fake session: two queues that a group has read some of; it holds pulls until a test answers."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aerobee.client.session.session import Session
from aerobee.errors import RequestCodeNotSupported
from aerobee.protocol import bodies
from aerobee.protocol.bodies import MessageQueue
from aerobee.protocol.headers.consume import (
    ConsumerList,
    LitePullMessage,
    LockQueues,
    PullMessage,
    PullResult,
    QueryAssignment,
    UnlockQueues,
)
from aerobee.protocol.headers.offsets import (
    GetMaxOffset,
    GetMinOffset,
    OffsetResult,
    QueryConsumerOffset,
    UpdateConsumerOffset,
)

Q0, Q1 = MessageQueue("a", 0, "T"), MessageQueue("a", 1, "T")


class Broker:
    """Behind the fake session: has queues T0 and T1, of which a group has read `stands_at`; holds every pull."""

    def __init__(self, session: Any) -> None:
        self.session = session
        session.know("T", queues=2)
        self.stands_at = 5
        self.pulls: list[tuple[Any, asyncio.Future[Any]]] = []
        answers = session.answers
        answers[ConsumerList] = lambda *_: (
            0,
            None,
            bodies.encode(bodies.ConsumerIds(consumer_id_list=["me"])),
        )
        answers[QueryAssignment] = lambda *_: RequestCodeNotSupported("what?")
        answers[QueryConsumerOffset] = lambda *_: (0, OffsetResult(offset=self.stands_at), b"")
        answers[GetMinOffset] = lambda *_: (0, OffsetResult(offset=2), b"")
        answers[GetMaxOffset] = lambda *_: (0, OffsetResult(offset=9), b"")
        answers[LockQueues] = self._locked
        answers[UnlockQueues] = lambda *_: (0, None, b"")
        answers[PullMessage] = answers[LitePullMessage] = self._hold

    def _locked(self, address: str, header: Any, body: bytes) -> Any:
        wanted = bodies.decode(body, bodies.LockBatch).mq_set
        return 0, None, bodies.encode(bodies.LockedQueues(lock_ok_mq_set=wanted))

    def _hold(self, address: str, header: Any, body: bytes) -> Any:
        held = asyncio.get_running_loop().create_future()
        self.pulls.append((header, held))
        return held

    def held(self) -> list[tuple[int, int]]:
        """Queue and offset of the pulls nobody has answered or given up."""
        return sorted(
            (header.queue_id, header.queue_offset) for header, held in self.pulls if not held.done()
        )

    def answer(self, queue_id: int, body: bytes, following: int) -> None:
        for header, held in self.pulls:
            if header.queue_id == queue_id and not held.done():
                result = PullResult(next_begin_offset=following, min_offset=2, max_offset=9)
                held.set_result((0, result, body))

    def reported(self) -> list[tuple[int, int]]:
        return [
            (header.queue_id, header.commit_offset)
            for _, header, _ in self.session.sent
            if isinstance(header, UpdateConsumerOffset)
        ]


@pytest.fixture
def broker(session: Any, monkeypatch: pytest.MonkeyPatch) -> Broker:
    monkeypatch.setattr(Session, "of_role", staticmethod(lambda *_: session))
    return Broker(session)


async def started(consumer: Any, session: Any, settle: Any) -> None:
    """And everything its queues wait for before the first pull."""
    await consumer.start()
    await settle()
    session.clock.advance(session.options.dispatch_ms)
    await settle()


def names_of(tasks: Any) -> set[str]:
    return {task.get_name() for task in tasks._tasks}
