# SPDX-License-Identifier: Apache-2.0
"""What access control costs a request, in microseconds of the broker's loop, without sockets.

    python -m benchmarks.access [--count 3000]

Each request is handled by the port's own path, gates and all, in turn with access control off and on; the least of five
rounds counts. Refusals are measured too: who is let in nowhere must not cost more than who is.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

from aerobee.broker.access.users import User
from aerobee.broker.broker import Broker, assemble
from aerobee.clock import SystemClock, perf_counter_ns
from aerobee.fronts.remoting.front import RemotingFront
from aerobee.protocol import command as wire
from aerobee.protocol.access import Action, Decision, PolicyType, Resource
from aerobee.protocol.accounts import Credentials, sign
from aerobee.protocol.command import Command, Header
from aerobee.protocol.headers.consume import PullMessage
from aerobee.protocol.headers.produce import SendMessageV2
from aerobee.protocol.message import pack_host
from aerobee.protocol.policies import Entry, Policy
from aerobee.settings import BrokerConfig, StoreConfig

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
ROUNDS = 5


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


def microseconds(broker: Broker, header: Header, body: bytes, who: Credentials, count: int) -> float:
    """Decoding the frame included, as it comes from a socket."""
    handle, peer = RemotingFront(broker).handle, Peer()
    frame = wire.encode(sign(Command(type(header).code, ext=wire.header_fields(header), body=body), who))[4:]
    least = 1e9
    for _ in range(ROUNDS):
        began = perf_counter_ns()
        for _ in range(count):
            handle(peer, wire.decode(frame))  # type: ignore[arg-type]
        least = min(least, (perf_counter_ns() - began) / count / 1000)
    return least


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", type=int, default=3000)
    count = parser.parse_args().count
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as two:
        off, on = broker_of(one), broker_of(two, authentication=True, authorization=True)
        for name, broker, header, body, who in (
            ("send 1 KiB, off", off, SEND, BODY, Credentials()),
            ("send 1 KiB, off, signed", off, SEND, BODY, ANN),
            ("send 1 KiB, on", on, SEND, BODY, ANN),
            ("pull, off", off, PULL, b"", Credentials()),
            ("pull, on", on, PULL, b"", ANN),
            ("refused: wrong signature", on, SEND, BODY, GUESSED),
            ("refused: no right", on, OTHER, BODY, ANN),
            ("refused: no account", on, SEND, BODY, Credentials()),
        ):
            print(f"{name:<28}{microseconds(broker, header, body, who, count):8.1f} us")
        for each in (off, on):
            each.store.close()


if __name__ == "__main__":
    main()
