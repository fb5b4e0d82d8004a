# SPDX-License-Identifier: Apache-2.0
"""What is signed, gathered by the lane: the same bytes as Python's, or nothing."""

from __future__ import annotations

import json
import struct
from random import Random

import pytest

from aerobee.native.signed import SignedRequests
from aerobee.protocol import accounts
from aerobee.protocol.accounts import ACCESS_KEY, SIGNATURE, Credentials, is_signed_whole, sign
from aerobee.protocol.command import Command, decode, encode, header_fields
from aerobee.protocol.headers.consume import AckMessage
from aerobee.protocol.headers.produce import SendMessageV2
from tests.native import frames

ANN = Credentials("ann", "ann-secret", "token")
MARKS = (ACCESS_KEY, SIGNATURE)
MOST = 1 << 20


def sends() -> SignedRequests:
    return SignedRequests(SendMessageV2, MARKS, ("topic",), "TIMER_DEL_UNIQKEY")


def written(ext: str, body: bytes = b"x") -> bytes:
    head = (
        f'{{"code":310,"flag":0,"language":"JAVA","opaque":1,"version":500,"extFields":{{{ext}}}}}'.encode()
    )
    return struct.pack(">II", 4 + len(head) + len(body), len(head)) + head + body


def as_json(fields: dict[str, str]) -> str:
    return ",".join(f"{json.dumps(name)}:{json.dumps(value)}" for name, value in fields.items())


def random_send(random: Random, number: int) -> Command:
    header = SendMessageV2(
        topic=random.choice(["orders", "bills", "größe"]),
        queue_id=random.randrange(4),
        properties=frames.properties(random, number),
    )
    fields = list(header_fields(header).items())
    extra = random.sample(["z", "A", "aa", "ab", "é", "_", "__ZONE_NAME", "l", "10", ""], random.randrange(5))
    fields += [(name, random.choice(frames.WORDS)) for name in extra]
    random.shuffle(fields)
    command = Command(310, ext=dict(fields), body=random.randbytes(random.randrange(300)))
    command.serialize, command.opaque = random.randrange(2), number
    return sign(command, ANN)


def test_what_is_gathered_is_what_python_signs() -> None:
    random, requests, read = Random(19), sends(), 0
    for number in range(600):
        data = encode(random_send(random, number))
        command = decode(data[4:])
        fields = command.ext_dict()
        if not requests.read(b"before" + data + b"after", 6, MOST):
            continue
        read += 1
        order = [name for name in sorted(fields) if name != SIGNATURE]
        assert requests.content == "".join(fields[name] for name in order).encode() + command.body
        assert (requests.user, requests.names, requests.size) == ("ann", (fields["b"],), len(data))
        assert is_signed_whole(ANN.secret_key, requests.content, requests.signature)
        assert not is_signed_whole("guessed", requests.content, requests.signature)
        assert not is_signed_whole(ANN.secret_key, requests.content + b"x", requests.signature)
    assert read > 400


def test_an_ack_names_topic_and_group() -> None:
    header = AckMessage(consumer_group="g", topic="orders", queue_id=1, extra_info="1 2 3", offset=7)
    command = sign(Command(AckMessage.code, ext=header_fields(header)), ANN)
    acks = SignedRequests(AckMessage, MARKS, ("topic", "consumer_group"), "")
    assert acks.read(encode(command), 0, MOST)
    assert acks.names == ("orders", "g")
    assert not sends().read(encode(command), 0, MOST), "another kind of request"


FIELDS = {
    "b": "orders",
    "e": "0",
    **dict.fromkeys("acdfghj", "0"),
    "i": "",
    ACCESS_KEY: "ann",
    SIGNATURE: "s" * 28,
}


@pytest.mark.parametrize(
    "ext",
    [
        as_json(FIELDS) + ',"x":"1","x":"2"',
        as_json(FIELDS) + ',"x":"1","\\u0078":"2"',
        as_json(FIELDS) + ',"x":1',
        as_json(FIELDS) + f',"{SIGNATURE}":"{"t" * 28}"',
        as_json({name: value for name, value in FIELDS.items() if name != ACCESS_KEY}),
        as_json({name: value for name, value in FIELDS.items() if name != SIGNATURE}),
        as_json({**FIELDS, "i": "a\x01b\x02TIMER_DEL_UNIQKEY\x01x\x02"}),
        as_json(FIELDS | {f"field-{number}": "x" for number in range(60)}),
    ],
    ids=[
        "twice",
        "escaped twice",
        "a number",
        "two signatures",
        "no user",
        "no signature",
        "takes back",
        "many",
    ],
)
def test_what_is_unusual_is_not_read(ext: str) -> None:
    assert sends().read(written(as_json(FIELDS)), 0, MOST)
    assert not sends().read(written(ext), 0, MOST)


def test_the_order_of_the_request_before_is_no_rule() -> None:
    requests = sends()
    for fields in (FIELDS, dict(reversed(FIELDS.items())), FIELDS):
        assert requests.read(written(as_json(fields)), 0, MOST)
        expected = accounts.signature("k", fields, b"x")
        assert is_signed_whole("k", requests.content, expected.encode())
