# SPDX-License-Identifier: Apache-2.0
"""A task over the wire against a peer that answers late, out of order, in small pieces, or hangs up at any moment."""

from __future__ import annotations

import socket
import struct
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

from aerobee.errors import NetworkError
from aerobee.protocol import command as wire
from aerobee.protocol import message
from aerobee.protocol.headers.consume import PullMessage, PullResult
from aerobee.protocol.message import Record
from aerobee.spark import options
from aerobee.spark.blocking_connection import BlockingConnection
from aerobee.spark.reading import tasks
from aerobee.spark.reading.plan import Range

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from aerobee.protocol.command import Command

COUNT = 50  # messages of every queue


class Peer:
    """Answers pulls with a few messages each. `breaks(n)`: hang up right after the n-th answer; `shuffled`: answer two
    requests the wrong way round when both are there."""

    def __init__(
        self, a_time: int = 8, breaks: Callable[[int], bool] = lambda _: False, *, shuffled: bool = False
    ) -> None:
        self._a_time, self._breaks, self._shuffled = a_time, breaks, shuffled
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listening.getsockname()[1]}"
        self.answers = 0
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listening.accept()
            except OSError:
                return
            with connection, suppress(ConnectionError):
                self._talk(connection)

    def _talk(self, connection: socket.socket) -> None:
        data = b""
        while chunk := connection.recv(65536):
            data += chunk
            asked = []
            while len(data) >= 4 and len(data) >= 4 + (size := int.from_bytes(data[:4], "big")):
                asked.append(wire.decode(data[4 : 4 + size]))
                data = data[4 + size :]
            for command in reversed(asked) if self._shuffled else asked:
                connection.sendall(self._answer(command))
                self.answers += 1
                if self._breaks(self.answers):
                    return

    def _answer(self, command: Command) -> bytes:
        header = command.fields(PullMessage)
        end = min(COUNT, header.queue_offset + min(self._a_time, header.max_msg_nums))
        body = b"".join(record(header.queue_id, at) for at in range(header.queue_offset, end))
        result = PullResult(next_begin_offset=end, min_offset=0, max_offset=COUNT, suggest_which_broker_id=0)
        fields = wire.header_fields(result)
        return wire.encode(wire.Command(0, command.opaque, flag=1, ext=fields, body=body))

    def close(self) -> None:
        if self._listening.fileno() >= 0:
            self._listening.shutdown(socket.SHUT_RDWR)
            self._listening.close()
        self._thread.join(10)


def record(queue: int, offset: int) -> bytes:
    made = Record("t", b"%d/%d" % (queue, offset), f"TAGS\x01a\x02UNIQ_KEY\x01{queue}-{offset}\x02", queue)
    made.queue_offset = offset
    return message.encode(made)


@pytest.fixture
def peer() -> Iterator[Callable[..., Peer]]:
    peers: list[Peer] = []

    def make(*given: Any, **named: Any) -> Peer:
        peers.append(Peer(*given, **named))
        return peers[-1]

    yield make
    for one in peers:
        one.close()


def rows(peer: Peer, queues: int = 6, **given: str) -> list[tuple[int, int, str]]:
    read = options.for_batch({"namesrv": peer.address, "subscribe": "t", "retryIntervalMs": "1", **given})
    parts = [Range("t", "b", queue, 0, COUNT) for queue in range(queues)]
    task = tasks.Task(read, parts, {"b": peer.address}, ("queueId", "queueOffset", "body"))
    found = []
    for batch in tasks.read(task):
        found += [(row["queueId"], row["queueOffset"], row["body"].decode()) for row in batch.to_pylist()]
    return found


EVERYTHING = [(queue, at, f"{queue}/{at}") for queue in range(6) for at in range(COUNT)]


@pytest.mark.parametrize("a_time", [1, 7, 32, 1000])
@pytest.mark.parametrize("batch", ["1", "60", "10000"])
def test_answers_of_any_size_make_the_rows_in_order(
    peer: Callable[..., Peer], a_time: int, batch: str
) -> None:
    assert rows(peer(a_time), batchRows=batch) == EVERYTHING


