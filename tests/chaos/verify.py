# SPDX-License-Identifier: Apache-2.0
"""Asks a broker that came back for everything the ledger says it owes."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any, NamedTuple

from aerobee.protocol import java_json
from aerobee.protocol.bodies import GroupConfig, GroupForbidden, RequestModes, TopicConfig, decode
from aerobee.protocol.headers import groups as hg
from aerobee.protocol.headers import offsets as ho
from aerobee.protocol.headers import topics as ht
from aerobee.protocol.headers.consume import GetRequestModes
from aerobee.protocol.headers.produce import SendMessageV2
from aerobee.protocol.headers.route import GetKV, GetKVResult
from tests.chaos import load
from tests.chaos.ledger import ABSENT, Kept, Place, name_of

if TYPE_CHECKING:
    from aerobee.protocol.message import Record
    from tests.chaos.ledger import Ledger
    from tests.chaos.link import Link

MAX_QUEUES = 20
LATE_MS = 30_000  # of a busy machine; a delivery that is lost never comes


class Promise(NamedTuple):
    """What is kept of all that was acknowledged, and of batches that were not."""

    log_end: float = float("inf")  # records behind it may be gone
    whole_batches: bool = True  # all or none, also of one without an answer


AFTER_KILL = Promise()
# A disk may have written some pages of a batch that was still to be synced.
AFTER_POWER_CUT_IN_SYNC_MODE = Promise(whole_batches=False)


def after_power_cut_in_async_mode(synced: int) -> Promise:
    return Promise(synced, whole_batches=False)


class Verifier:
    def __init__(self, link: Link, ledger: Ledger, promise: Promise = AFTER_KILL) -> None:
        self.link, self.ledger, self.promise = link, ledger, promise
        self.found: dict[Place, Record] = {}

    async def run(self) -> None:
        assert not self.ledger.refusals, f"refused: {self.ledger.refusals[:3]}"
        await self._settings()
        await self._messages()
        if self.promise.whole_batches:
            self._batches()
        self._transactions()
        self._early()
        await self._commits()
        await self._made_topics_take_sends()

    # -- messages ----------------------------------------------------------------------------------------

    async def _messages(self) -> None:
        ledger = self.ledger
        for topic in sorted(ledger.topics):
            for queue_id in range(ledger.settings.sure(("topic", topic)) or load.QUEUES):
                for record in await self.link.read_queue(topic, queue_id):
                    self.found[Place(topic, queue_id, record.queue_offset)] = record
        names = {place: name_of(record.body) for place, record in self.found.items()}
        owed = {
            place: kept for place, kept in ledger.messages.items() if kept.physical < self.promise.log_end
        }
        wrong = {place: kept for place, kept in owed.items() if names.get(place) != kept.name}
        assert not wrong, (
            f"{len(wrong)} of {len(owed)} acknowledged messages lost or changed: {list(wrong.items())[:3]}"
        )
        # What was stored without an answer is seen from now on, so it has to stay.
        ledger.messages = {
            place: Kept(name, self.found[place].physical_offset) for place, name in names.items()
        }
        twice = [name for name, times in Counter(names.values()).items() if times > 1 and name[0] in "sbpgm"]
        assert not twice, f"stored twice: {twice[:3]}"

    def _batches(self) -> None:
        """All members or none, one after the other in one queue."""
        batches: dict[str, list[tuple[Place, int, int]]] = defaultdict(list)
        for place, kept in self.ledger.messages.items():
            if kept.name.startswith("b-"):
                batch, number, count = kept.name.rsplit(".", 2)
                batches[batch].append((place, int(number), int(count)))
        for batch, members in batches.items():
            members.sort(key=lambda member: member[1])
            first, _, size = members[0]
            whole = [(Place(first.topic, first.queue_id, first.offset + n), n, size) for n in range(size)]
            assert members == whole, f"batch {batch}: {len(members)} of {size} members are there"

    def _transactions(self) -> None:
        there = {kept.name for place, kept in self.ledger.messages.items() if place.topic == load.HALVES}
        if self.promise.log_end == float("inf"):
            lost = self.ledger.committed - there
            assert not lost, f"committed and lost: {sorted(lost)[:3]}"
        undead = self.ledger.rolled_back & there
        assert not undead, f"rolled back and yet there: {sorted(undead)[:3]}"

    def _early(self) -> None:
        for place, record in self.found.items():
            timed = self.ledger.timed.get(name_of(record.body)) if place.topic == load.TIMES else None
            assert timed is None or record.store_timestamp >= timed.due - 1, f"{place} came early"

    async def _commits(self) -> None:
        for queue, asked in self.ledger.commits.items():
            header = ho.QueryConsumerOffset(
                consumer_group=load.PULL_GROUP,
                topic=queue.topic,
                queue_id=queue.queue_id,
                set_zero_if_not_found=False,
            )
            answer = await self.link.ask(header)
            if answer.code == 0:
                offset = answer.fields(ho.OffsetResult).offset
                assert offset <= asked, f"{queue}: committed {asked} at most, found {offset}"
                end = await self.link.ask(ho.GetMaxOffset(topic=queue.topic, queue_id=queue.queue_id))
                highest = end.fields(ho.OffsetResult).offset
                assert offset <= highest, f"{queue}: offset {offset} is ahead of the queue's end {highest}"

    # -- settings ----------------------------------------------------------------------------------------

    async def _settings(self) -> None:
        for key in self.ledger.settings.known():
            self.ledger.settings.found(key, await self._setting(key))

    async def _setting(self, key: tuple[str, ...]) -> Any:
        kind, *names = key
        link = self.link
        if kind == "topic":
            answer = await link.ask(ht.GetTopicConfig(topic=names[0]))
            return ABSENT if answer.code else decode(answer.body, TopicConfig).write_queue_nums
        if kind == "group":
            answer = await link.ask(hg.GetGroupConfig(group=names[0]))
            if answer.code:
                return ABSENT
            config = decode(answer.body, GroupConfig)
            assert not config.consume_enable, f"{names[0]} may consume again"
            return config.retry_max_times
        if kind == "readable":
            answer = await link.ask(hg.ForbidGroup(group=names[0], topic=names[1]))
            readable = decode(answer.body, GroupForbidden).readable
            return readable if self.ledger.settings.sure(key) is not ABSENT or not readable else ABSENT
        if kind == "mode":
            modes = java_json.decode((await link.ask(GetRequestModes())).body, RequestModes)
            mode = modes.message_request_mode_map.get(names[0], {}).get(names[1])
            return ABSENT if mode is None else mode.pop_share_queue_num
        if kind == "kv":
            answer = await link.ask_names(GetKV(namespace="chaos", key=names[0]))
            return ABSENT if answer.code else answer.fields(GetKVResult).value
        header = ho.QueryConsumerOffset(
            consumer_group=names[0], topic=names[1], queue_id=0, set_zero_if_not_found=False
        )
        answer = await link.ask(header)
        return ABSENT if answer.code else answer.fields(ho.OffsetResult).offset

    async def _made_topics_take_sends(self) -> None:
        """Producers still know the queues a topic had."""
        for topic in sorted(self.ledger.topics):
            queues = self.ledger.settings.sure(("topic", topic))
            if topic.startswith("made") and queues is not ABSENT:
                answer = await self.link.ask(
                    SendMessageV2(topic=topic, queue_id=queues - 1), load.body_of("x-0")
                )
                assert answer.code == 0, f"{topic} has {queues} queues: {answer.remark}"

    # -- what takes time ---------------------------------------------------------------------------------

    async def wait_for_the_rest(self) -> None:
        """Delayed messages arrive, popped and not acked ones come back."""
        await self._wait_for_timed()
        await self._wait_for_pops()

    async def _wait_for_timed(self) -> None:
        owed = {name for name, timed in self.ledger.timed.items() if timed.physical < self.promise.log_end}
        deadline = max((timed.due for timed in self.ledger.timed.values()), default=0) + LATE_MS
        missing = owed
        while missing and load.clock.now() < max(deadline, load.clock.now() + 1):
            there: set[str] = set()
            for queue_id in range(load.QUEUES):
                for record in await self.link.read_queue(load.TIMES, queue_id):
                    there.add(name_of(record.body))
            missing = owed - there
            if load.clock.now() > deadline:
                break
            await asyncio.sleep(0.2)
        assert not missing, f"{len(missing)} of {len(owed)} delayed messages lost: {sorted(missing)[:3]}"

    async def _wait_for_pops(self) -> None:
        ledger = self.ledger
        names = {
            kept.name for place, kept in ledger.messages.items() if place.topic == load.POPS
        } - ledger.ack_asked
        deadline = load.clock.now() + load.INVISIBLE_MS + LATE_MS
        while (missing := names - ledger.acked.keys()) and load.clock.now() < deadline:
            for record, receipt in await load.pop(self.link, wait_ms=500):
                name = name_of(record.body)
                load.note_delivery(ledger, name)
                await load.ack(self.link, ledger, name, receipt)
        assert not missing, (
            f"{len(missing)} of {len(names)} never came to the consumers: {sorted(missing)[:3]}"
        )
