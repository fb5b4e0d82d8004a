# SPDX-License-Identifier: Apache-2.0
"""The sink on brokers that refuse, and that lose connections before or after storing: nothing is lost, and what has a
sharding key keeps its queue and its order. No Spark is started."""

from __future__ import annotations

import itertools
import random
import re
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")

import pyarrow as pa

from aerobee.errors import AerobeeError, NetworkError, SystemBusy
from aerobee.protocol import batch, properties
from aerobee.protocol.bodies import BrokerData, QueueData, TopicRoute
from aerobee.protocol.headers.produce import SendMessageV2
from aerobee.protocol.routing import place_of_key, unfold
from aerobee.spark import cluster, options
from aerobee.spark.reading import tasks
from aerobee.spark.reading.batch_reader import BatchReader, Part
from aerobee.spark.writing import writer

if TYPE_CHECKING:
    from pathlib import Path

    from aerobee.protocol.command import Command
    from aerobee.protocol.routing import TopicQueues

ROUTE = unfold(
    "t",
    TopicRoute(
        broker_datas=[
            BrokerData(broker_name="broker-a", broker_addrs={0: "a:1"}),
            BrokerData(broker_name="broker-b", broker_addrs={0: "b:1"}),
        ],
        queue_datas=[
            QueueData(broker_name="broker-a", write_queue_nums=2),
            QueueData(broker_name="broker-b", write_queue_nums=5),
        ],
    ),
)
QUEUES = {(ROUTE.masters[queue.broker_name], queue.queue_id) for queue in ROUTE.writable}


class Brokers:
    """Two brokers of two and five queues; `dice` says what becomes of a request."""

    def __init__(self, dice: random.Random, trouble: float) -> None:
        self.stored: dict[tuple[str, int], list[tuple[bytes, str | None]]] = {}
        self.dice, self.trouble = dice, trouble

    def route(self) -> TopicQueues:
        if self.stored and self.dice.random() < self.trouble:
            raise NetworkError("no name server answers")
        return ROUTE

    def take(self, address: str, command: Command) -> AerobeeError | None:
        fates: list[tuple[bool, AerobeeError | None]] = [(True, None)]
        if self.dice.random() < self.trouble:
            fates = [
                (False, SystemBusy("busy")),
                (True, NetworkError("reset")),
                (False, NetworkError("reset")),
            ]
        stored, error = self.dice.choice(fates)
        if stored:
            header = command.fields(SendMessageV2)
            assert (address, header.queue_id) in QUEUES
            held = self.stored.setdefault((address, header.queue_id), [])
            _, bodies, texts = batch.columns(command.body)
            held += [
                (body, properties.get(text, "__SHARDINGKEY"))
                for body, text in zip(bodies, texts, strict=True)
            ]
        return error


class FakeConnection:
    def __init__(self, address: str, brokers: Brokers) -> None:
        self.address, self._brokers = address, brokers
        self._numbers = itertools.count(1)
        self._fates: dict[int, AerobeeError | None] = {}

    def send_command(self, command: Command) -> int:
        number = next(self._numbers)
        self._fates[number] = self._brokers.take(self.address, command)
        return number

    def receive(self, number: int) -> None:
        if number not in self._fates:
            raise NetworkError("the connection was lost before the answer came")
        error = self._fates.pop(number)
        if isinstance(error, NetworkError):
            self.close()
        if error is not None:
            raise error

    def close(self) -> None:
        self._fates.clear()


@pytest.fixture
def sender(monkeypatch: pytest.MonkeyPatch) -> Any:
    def make(brokers: Brokers, **given: str) -> writer.Sender:
        monkeypatch.setattr(cluster, "connection_to", lambda address, _: FakeConnection(address, brokers))
        monkeypatch.setattr(cluster.Cluster, "route", lambda *_: brokers.route())
        known = {"namesrv": "127.0.0.1:1", "topic": "t", "retryIntervalMs": "0", "numRetries": "1000"}
        return writer.Sender(options.for_write({**known, "maxBatchBytes": "1024", **given}))

    return make


def rows(first: int, count: int, keys: int) -> pa.RecordBatch:
    numbers = range(first, first + count)
    columns: dict[str, Any] = {"body": [b"%06d" % n for n in numbers]}
    if keys:
        columns["shardingKey"] = [f"user{n % keys}" for n in numbers]
    return pa.RecordBatch.from_pydict(columns)


def written(made: writer.Sender, keys: int) -> None:
    for first in range(0, 600, 200):
        made.write(rows(first, 200, keys))
    made.finish()


@pytest.mark.parametrize("trouble", [0.0, 0.2, 0.6])
@pytest.mark.parametrize("seed", range(5))
def test_rows_are_sent_at_least_once_and_spread(sender: Any, seed: int, trouble: float) -> None:
    brokers = Brokers(random.Random(seed), trouble)
    written(sender(brokers), keys=0)
    bodies = [body for held in brokers.stored.values() for body, _ in held]
    assert set(bodies) == {b"%06d" % n for n in range(600)}
    assert trouble or len(bodies) == 600
    assert len(brokers.stored) == len(QUEUES)