def test_answers_may_come_in_another_order(peer: Callable[..., Peer]) -> None:
    assert rows(peer(shuffled=True)) == EVERYTHING


@pytest.mark.parametrize("every", [1, 2, 3, 5, 11])
def test_nothing_is_lost_when_the_connection_breaks_after_an_answer(
    peer: Callable[..., Peer], every: int
) -> None:
    # The answer has been read, the next question meets a closed connection: the rows of that answer must stay.
    assert rows(peer(8, lambda n: n % every == 0)) == EVERYTHING


def test_a_peer_that_is_gone_is_an_error_that_names_it(peer: Callable[..., Peer]) -> None:
    one = peer(8, lambda n: True)
    one.close()
    with pytest.raises(NetworkError, match=one.address):
        rows(one)


def test_an_answer_that_can_no_longer_come_is_an_error(peer: Callable[..., Peer]) -> None:
    link = BlockingConnection(peer().address)
    opaque = link.send(tasks.request(Range("t", "b", 0, 0, COUNT), 0, options.for_batch(
        {"namesrv": "127.0.0.1:1", "subscribe": "t"})))  # fmt: skip
    link.close()
    with pytest.raises(NetworkError, match="lost before the answer"):
        link.receive(opaque)


def test_frames_that_were_never_asked_for_are_dropped() -> None:
    listening = socket.create_server(("127.0.0.1", 0))
    link = BlockingConnection(f"127.0.0.1:{listening.getsockname()[1]}")
    sent = link.send(PullMessage(consumer_group="g", topic="t", queue_id=0, queue_offset=0))
    connection, _ = listening.accept()
    for opaque, flag in ((999, 1), (sent, 0), (sent, 1)):  # of nobody, the broker's own request, ours
        text = b'{"code":0,"flag":%d,"opaque":%d}' % (flag, opaque)
        connection.sendall(struct.pack(">II", len(text) + 4, len(text)) + text)
    assert link.receive(sent).opaque == sent
    link.close()
    connection.close()
    listening.close()


@pytest.mark.parametrize(
    ("broken_at_a_time", "retries", "comes"), [(2, 2, True), (3, 2, False), (1, 0, False)]
)
def test_failures_in_a_row_are_counted_and_those_before_an_answer_are_not(
    peer: Callable[..., Peer], broken_at_a_time: int, retries: int, comes: bool
) -> None:
    """Each piece of a queue may fail as often as the option says, however often others have failed before it."""
    one = peer()
    failures = {"left": broken_at_a_time}
    real = one._answer

    def answer(command: Command) -> bytes:
        if failures["left"]:
            failures["left"] -= 1
            raise ConnectionError("hung up")
        failures["left"] = broken_at_a_time
        return real(command)

    one._answer = answer  # type: ignore[method-assign]
    if comes:
        assert len(rows(one, queues=1, numRetries=str(retries))) == COUNT
    else:
        with pytest.raises(NetworkError):
            rows(one, queues=1, numRetries=str(retries))


@pytest.mark.parametrize(
    ("given", "length", "asked"),
    [
        ({}, 100_000, (16_384, 4 << 20, "*", "TAG")),
        ({}, 100, (100, 4 << 20, "*", "TAG")),
        ({"tags": "a||b"}, 100, (100, 4 << 20, "a||b", "TAG")),
        ({"sqlFilter": "price > 1"}, 100, (100, 4 << 20, "price > 1", "SQL92")),
    ],
)
def test_a_piece_is_asked_for_as_large_as_it_may_be_and_no_larger(
    given: dict[str, str], length: int, asked: tuple[int, int, str, str]
) -> None:
    told = options.for_batch({"namesrv": "h:1", "subscribe": "t", **given})
    header = tasks.request(Range("t", "b", 3, 5, 5 + length), 5, told)
    assert (header.max_msg_nums, header.max_msg_bytes, header.subscription, header.expression_type) == asked
    assert (header.topic, header.queue_id, header.queue_offset) == ("t", 3, 5)
    assert header.suspend_timeout_millis == 0, "nobody waits for what is to come"
