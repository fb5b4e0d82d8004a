# SPDX-License-Identifier: Apache-2.0
"""The compiled lane with access control on: it gets what was let through, and nothing behind the first that was not."""

from __future__ import annotations

import json
import struct
from typing import TYPE_CHECKING, Any

import pytest

from aerobee import native
from aerobee.broker.access.users import User
from aerobee.broker.broker import Broker, assemble
from aerobee.clock import ManualClock
from aerobee.fronts.remoting.front import RemotingFront
from aerobee.net.connection import Connection, Limits
from aerobee.protocol.access import Action, Decision, PolicyType, Resource
from aerobee.protocol.accounts import SIGNATURE, Credentials, sign
from aerobee.protocol.command import Command, decode, encode, header_fields
from aerobee.protocol.frames import FrameDecoder
from aerobee.protocol.headers.offsets import GetMaxOffset
from aerobee.protocol.headers.produce import SendMessageV2
from aerobee.protocol.policies import Entry, Policy
from aerobee.settings import BrokerConfig
from tests.access.ports import ANN, NOBODY
from tests.native.bench import SMALL, Wire

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from aerobee.protocol.command import Header

pytestmark = pytest.mark.skipif(not native.is_on, reason="the compiled lane is not built")
GUESSED = Credentials("ann", "guessed")


