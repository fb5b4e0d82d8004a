# SPDX-License-Identifier: Apache-2.0
"""Everything that clients and operators do at once: sends, batches, transactions, delays, pulls, pops, settings.

Each worker does one thing after another until the connection is lost, and writes every answer into the ledger.
"""

from __future__ import annotations

import asyncio
import zlib
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from aerobee.clock import SystemClock
from aerobee.errors import AerobeeError, NetworkError
from aerobee.protocol import properties as props
from aerobee.protocol.batch import BatchItem
from aerobee.protocol.batch import encode as encode_batch
from aerobee.protocol.bodies import GroupConfig, Mode, RequestMode, encode
from aerobee.protocol.headers import groups as hg
from aerobee.protocol.headers import offsets as ho
from aerobee.protocol.headers import topics as ht
from aerobee.protocol.headers.consume import AckMessage, PopMessage, PopResult, SetRequestMode
from aerobee.protocol.headers.produce import SendBatch, SendMessageV2, SendResult
from aerobee.protocol.headers.route import DeleteKV, PutKV
from aerobee.protocol.headers.transaction import COMMIT, ROLLBACK, EndTransaction
from aerobee.protocol.message import decode_all
from aerobee.protocol.receipt import Receipt, parse_msg_offsets, parse_start_offsets
from tests.chaos.ledger import ABSENT, Place, Timed, body_of, name_of

if TYPE_CHECKING:
    import random
    from collections.abc import Awaitable, Callable

    from aerobee.protocol.command import Command
    from aerobee.protocol.message import Record
    from tests.chaos.ledger import Ledger
    from tests.chaos.link import Link

PLAIN, HALVES, TIMES, POPS, RESETS = "plain", "halves", "times", "pops", "resets"
QUEUES = 3
POP_GROUP, PULL_GROUP, RESET_GROUP = "poppers", "pullers", "resetters"
INVISIBLE_MS = 4_000
MAX_DELAY_MS = 4_000
ADOPTED = 8  # queues of a topic whose first message is in the log while its settings were never saved
HALF = 4  # sys flag of a half message
MESSAGES = ("send", "send", "batch", "transact", "delay", "feed_pops")
EVERYTHING = (
    *MESSAGES, "pop", "pull", "change_settings", "change_settings", "come_and_go", "make_topics",
)  # fmt: skip
clock = SystemClock()


