# SPDX-License-Identifier: Apache-2.0
"""Random requests: most as official clients write them, some odd in every way that is known."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from aerobee.protocol import batch, bodies
from aerobee.protocol.batch import BatchItem
from aerobee.protocol.bodies import ConsumerData, Heartbeat, MessageModel, SubscriptionData
from aerobee.protocol.command import Command, encode, request
from aerobee.protocol.headers.consume import LitePullMessage, PopMessage, PullMessage, SendHeartbeat
from aerobee.protocol.headers.produce import SendBatch, SendMessage, SendMessageV2

if TYPE_CHECKING:
    from random import Random

TOPICS = [
    "orders",
    "orders",
    "orders",
    "bills",
    "new-topic",
    "%RETRY%billing",
    "SCHEDULE_TOPIC_XXXX",
    "no topic!",
    "t" * 200,
]
WORDS = ["a", "order-17", "ü€", "😀 x", "", " two  words ", "x" * 300, "true", "false"]
SPECIAL = [
    "DELAY\x013\x02",
    "TIMER_DELAY_SEC\x013\x02",
    "TRAN_MSG\x01true\x02",
    "POP_CK\x01x\x02",
    "MSG_REGION\x01x\x02",
    "INNER_NUM\x011\x02",
    "MYDELAY\x012\x02",
    "note\x01TIMER_\x02",
    "a\x01b\x01c\x02",
    "alone\x02",
    "\x01\x02",
    "__CRC32#\x011234567890\x02",
    "MYTAGS\x01no\x02",
    "TAGS\x01\x02",
    "KEYS\x01 \x02",
    "WAIT\x01false\x02",
    "UNIQ_KEY\x01not alnum\x02",
    "UNIQ_KEY\x01\x02",
]


def properties(random: Random, number: int) -> str:
    pairs = []
    if random.random() < 0.9:
        pairs.append(f"UNIQ_KEY\x017F00000100002A{number:018X}\x02")
    if random.random() < 0.6:
        pairs.append(f"TAGS\x01{random.choice(['TagA', 'TagB', 'ü', *WORDS])}\x02")
    if random.random() < 0.4:
        pairs.append(f"KEYS\x01{random.choice(['k1 k2', *WORDS])}\x02")
    if random.random() < 0.5:
        pairs.append("WAIT\x01true\x02")
    if random.random() < 0.12:
        pairs.append(random.choice(SPECIAL))
    if random.random() < 0.3:
        random.shuffle(pairs)
    text = "".join(pairs)
    return text[:-1] if random.random() < 0.08 else text


def body(random: Random) -> bytes:
    return random.randbytes(
        random.choice([0, 1, 7, 8, 30, 128, 128, 300, 2_000, 9_000] if random.random() < 0.3 else [40])
    )


def single(random: Random, number: int) -> Command:
    kind = random.choice([SendMessage, SendMessageV2, SendMessageV2])
    header = kind(
        producer_group=random.choice(["load", "ü"]),
        topic=random.choice(TOPICS),
        queue_id=random.choice([0, 0, 1, 2, 3, 3, -1, 7, 2**31]) if random.random() < 0.5 else 1,
        sys_flag=random.choice([0, 0, 0, 1, 4, 8, 12, 0x30, 2**31, -5]) if random.random() < 0.2 else 0,
        born_timestamp=random.choice([1_700_000_000_000, 0, -1]),
        flag=random.choice([0, 5, -1, 2**31 - 1, 2**31]) if random.random() < 0.2 else 0,
        properties=properties(random, number) if random.random() < 0.97 else None,
        reconsume_times=random.choice([None, 0, 3]),
        unit_mode=random.choice([None, False]),
        batch=random.choice([None, False, False]),
    )
    return request(header, body(random))


def several(random: Random, number: int) -> Command:
    items = []
    for n in range(random.choice([1, 2, 5, 20])):
        size = random.choice([10, 60, 60, 0 if random.random() < 0.05 else 5])
        text = properties(random, number * 100 + n) if random.random() < 0.9 else ""
        items.append(BatchItem(random.choice([0, 3, -1]), random.randbytes(size), text))
    data = batch.encode(items)
    if random.random() < 0.05:
        data = data[: random.randrange(len(data))]
    kind: Any = random.choice([SendBatch, SendBatch, SendMessageV2])
    header = kind(
        producer_group="load",
        topic=random.choice(TOPICS[:4]),
        queue_id=random.choice([0, 1, -1]),
        born_timestamp=1_700_000_000_000,
        sys_flag=random.choice([0, 0, 0, 8]),
        batch=True,
    )
    return request(header, data)


def pull(random: Random) -> Command:
    kind = random.choice([PullMessage, PullMessage, LitePullMessage])
    header = kind(
        consumer_group=random.choice(["billing", "audit"]) if random.random() < 0.95 else "ü",
        topic="orders" if random.random() < 0.8 else random.choice(["bills", "bills", "nowhere"]),
        queue_id=random.choice([0, 0, 1, 1, 2, 3]) if random.random() < 0.95 else 9,
        queue_offset=random.choice([0, 1, 5, 20] if random.random() < 0.8 else [39, 40, 60, -1, 10_000]),
        max_msg_nums=random.choice([1, 4, 32, 0]),
        max_msg_bytes=random.choice([None, None, 0, 1_500]),
        sys_flag=random.choice([0, 1, 2, 4, 4, 6, 6, 7]),
        commit_offset=random.choice([0, 2]),
        suspend_timeout_millis=5_000,
        subscription=random.choice([None, "*", "*", "*", "TagA", "TagA || ü", "nothing", "amount > 1"]),
        sub_version=random.choice([0, 0, 3]),
        expression_type=random.choice([None, "TAG"]) if random.random() < 0.9 else "SQL92",
        bulk=random.choice([None, False, True]) if random.random() < 0.1 else None,
        as_stored=True if random.random() < 0.04 else None,
    )
    return request(header)


def pop(random: Random, clock: int) -> Command:
    return request(
        PopMessage(
            consumer_group=random.choice(["billing"] * 8 + ["new", "ü"]),
            topic="orders" if random.random() < 0.95 else "nowhere",
            queue_id=random.choice([-1, -1, 0, 2]) if random.random() < 0.95 else 7,
            max_msg_nums=random.choice([1, 8, 32]) if random.random() < 0.95 else 33,
            invisible_time=30_000,
            poll_time=random.choice([0, 0, 900]),
            born_time=random.choice([0, clock, clock - 5_000]),
            init_mode=random.choice([0, 1]),
            exp_type=random.choice([None, "TAG"]) if random.random() < 0.9 else "SQL92",
            exp=random.choice([None, "*", "*", "TagA", "TAGS = 'TagB'"]),
            order=True if random.random() < 0.03 else random.choice([None, False]),
            attempt_id="again" if random.random() < 0.03 else None,
        )
    )


def heartbeat(random: Random) -> Command:
    """What the groups subscribe: pulls without an expression of their own rely on it."""
    topics = random.sample(["orders", "orders", "bills"], random.choice([1, 2, 3]))
    subscriptions = [
        SubscriptionData(
            topic=topic, sub_string=random.choice(["*", "TagB"]), sub_version=random.choice([1, 2, 5])
        )
        for topic in topics
    ]
    consumers = [
        ConsumerData(
            group_name=group,
            subscription_data_set=subscriptions,
            message_model=random.choice([MessageModel.CLUSTERING, MessageModel.BROADCASTING]),
        )
        for group in random.choice([["billing"], ["billing", "audit"]])
    ]
    beat = Heartbeat(client_id=random.choice(["a", "b"]), consumer_data_set=consumers)
    return request(SendHeartbeat(), bodies.encode(beat))


def reshaped(random: Random, frame: bytes) -> bytes:
    """The same request in other JSON, or one that is none."""
    size = int.from_bytes(frame[5:8])
    head, rest = frame[8 : 8 + size], frame[8 + size :]
    way = random.randrange(8)
    if way == 0:
        head = msgspec.json.format(head, indent=1)
    elif way == 1:
        head = head.replace(b'"flag":0', b'"flag":0,"remark":null,"language":null')
    elif way == 2:
        head = head.replace(b'"extFields":{', b'"extFields":{"trace":"x\\u00e9\\n","more":17,')
    elif way == 3:
        head = b'{"opaque":7,' + head[1:]
    elif way == 4:
        head = head.replace(b'"e":"1"', b'"e":1').replace(b'"e":"0"', b'"e":"00"')
    elif way == 5:
        head = head.replace(b"\\u0001", b"\\u0001\xff", 1)
    elif way == 6:
        head = head.replace(b"a", b"\\u0061").replace(b"load", b"lo\\/ad")
    else:
        at = random.randrange(len(head))
        head = head[:at] + random.randbytes(1) + head[at + 1 :]
    return (4 + len(head) + len(rest)).to_bytes(4) + len(head).to_bytes(4) + head + rest


def frame(random: Random, number: int) -> bytes:
    chance = random.random()
    if chance < 0.2:
        command = pull(random)
    elif chance < 0.22:
        command = heartbeat(random)
    elif chance < 0.35:
        command = several(random, number)
    else:
        command = single(random, number)
    return written(random, command, number)


def written(random: Random, command: Command, number: int) -> bytes:
    """As some client may write it."""
    command.opaque = random.choice([number, number, -3, 2**31 - 1])
    command.flag = (
        2 if random.random() < 0.08 else random.choice([0, 0, 0, 0, 4]) if random.random() < 0.05 else 0
    )
    command.serialize = int(random.random() < 0.2)
    made = encode(command)
    if command.serialize:
        return made
    return reshaped(random, made) if random.random() < 0.1 else made


def cut(random: Random, data: bytes) -> list[bytes]:
    """The stream as it may arrive."""
    pieces = []
    while data:
        size = random.choice([1, 3, 100, 500, 3_000, 20_000, 60_000])
        pieces.append(data[:size])
        data = data[size:]
    return pieces
