# SPDX-License-Identifier: Apache-2.0
"""What access control costs a request, in microseconds of the processor, without sockets.

    python -m benchmarks.access [--count 3000]

Each request is handled by the port's own path, gates and all, and all kinds of requests take turns; the least of the
rounds counts. Refusals are measured too: who is let in nowhere must not cost more than who is. The compiled lane is not
in it: it serves runs of requests that no gate stands before.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aerobee.broker.access.users import User
from aerobee.broker.broker import Broker, assemble
from aerobee.clock import SystemClock
from aerobee.fronts.remoting.front import RemotingFront
from aerobee.protocol import command as wire
from aerobee.protocol.access import Action, Decision, PolicyType, Resource
from aerobee.protocol.accounts import SIGNATURE, Credentials, sign
from aerobee.protocol.command import Command, Header
from aerobee.protocol.headers.consume import PullMessage
from aerobee.protocol.headers.produce import SendMessageV2
from aerobee.protocol.message import pack_host
from aerobee.protocol.policies import Entry, Policy
from aerobee.settings import BrokerConfig, StoreConfig

if TYPE_CHECKING:
    from collections.abc import Callable

    Change = Callable[[dict[str, str]], dict[str, str]]

ANN, GUESSED = Credentials("ann", "ann-secret"), Credentials("ann", "guessed")
SEND = SendMessageV2(topic="bench", queue_id=0, properties="UNIQ_KEY\x01" + "A" * 32 + "\x02WAIT\x01true\x02")
PULL = PullMessage(
    consumer_group="g",
    topic="bench",
    queue_id=0,
    queue_offset=0,
    sys_flag=4,
    subscription="*",
    max_msg_nums=1,
)
OTHER = SendMessageV2(topic="other", queue_id=0)
BODY = b"x" * 1024
ROUNDS = 9


class Peer:
    remote = ("10.1.2.3", 5000)
    remote_text = "10.1.2.3:5000"
    remote_packed = pack_host("10.1.2.3", 5000)

    def __init__(self) -> None:
        self.attributes: dict[str, Any] = {}


def broker_of(directory: str, **settings: Any) -> Broker:
    small = StoreConfig(commit_log_segment_bytes=1 << 28, index_slots=1000, index_entries=4000)
    broker = assemble(BrokerConfig(**settings), small, Path(directory), SystemClock())
    broker.topics.ensure("bench")
    broker.topics.save()
    broker.groups.require("g")
    broker.groups.save()
    broker.access.put_user(User(username=ANN.access_key, password=ANN.secret_key))
    entries = [
        Entry(Resource.parse(text), (Action.PUB, Action.SUB), Decision.ALLOW)
        for text in ("Topic:bench", "Group:g", *(f"Topic:mine-{number}" for number in range(20)))
    ]
    broker.access.put_policy("ann", Policy().merged(PolicyType.CUSTOM, entries))
    return broker


class Asking:
    """One kind of request, handled again and again; decoding the frame included, as it comes from a socket."""

    def __init__(
        self, broker: Broker, header: Header, body: bytes, who: Credentials, change: Change = dict
    ) -> None:
        """`change` makes other fields of those that were signed."""
        self._handle, self._peer = RemotingFront(broker).handle, Peer()
        command = sign(Command(type(header).code, ext=wire.header_fields(header), body=body), who)
        command.ext = change(command.ext_dict())
        self.frame = wire.encode(command)[4:]
        self.least = 1e9

    def round(self, count: int) -> None:
        handle, peer, frame, decode = self._handle, self._peer, self.frame, wire.decode
        began = time.process_time_ns()
        for _ in range(count):
            handle(peer, decode(frame))  # type: ignore[arg-type]
        self.least = min(self.least, (time.process_time_ns() - began) / count / 1000)


def long_signature(fields: dict[str, str]) -> dict[str, str]:
    return {**fields, SIGNATURE: fields[SIGNATURE] * 2000}


def many_fields(fields: dict[str, str]) -> dict[str, str]:
    return {**fields, **{f"field-{number}": "x" for number in range(1000)}}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", type=int, default=3000)
    count = parser.parse_args().count
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as two:
        off, on = broker_of(one), broker_of(two, authentication=True, authorization=True)
        kinds = {
            "send 1 KiB, off": Asking(off, SEND, BODY, Credentials()),
            "send 1 KiB, off, signed": Asking(off, SEND, BODY, ANN),
            "send 1 KiB, on": Asking(on, SEND, BODY, ANN),
            "pull, off": Asking(off, PULL, b"", Credentials()),
            "pull, off, signed": Asking(off, PULL, b"", ANN),
            "pull, on": Asking(on, PULL, b"", ANN),
            "refused: wrong signature": Asking(on, SEND, BODY, GUESSED),
            "refused: no right": Asking(on, OTHER, BODY, ANN),
            "refused: no account": Asking(on, SEND, BODY, Credentials()),
            "refused: 56 kB signature": Asking(on, SEND, BODY, ANN, long_signature),
            "refused: 1,000 fields": Asking(on, SEND, BODY, ANN, many_fields),
            "refused: 64 KiB, wrong": Asking(on, SEND, BODY * 64, GUESSED),
            "refused: 4 MiB, wrong": Asking(on, SEND, BODY * 4096, GUESSED),
        }
        for _ in range(ROUNDS):
            for asking in kinds.values():
                asking.round(count if len(asking.frame) < 1 << 16 else count // 20)
        for name, asking in kinds.items():
            print(f"{name:<28}{asking.least:8.1f} us")
        for each in (off, on):
            each.store.close()


if __name__ == "__main__":
    main()
