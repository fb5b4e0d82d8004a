# SPDX-License-Identifier: Apache-2.0
"""The client without `async`: for scripts, cron jobs, Flask views, notebooks.

python examples/blocking_script.py
"""

from __future__ import annotations

import os
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import aerobee.blocking as aerobee
from aerobee.testing import TestServer, wait_until

if TYPE_CHECKING:
    from collections.abc import Generator

TOPIC = "script-jobs"


@contextmanager
def name_server() -> Generator[str]:
    """The one named by AEROBEE_NAMESRV, or a server inside this process."""
    if given := os.environ.get("AEROBEE_NAMESRV"):
        yield given
        return
    with TestServer() as server:
        print(f"embedded server: name server at {server.namesrv}")
        yield server.namesrv


def send_some(namesrv: str) -> None:
    with aerobee.Producer(namesrv, group="scripts") as producer:
        sent = producer.send(aerobee.Message(TOPIC, b"one", tags="new", keys=["job-1"]))
        print(f"sent one: message {sent.message_id}, queue {sent.queue.queue_id}, offset {sent.queue_offset}")
        results = producer.send_batch([aerobee.Message(TOPIC, f"batch {n}".encode()) for n in range(5)])
        print(f"sent a batch of 5 in {len(results)} request")
        soon = datetime.now(UTC) + timedelta(seconds=2)
        producer.send(aerobee.Message(TOPIC, b"later", deliver_at=soon))
        print(f"sent one to be delivered at {soon:%H:%M:%S}")


def poll_them(namesrv: str) -> None:
    """A pull consumer: messages when asked for."""
    with aerobee.PullConsumer(namesrv, group="script-poll", topics={TOPIC: "*"}, start="first") as consumer:
        found: list[bytes] = []
        while len(found) < 6:
            found += [message.body for message in consumer.poll(max_messages=32, timeout_ms=2_000)]
        print(f"polled {len(found)}: {sorted(found)}")


def push_them(namesrv: str) -> None:
    """A push consumer: the function runs in threads, as many at once as `concurrency` says."""
    found: list[bytes] = []
    with aerobee.PushConsumer(
        namesrv,
        group="script-push",
        topics={TOPIC: "*"},
        handler=lambda message: found.append(message.body),
        start="first",
        options=aerobee.Options(concurrency=4),
    ):
        wait_until(lambda: len(found) >= 7, timeout_ms=20_000)
    print(f"pushed {len(found)}, the delayed one among them: {b'later' in found}")


def look(namesrv: str) -> None:
    with aerobee.Admin(namesrv) as admin:
        [job] = admin.messages_by_key(TOPIC, "job-1")[:1]
        print(f"found by key job-1: {job.body!r}, stored {job.stored_at:%H:%M:%S}")
        print(f"script-poll has {admin.lag('script-poll').ready} messages left to read")


if __name__ == "__main__":
    with name_server() as address:
        send_some(address)
        poll_them(address)
        push_them(address)
        look(address)