class Bench:
    """User ann, who may write `mine`, on a connection fed by hand."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        for topic in ("mine", "theirs"):
            broker.topics.ensure(topic, 4)
        broker.topics.save()
        broker.access.put_user(User(username="ann", password=ANN.secret_key))
        self.grant("mine")
        self.front = RemotingFront(broker)
        self.wire = Wire(("127.0.0.1", 40_000))
        self.taken = 0  # bytes of frames that the lane served
        self.connection = Connection(self.front.handle, None, Limits(max_frame=1 << 20), None, self._counted)
        self.connection.connection_made(self.wire)  # type: ignore[arg-type]

    def grant(self, *topics: str) -> None:
        entries = [Entry(Resource.parse(f"Topic:{name}"), (Action.PUB,), Decision.ALLOW) for name in topics]
        self.broker.access.put_policy("ann", Policy().merged(PolicyType.CUSTOM, entries))

    def _counted(self, data: bytes, at: int, connection: Connection) -> Any:
        assert self.front.run is not None
        end, answers = self.front.run(data, at, connection)
        self.taken += end - at
        return end, answers

    def feed(self, *frames: bytes) -> list[int]:
        """The codes of the answers to this read."""
        self.wire.written = b""
        self.connection.data_received(b"".join(frames))
        answers = sorted(
            (decode(frame) for frame in FrameDecoder().feed(self.wire.written)), key=lambda each: each.opaque
        )
        return [each.code for each in answers]

    def stored(self, topic: str) -> int:
        return self.broker.store.max_offset(topic, 0)


def frame(header: Header, who: Credentials, opaque: int = 0, body: bytes = b"x" * 100) -> bytes:
    command = Command(type(header).code, ext=header_fields(header), body=body)
    command.opaque = opaque
    return encode(sign(command, who))


def send(number: int, who: Credentials = ANN, topic: str = "mine") -> bytes:
    properties = f"UNIQ_KEY\x01{number:032X}\x02"
    return frame(SendMessageV2(topic=topic, queue_id=0, properties=properties), who, number)


@pytest.fixture(params=["plain", "audited"])
def bench(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Bench]:
    audit = str(tmp_path / "audit.jsonl") if request.param == "audited" else ""
    config = BrokerConfig(authentication=True, authorization=True, audit_log=audit)
    made = Bench(assemble(config, SMALL, tmp_path / "data", ManualClock()))
    assert made.feed(send(0)) == [0]
    yield made
    made.broker.store.close()


def test_a_run_of_signed_sends_is_the_lanes(bench: Bench) -> None:
    frames = [send(number) for number in range(1, 20)]
    assert bench.feed(*frames) == [0] * 19
    assert bench.taken == sum(map(len, frames))
    assert bench.stored("mine") == 20


def test_who_was_let_through_is_known_again_by_name_and_signature(bench: Bench) -> None:
    asked: list[Command] = []
    runs = bench.front.run.__self__  # type: ignore[union-attr]
    admits = runs._admits
    runs._admits = lambda connection, command: asked.append(command) or admits(connection, command)
    assert bench.feed(send(1), send(2)) == [0, 0]
    assert not asked, "the gates were not"
    bench.grant("mine", "theirs")
    assert bench.feed(send(3), send(4), send(5, ANN, "theirs")) == [0, 0, 0]
    assert [each.opaque for each in asked] == [3, 5], "one of each topic, since policies changed"


def test_a_new_password_counts_from_the_next_read_on(bench: Bench) -> None:
    assert bench.feed(send(1)) == [0]
    bench.broker.access.put_user(User(username="ann", password="another-one"))
    assert bench.feed(send(2), send(3, Credentials("ann", "another-one"))) == [16, 0]
    assert bench.stored("mine") == 3


@pytest.mark.parametrize(
    "refused",
    [
        lambda number: send(number, GUESSED),
        lambda number: send(number, NOBODY),
        lambda number: send(number, ANN, "theirs"),
    ],
    ids=["guessed", "unsigned", "no right"],
)
def test_one_that_is_refused_stops_no_other_and_passes_with_none(
    bench: Bench, refused: Callable[[int], bytes]
) -> None:
    frames = [send(1), send(2), refused(3), send(4), send(5)]
    assert bench.feed(*frames) == [0, 0, 16, 0, 0]
    assert (bench.stored("mine"), bench.stored("theirs")) == (5, 0)
    assert bench.feed(refused(6)) == [16]


def test_a_request_of_another_kind_goes_the_ordinary_way(bench: Bench) -> None:
    other = frame(GetMaxOffset(topic="mine", queue_id=0), ANN, 2, b"")
    before = bench.taken
    assert bench.feed(send(1), other, send(3)) == [0, 16, 0], "Pub is no right to ask for offsets"
    assert bench.taken - before == len(send(1)) + len(send(3))


def test_a_right_that_is_taken_away_is_gone_for_the_next_read(bench: Bench) -> None:
    assert bench.feed(send(1), send(2)) == [0, 0]
    bench.grant("other")
    assert bench.feed(send(3), send(4)) == [16, 16]
    assert bench.stored("mine") == 3


def test_a_cut_frame_waits_for_its_end(bench: Bench) -> None:
    whole = send(1) + send(2)
    assert bench.feed(whole[:-10]) == [0]
    assert bench.feed(whole[-10:]) == [0]
    assert bench.stored("mine") == 3


@pytest.mark.parametrize("first", ["mine", "theirs"])
def test_a_topic_said_twice_is_stored_where_it_was_asked_about(bench: Bench, first: str) -> None:
    """Readers of JSON differ about which one counts: the lane takes none, so there is one reader."""
    second = "theirs" if first == "mine" else "mine"
    command = decode(send(1, ANN, second)[4:])
    fields = command.ext_dict()
    pairs = [("b", first), *((name, value) for name, value in fields.items())]
    ext = ",".join(f"{json.dumps(name)}:{json.dumps(value)}" for name, value in pairs)
    head = (
        f'{{"code":310,"flag":0,"language":"JAVA","opaque":1,"version":500,"extFields":{{{ext}}}}}'.encode()
    )
    data = struct.pack(">II", 4 + len(head) + len(command.body), len(head)) + head + command.body
    before = bench.stored("mine")
    assert bench.feed(data) == [0 if second == "mine" else 16]
    assert (bench.stored("mine") - before, bench.stored("theirs")) == (1 if second == "mine" else 0, 0)
    assert SIGNATURE in fields


@pytest.mark.parametrize(("who", "counted"), [(ANN, 0), (GUESSED, 1), (NOBODY, 1)])
def test_a_login_is_counted_as_refused_once_and_not_before_its_request_is_whole(
    bench: Bench, who: Credentials, counted: int
) -> None:
    bench.grant("mine")  # nobody is known again: the gates are asked
    whole = send(1, who)
    bench.feed(whole[:-10])
    assert bench.broker.access.refused_logins == 0
    assert bench.feed(whole[-10:]) == [16 if counted else 0]
    assert bench.broker.access.refused_logins == counted