class Load:
    def __init__(self, link: Link, ledger: Ledger, dice: random.Random, life: str) -> None:
        self.link, self.ledger, self.dice = link, ledger, dice
        self._life = life  # names of this life are nobody else's
        self._count = 0

    async def run(self, *workers: str) -> None:
        """These, or all of them, until the broker is gone or they are cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for worker in workers or EVERYTHING:
                tasks.create_task(self._repeat(getattr(self, f"_{worker}")))

    async def _repeat(self, work: Callable[[], Awaitable[None]]) -> None:
        with suppress(NetworkError):  # the broker is gone
            while True:
                await work()
                await asyncio.sleep(self.dice.choice((0, 0, 0.002, 0.02)))

    def _name(self, kind: str) -> str:
        self._count += 1
        return f"{kind}-{self._life}-{self._count}"

    def _refused(self, what: str, answer: Command) -> None:
        self.ledger.refusals.append(f"{what}: {answer.code} {answer.remark}")

    # -- messages ----------------------------------------------------------------------------------------

    async def _send_one(self, topic: str, name: str, queue_id: int, **more: Any) -> SendResult | None:
        text = props.render(
            {"UNIQ_KEY": f"{zlib.crc32(name.encode()):032X}", "KEYS": name} | more.pop("properties", {})
        )
        self.ledger.topics.add(topic)
        header = SendMessageV2(
            producer_group="chaos", topic=topic, queue_id=queue_id, properties=text,
            default_topic_queue_nums=more.pop("queues", QUEUES), **more,
        )  # fmt: skip
        answer = await self.link.ask(header, body_of(name))
        if answer.code:
            self._refused(f"send to {topic} {queue_id}", answer)
            return None
        return answer.fields(SendResult)

    async def _send_to(self, topic: str, name: str, queue_id: int, **more: Any) -> None:
        result = await self._send_one(topic, name, queue_id, **more)
        if result is not None:
            place = Place(topic, result.queue_id, result.queue_offset)
            self.ledger.sent(place, name, _physical(result.msg_id))

    async def _send(self) -> None:
        await self._send_to(PLAIN, self._name("s"), self.dice.randrange(QUEUES))

    async def _feed_pops(self) -> None:
        await self._send_to(POPS, self._name("p"), self.dice.randrange(QUEUES))

    async def _batch(self) -> None:
        first, size = self._name("b"), self.dice.choice((2, 5, 30))
        names = [f"{first}.{number}.{size}" for number in range(size)]
        self.ledger.topics.add(PLAIN)
        header = SendBatch(
            topic=PLAIN, queue_id=self.dice.randrange(QUEUES), default_topic_queue_nums=QUEUES, batch=True
        )
        answer = await self.link.ask(header, encode_batch([BatchItem(0, body_of(name)) for name in names]))
        if answer.code:
            return self._refused("batch", answer)
        result = answer.fields(SendResult)
        for number, (name, message_id) in enumerate(zip(names, result.msg_id.split(","), strict=True)):
            place = Place(PLAIN, result.queue_id, result.queue_offset + number)
            self.ledger.sent(place, name, _physical(message_id))
        return None

    async def _transact(self) -> None:
        name, commit = self._name("t"), self.dice.random() < 0.7
        half = {"TRAN_MSG": "true", "PGROUP": "chaos"}
        result = await self._send_one(HALVES, name, 0, properties=half, sys_flag=HALF)
        if result is None:
            return
        header = EndTransaction(
            producer_group="chaos",
            tran_state_table_offset=result.queue_offset,
            commit_log_offset=_physical(result.msg_id),
            commit_or_rollback=COMMIT if commit else ROLLBACK,
        )
        answer = await self.link.ask(header)
        if answer.code:
            self._refused("end transaction", answer)
        elif self.ledger.done():
            (self.ledger.committed if commit else self.ledger.rolled_back).add(name)

    async def _delay(self) -> None:
        name, now = self._name("d"), clock.now()
        if self.dice.random() < 0.5:
            due, wanted = now + 1_000, {"DELAY": "1"}
        else:
            due = now + self.dice.randrange(500, MAX_DELAY_MS)
            wanted = {"TIMER_DELIVER_MS": str(due)}
        result = await self._send_one(TIMES, name, self.dice.randrange(QUEUES), properties=wanted)
        if result is not None and self.ledger.done():
            self.ledger.timed[name] = Timed(due, _physical(result.msg_id))
        await asyncio.sleep(0.02)

    # -- consumers ---------------------------------------------------------------------------------------

    async def _pull(self) -> None:
        """Read a queue to its end, commit somewhere in it."""
        queue = Place(PLAIN, self.dice.randrange(QUEUES), 0)
        found = await self.link.read_queue(PLAIN, queue.queue_id)
        for record in found:
            name_of(record.body)
        if found:
            offset = found[-1].queue_offset + 1 - self.dice.randrange(2)
            self.ledger.commits[queue] = max(offset, self.ledger.commits.get(queue, -1))
            header = ho.UpdateConsumerOffset(
                consumer_group=PULL_GROUP, topic=PLAIN, queue_id=queue.queue_id, commit_offset=offset
            )
            await self.link.ask(header)
        await asyncio.sleep(0.1)

    async def _pop(self) -> None:
        for record, receipt in await pop(self.link):
            name = name_of(record.body)
            note_delivery(self.ledger, name)
            if self.dice.random() < 0.9:
                await ack(self.link, self.ledger, name, receipt)

    # -- operators ---------------------------------------------------------------------------------------

    async def _change_settings(self) -> None:
        key, value, change = self.dice.choice(
            (self._topic, self._group, self._forbid, self._mode, self._kv, self._reset)
        )()
        await self._change(key, value, change)

    async def _change(
        self, key: tuple[str, ...], value: Any, change: Callable[[], Awaitable[Command]]
    ) -> bool:
        settings = self.ledger.settings
        if len(settings.possible(key)) > 1:
            return False  # another worker is at it
        settings.ask(key, value)
        answer = await change()
        if answer.code:
            self._refused(f"{key} = {value}", answer)
        elif self.ledger.done():
            settings.done(key, value)
        return not answer.code

    def _topic(self) -> Any:
        name = f"topic-{self.dice.randrange(6)}"
        key = ("topic", name)
        if self.ledger.settings.sure(key) is not ABSENT and self.dice.random() < 0.3:
            return key, ABSENT, lambda: self.link.ask(ht.DeleteTopic(topic=name))
        queues = self.dice.randrange(1, 20)
        header = ht.CreateTopic(topic=name, read_queue_nums=queues, write_queue_nums=queues)
        return key, queues, lambda: self.link.ask(header)

    def _group(self) -> Any:
        name = f"group-{self.dice.randrange(6)}"
        key = ("group", name)
        if self.ledger.settings.sure(key) is not ABSENT and self.dice.random() < 0.3:
            return key, ABSENT, lambda: self.link.ask(hg.DeleteGroup(group_name=name, clean_offset=True))
        config = GroupConfig(group_name=name, consume_enable=False, retry_max_times=self.dice.randrange(99))
        return key, config.retry_max_times, lambda: self.link.ask(hg.CreateGroup(), encode(config))

    def _forbid(self) -> Any:
        readable = self.dice.random() < 0.5
        header = hg.ForbidGroup(group=PULL_GROUP, topic=RESETS, readable=readable)
        return ("readable", PULL_GROUP, RESETS), readable, lambda: self.link.ask(header)

    def _mode(self) -> Any:
        share = self.dice.randrange(9)
        mode = RequestMode(topic=RESETS, consumer_group=PULL_GROUP, mode=Mode.POP, pop_share_queue_num=share)
        return ("mode", RESETS, PULL_GROUP), share, lambda: self.link.ask(SetRequestMode(), encode(mode))

    def _kv(self) -> Any:
        name, value = f"key-{self.dice.randrange(4)}", str(self.dice.randrange(1000))
        key = ("kv", name)
        if self.ledger.settings.sure(key) is not ABSENT and self.dice.random() < 0.3:
            return key, ABSENT, lambda: self.link.ask_names(DeleteKV(namespace="chaos", key=name))
        return key, value, lambda: self.link.ask_names(PutKV(namespace="chaos", key=name, value=value))

    def _reset(self) -> Any:
        offset = self.dice.randrange(20)
        header = ho.ResetOffset(topic=RESETS, group=RESET_GROUP, queue_id=0, offset=offset)
        return ("offset", RESET_GROUP, RESETS), offset, lambda: self.link.ask(header)

    async def _come_and_go(self) -> None:
        """A topic with messages that is deleted again."""
        name, queues = self._name("gone"), self.dice.randrange(1, 6)
        header = ht.CreateTopic(topic=name, read_queue_nums=queues, write_queue_nums=queues)
        if not await self._change(("topic", name), queues, lambda: self.link.ask(header)):
            return
        for _ in range(3):
            await self._send_to(name, self._name("g"), self.dice.randrange(queues))
        if self.dice.random() < 0.7:
            self.ledger.topic_gone(name)
            await self._change(("topic", name), ABSENT, lambda: self.link.ask(ht.DeleteTopic(topic=name)))
        await asyncio.sleep(0.1)

    async def _make_topics(self) -> None:
        """By sending to them."""
        name, queues = self._name("made"), self.dice.randrange(1, 8)
        key = ("topic", name)
        self.ledger.settings.ask(key, queues)
        self.ledger.settings.ask(key, ADOPTED)
        message, queue_id = self._name("m"), self.dice.randrange(queues)
        result = await self._send_one(name, message, queue_id, queues=queues)
        if result is not None and self.ledger.done():
            self.ledger.settings.done(key, queues)
            place = Place(name, result.queue_id, result.queue_offset)
            self.ledger.sent(place, message, _physical(result.msg_id))
        await asyncio.sleep(0.1)


async def prepare(link: Link) -> None:
    """What the workers rely on, on a new store; harmless on an old one."""
    for topic in (PLAIN, HALVES, TIMES, POPS, RESETS):
        await _must(link.ask(ht.CreateTopic(topic=topic, read_queue_nums=QUEUES, write_queue_nums=QUEUES)))
    for group in (POP_GROUP, PULL_GROUP, RESET_GROUP):
        await _must(link.ask(hg.CreateGroup(), encode(GroupConfig(group_name=group))))
    while True:
        result = await _must(link.ask(SendMessageV2(topic=RESETS, queue_id=0), body_of("r-0")))
        if result.fields(SendResult).queue_offset >= 20:
            return


async def _must(answer: Awaitable[Command]) -> Command:
    found = await answer
    if found.code:
        raise AerobeeError(f"preparing: {found.code} {found.remark}")
    return found


async def pop(link: Link, wait_ms: int = 50) -> list[tuple[Record, Receipt]]:
    header = PopMessage(
        consumer_group=POP_GROUP, topic=POPS, invisible_time=INVISIBLE_MS, poll_time=wait_ms,
        born_time=clock.now(), exp="*", max_msg_nums=16,
    )  # fmt: skip
    answer = await link.ask(header)
    if answer.code:
        return []
    result = answer.fields(PopResult)
    starts, records = parse_start_offsets(result.start_offset_info), iter(decode_all(answer.body))
    found = []
    for (retry, queue_id), offsets in parse_msg_offsets(result.msg_offset_info).items():
        for offset in offsets:
            record = next(records)
            own = record.properties.get(props.POP_CK)
            receipt = Receipt.parse(own) if own else Receipt(
                starts[retry, queue_id], result.pop_time, INVISIBLE_MS, result.revive_qid, retry,
                "broker-a", queue_id, offset,
            )  # fmt: skip
            found.append((record, receipt))
    return found


async def ack(link: Link, ledger: Ledger, name: str, receipt: Receipt) -> None:
    header = AckMessage(
        consumer_group=POP_GROUP, topic=receipt.real_topic(POPS, POP_GROUP), queue_id=receipt.queue_id,
        extra_info=receipt.text, offset=receipt.offset,
    )  # fmt: skip
    if not ledger.closed:
        ledger.ack_asked.add(name)
    answer = await link.ask(header)
    if not answer.code and clock.now() < receipt.visible_at and ledger.done():
        ledger.acked[name] = clock.now()


# A checkpoint is written after at most the time it may stay in memory, the offset that passes it a flush later. The
# settings of the rounds make both half a second; the rest is for a machine that is busy.
ACK_KEPT_MS = 5_000


def note_delivery(ledger: Ledger, name: str) -> None:
    """A message that was acked comes back only if the broker was stopped right after."""
    acked = ledger.acked.pop(name, None) if not ledger.closed else None
    if acked is not None:
        excused = any(acked - 1 <= stop <= acked + ACK_KEPT_MS for stop in ledger.stops)
        assert excused, f"{name} was acked at {acked} and came back; stops: {ledger.stops[-3:]}"


def _physical(message_id: str) -> int:
    """The end of an offset message id is the place in the log."""
    return int(message_id[-16:], 16)
