# SPDX-License-Identifier: Apache-2.0
"""Where bytes of a stranger come into the lane: each door takes any bytes, and may refuse them, but not step out of
them. Both fuzzers knock here, the one that breaks frames by lot (`fuzz.py`) and the one that is led by what it reaches
(`guided.py`)."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from aerobee import native
from aerobee.errors import ProtocolError
from aerobee.fronts.grpc.generated import messaging_pb2 as pb
from aerobee.fronts.grpc.header_reader import header_reader
from aerobee.protocol.headers.consume import AckMessage, ChangeInvisible, PopMessage, PullMessage
from aerobee.protocol.headers.produce import SendMessage, SendMessageV2
from tests.native.bench import SMALL, Bench

if native.is_on:
    from aerobee.native import grpc_calls, headers, reads, signed, texts

if TYPE_CHECKING:
    from pathlib import Path

    import hpack

KINDS = (SendMessage, SendMessageV2, PullMessage, PopMessage, AckMessage, ChangeInvisible)
UNITS = 60  # bytes of a read's input that are units of a queue; the rest is the log
RECEIPTS = ["0 1700000000000 60000 0 0 broker-a 0 0", "0 1 2 3 4 5", "9 9", "-1 0 0 999 x y"]
GRPC_HEADERS = [
    (":method", "POST"),
    (":path", "/a.Service/SendMessage"),
    ("te", "trailers"),
    ("x-mq", "Zm9v" * 9),
]


class Doors:
    """`directory` is for the store of the broker behind the first of them."""

    def __init__(self, directory: Path) -> None:
        assert native.is_on, native.state
        logging.disable()
        self._fields = [headers.Fields(kind) for kind in KINDS]
        # Fields that are always there stand for user and signature.
        self._signatures = [
            signed.SignedRequests(SendMessageV2, ("b", "i"), ("topic",), "TIMER_"),
            signed.SignedRequests(AckMessage, ("topic", "extraInfo"), ("topic", "consumer_group"), ""),
        ]
        self._words = texts.Texts(("DELAY\x01", "TIMER_"), "TAGS", "UNIQ_KEY", "KEYS")
        self.bench = Bench(directory, SMALL, lane=True)
        self.bench.broker.groups.require("billing")
        self._connection = self.bench.connect()
        self.all = (
            self.port, self.request, self.signature, self.properties, self.records, self.grpc_send, self.grpc_ack,
            self.grpc_headers,
        )  # fmt: skip

    def port(self, data: bytes) -> None:
        """The broker's, by remoting."""
        lane = self.bench.front.run
        assert lane is not None
        end, answers = lane(data, 0, self._connection)
        assert 0 <= end <= len(data), end
        if not isinstance(answers, bytes):
            answers.close()

    def request(self, data: bytes) -> None:
        for kind in self._fields:
            headers.read(kind, data)

    def signature(self, data: bytes) -> None:
        for requests in self._signatures:
            requests.read(data, 0, 1 << 24)

    def properties(self, data: bytes) -> None:
        texts.read(self._words, data)

    def records(self, data: bytes) -> None:
        units, log = data[:UNITS], data[UNITS:]
        for base in (0, -5, 10):
            reads.collect(units, log, base, (0, 0), (32, 1 << 20), None, [], [])

    def grpc_send(self, data: bytes) -> None:
        grpc_calls.sending(data)

    def grpc_ack(self, data: bytes) -> None:
        grpc_calls.acking(data)

    def grpc_headers(self, data: bytes) -> None:
        """Two blocks of one connection: the second may point into what the first left in the table."""
        blocks, half = header_reader(1_000), len(data) // 2
        for block in (data[:half], data[half:]):
            try:
                blocks.read(block)
            except ProtocolError:
                return  # and the connection ends

    def new_connection(self) -> None:
        self._connection.connection_lost(None)
        self._connection = self.bench.connect()
        self.bench.wires.clear()

    def close(self) -> None:
        self._connection.connection_lost(None)
        self.bench.broker.store.close()


def grpc_send() -> bytes:
    sent = pb.Message(topic=pb.Resource(name="orders"), body=b"body" * 20)
    sent.system_properties.MergeFrom(
        pb.SystemProperties(tag="paid", keys=["o-1", "o-2"], message_id="0" * 32, born_host="h")
    )
    sent.system_properties.born_timestamp.FromMilliseconds(1_700_000_000_123)
    made = pb.SendMessageRequest(messages=[sent]).SerializeToString()
    assert grpc_calls.sending(made), "or nothing of it would be tried"
    return made


def grpc_ack() -> bytes:
    acked = pb.AckMessageRequest(group=pb.Resource(name="g"), topic=pb.Resource(name="orders"))
    acked.entries.add(message_id="0" * 32, receipt_handle=RECEIPTS[0])
    made = acked.SerializeToString()
    assert grpc_calls.acking(made), "or nothing of it would be tried"
    return made


def header_block(encoder: hpack.Encoder, *, huffman: bool) -> bytes:
    return encoder.encode(GRPC_HEADERS, huffman=huffman)