@pytest.mark.parametrize("trouble", [0.0, 0.2, 0.6])
@pytest.mark.parametrize("seed", range(5))
def test_a_key_keeps_its_queue_and_its_order_whatever_fails(sender: Any, seed: int, trouble: float) -> None:
    brokers = Brokers(random.Random(seed), trouble)
    written(sender(brokers), keys=20)
    by_key: dict[str | None, dict[tuple[str, int], list[bytes]]] = {}
    for queue, held in brokers.stored.items():
        for body, key in held:
            places = by_key.setdefault(key, {}).setdefault(queue, [])
            if (
                body not in places
            ):  # a repeated request brings rows again: what counts is when each first came
                places.append(body)
    assert len(by_key) == 20
    for key, queues in by_key.items():
        ((queue, came),) = queues.items()
        assert came == [b"%06d" % n for n in range(600) if f"user{n % 20}" == key]
        chosen = ROUTE.writable[place_of_key(str(key), len(ROUTE.writable))]
        assert queue == (ROUTE.masters[chosen.broker_name], chosen.queue_id)


@pytest.mark.parametrize("trouble", [0.0, 0.4])
def test_rows_that_name_their_queue_go_there_in_order_whatever_fails(sender: Any, trouble: float) -> None:
    brokers = Brokers(random.Random(3), trouble)
    named = [("broker-a", 1), ("broker-b", 4), (None, 0), ("broker-z", 1), ("broker-a", 7), (None, None)]
    numbers = range(300)
    batch = pa.RecordBatch.from_pydict(
        {
            "body": [b"%06d" % n for n in numbers],
            "shardingKey": [
                f"user{n}" if n % 6 < 3 else None for n in numbers
            ],  # the queue goes before the key
            "brokerName": [named[n % 6][0] for n in numbers],
            "queueId": pa.array([named[n % 6][1] for n in numbers], pa.int32()),
        }
    )
    made = sender(brokers)
    made.write(batch)
    made.finish()
    places: dict[int, list[tuple[tuple[str, int], list[bytes]]]] = {kind: [] for kind in range(6)}
    for queue, stored in brokers.stored.items():
        came = list(dict.fromkeys(body for body, _ in stored))
        for kind in range(6):
            if of_kind := [body for body in came if int(body) % 6 == kind]:
                places[kind].append((queue, of_kind))
    for kind in range(5):
        ((_, bodies),) = places[kind]  # all in one, also where no such queue is there
        assert bodies == [b"%06d" % n for n in numbers if n % 6 == kind]
    assert [places[kind][0][0] for kind in range(3)] == [("a:1", 1), ("b:1", 4), ("a:1", 0)]
    assert len(places[5]) == len(QUEUES)


def test_tries_run_out_with_topic_and_rows_named(sender: Any) -> None:
    made = sender(Brokers(random.Random(1), 1.0), numRetries="2")
    with pytest.raises(writer.WriteFailed, match=r"topic 't', rows \d+\.\.\d+: not sent after 3 tries"):
        written(made, keys=0)


@pytest.mark.parametrize("keys", [0, 20])
def test_brokers_may_be_away_for_a_thousand_tries(
    sender: Any, monkeypatch: pytest.MonkeyPatch, keys: int
) -> None:
    brokers = Brokers(random.Random(1), 0.0)
    made = sender(brokers, numRetries="2000")
    refusals = itertools.count()

    def connect(address: str, _: Any) -> FakeConnection:
        if next(refusals) < 1200:
            raise NetworkError(f"cannot reach {address}")
        return FakeConnection(address, brokers)

    monkeypatch.setattr(cluster, "connection_to", connect)
    written(made, keys)
    assert sum(map(len, brokers.stored.values())) == 600


class Served:
    """`aerobee serve` on the same ports and data however often it is killed."""

    def __init__(self, data: Path) -> None:
        self._data = data
        self._ports = ["--namesrv-port", "0", "--broker-port", "0"]
        self.start()

    def start(self) -> None:
        command = [
            sys.executable,
            "-m",
            "aerobee",
            "serve",
            "--data",
            str(self._data),
            "--log-level",
            "ERROR",
        ]
        command += [*self._ports, "--grpc-port", "-1", "--http-port", "-1"]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        told = dict(re.findall(r"(namesrv|broker)=(\S+)", self._process.stdout.readline()))
        self.namesrv = told["namesrv"]
        ports = [address.rpartition(":")[2] for address in (told["namesrv"], told["broker"])]
        self._ports = ["--namesrv-port", ports[0], "--broker-port", ports[1]]

    def kill(self) -> None:
        self._process.kill()
        self._process.communicate()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_a_server_killed_while_rows_are_sent_has_them_all_in_the_order_of_their_keys(tmp_path: Path) -> None:
    server = Served(tmp_path)
    try:
        given = {"namesrv": server.namesrv, "topic": "killed", "numRetries": "100", "retryIntervalMs": "100"}
        made = writer.Sender(options.for_write({**given, "maxBatchBytes": "2048"}))
        for first in range(0, 6000, 200):
            made.write(rows(first, 200, 20))
            if first in (1000, 2400, 4600):
                server.kill()
                server.start()
        made.finish()
        made.close()
        read = options.for_batch({"namesrv": server.namesrv, "subscribe": "killed", "orderedByQueue": "true"})
        planned = BatchReader(read, ("body", "queueId", "properties")).partitions()
        batches = [found for part in planned if isinstance(part, Part) for found in tasks.read(part.task)]
    finally:
        server.kill()
    by_key: dict[str, dict[int, list[bytes]]] = {}
    for row in (row for found in batches for row in found.to_pylist()):
        came = by_key.setdefault(dict(row["properties"])["__SHARDINGKEY"], {}).setdefault(row["queueId"], [])
        if row["body"] not in came:
            came.append(row["body"])
    assert len(by_key) == 20
    for key, queues in by_key.items():
        (came,) = queues.values()
        assert came == [b"%06d" % n for n in range(6000) if f"user{n % 20}" == key]
