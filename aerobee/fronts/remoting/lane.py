# SPDX-License-Identifier: Apache-2.0
"""Where the compiled lane meets the broker: runs of sends and acks that need no decision, served ahead of the handler.

`run` gives the lane the bytes of a read; it drafts the sends it understands (`native/sends.pyx`), the store keeps the
draft as a whole, and only then statistics, wake-ups and answers follow. What it leaves alone takes the ordinary way,
which is the reference: answers, files and figures are the same on both.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NamedTuple

from aerobee.broker.delivery.keeping import NOT_WAITING
from aerobee.broker.operations import ack, send
from aerobee.clock import perf_counter_ns
from aerobee.native.acks import AckLane
from aerobee.native.answers import Template
from aerobee.native.headers import code_of
from aerobee.native.sends import SendLane
from aerobee.native.texts import Texts
from aerobee.net.reply import Reply, refusal, reply_frame
from aerobee.protocol import command as wire
from aerobee.protocol import fast_frames
from aerobee.protocol import properties as props
from aerobee.protocol.codes import RequestCode
from aerobee.protocol.command import Command
from aerobee.protocol.frames import FrameDecoder
from aerobee.protocol.headers.consume import AckMessage
from aerobee.protocol.headers.produce import SendBatch, SendMessage, SendMessageV2, SendResult
from aerobee.protocol.receipt import ORDERLY_QUEUE

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from typing import Any

    from aerobee.broker.broker import Broker
    from aerobee.native.acks import Sheaf
    from aerobee.net.connection import Connection
    from aerobee.protocol.bodies import TopicConfig
    from aerobee.protocol.command import Header

    Finish = Callable[[Command, Reply], Reply]

log = logging.getLogger("aerobee.front")

_HEADERS: dict[int, type[Header]] = {
    RequestCode.SEND_MESSAGE: SendMessage,
    RequestCode.SEND_MESSAGE_V2: SendMessageV2,
    RequestCode.SEND_BATCH_MESSAGE: SendBatch,
}
# In the properties of messages whose record would not be their properties and the stamps, one after the other.
_NOT_AS_IT_IS = (*send.SPECIAL, props.RECORD_CRC)
# Values of a rendered answer that stand nowhere else in it.
_ID, _KEY, _QUEUE, _OFFSET, _OPAQUE = (
    "#message-id#",
    "#unique-key#",
    1_234_567_891,
    1_234_567_892,
    1_234_567_893,
)


class Kept(NamedTuple):
    """A run that is in the log."""

    end: int  # where in the log
    frames: bytes
    answered: int  # of the frames, those that are not one-way
    answers: bytes


class Lane:
    """One port's. It serves the codes that no gate stands before."""

    def __init__(self, broker: Broker, is_open: Callable[[int], bool], finish: Finish) -> None:
        self._broker = broker
        self._finish = finish
        self._draft = broker.store.new_draft()
        self._began = 0
        headers = {code: header for code, header in _HEADERS.items() if is_open(code)}
        batches = frozenset({RequestCode.SEND_BATCH_MESSAGE})
        self._sends = SendLane(headers, batches, self, self._draft, send.MAX_BATCH)
        self._send_codes = frozenset(headers)
        self._acks = (
            AckLane(AckMessage, self, _done(finish), ORDERLY_QUEUE) if is_open(AckMessage.code) else None
        )
        self._prepared: tuple[object, ...] = ()
        broker.topics.listeners.append(self._sends.forget)
        self.plain = broker.topics.plain
        self.choose: Callable[[int, TopicConfig, str], int] = send.choose_queue

    def run(
        self, data: bytes, at: int, connection: Connection
    ) -> tuple[int, bytes | Coroutine[Any, Any, bytes]]:
        """See `net.connection.Run`."""
        code = code_of(data, at)
        if code in self._send_codes:
            return self._run_sends(code, data, at, connection)
        if code == RequestCode.ACK_MESSAGE and self._acks is not None:
            return self._run_acks(self._acks, data, at, connection)
        return at, b""

    # -- sends -------------------------------------------------------------------------------------------------

    def _run_sends(
        self, code: int, data: bytes, at: int, connection: Connection
    ) -> tuple[int, bytes | Coroutine[Any, Any, bytes]]:
        broker, sends = self._broker, self._sends
        now = (broker.settings.value, broker.store.config, broker.store.store_host)
        if now != self._prepared:
            self._prepare()
            self._prepared = now
        end = sends.take(data, at, connection.remote_packed, connection.limits.max_frame)
        if end == at:
            return at, b""
        try:
            broker.store.keep(self._draft, sends.calls, self._began)
            for topic in sends.topics:
                broker.stats.sent_run(topic.name, topic.calls, topic.count, topic.size_bytes)
                if topic.has_large:
                    broker.stats.counted.large_run(topic.name, topic.large)
            # Of the run, for all its requests: codes are rarely mixed, and nobody waits for one of them alone.
            broker.stats.counted.rpc.add_run(code, perf_counter_ns() - self._began, sends.calls)
            if broker.store.needs_sync and sends.answered:
                kept = Kept(self._draft.start + self._draft.size, data[at:end], sends.answered, sends.answers)
                return end, self._durable(kept, connection)
            return end, sends.answers
        finally:
            self._draft.drop()

    # -- acks --------------------------------------------------------------------------------------------------

    def _run_acks(self, acks: AckLane, data: bytes, at: int, connection: Connection) -> tuple[int, bytes]:
        began, calls = perf_counter_ns(), 0
        end = acks.take(data, at, connection.limits.max_frame)
        for sheaf in acks.sheaves:
            place = (sheaf.topic, sheaf.group, sheaf.queue_id)
            ack.ack_bits(place, sheaf.start, sheaf.pop_time, sheaf.bits, self._broker)
            calls += sheaf.bits.bit_count()
        if calls:
            self._broker.stats.counted.rpc.add_run(AckMessage.code, perf_counter_ns() - began, calls)
        return end, acks.answers

    def open_bits(self, sheaf: Sheaf) -> int:
        place = (sheaf.topic, sheaf.group, sheaf.queue_id)
        return ack.open_bits(place, sheaf.start, sheaf.pop_time, self._broker)

    # -- what the lane of sends asks ---------------------------------------------------------------------------

    def begin(self) -> bool:
        self._began = perf_counter_ns()
        return self._broker.store.begin(self._draft)

    def is_unsaved(self, topic: str) -> bool:
        return topic in self._broker.topics.unsaved

    def new_key(self) -> str:
        return send.new_key(self._broker)

    # -- answers -----------------------------------------------------------------------------------------------

    async def _durable(self, kept: Kept, connection: Connection) -> bytes:
        """The answers, once all that the run stored is on disk; or the refusals, when it cannot be."""
        try:
            await self._broker.store.durable(kept.end, kept.answered)
        except Exception as error:
            commands = [wire.decode(frame) for frame in FrameDecoder().feed(kept.frames)]
            return b"".join(
                reply_frame(command, self._finish(command, refusal(command, error, connection.remote_text)))
                for command in commands
                if not command.is_one_way
            )
        return kept.answers

    def _prepare(self) -> None:
        """What follows from the settings in force."""
        config, store = self._broker.settings.value, self._broker.store
        # Who does not want to wait for the disk is answered before those who do: not in the same run.
        words = (*_NOT_AS_IT_IS, NOT_WAITING) if store.needs_sync else _NOT_AS_IT_IS
        self._sends.prepare(
            Texts(words, props.TAGS, props.UNIQ_KEY, props.KEYS),
            (self._sent(config.region), self._rendered(1, _KEY)),
            (self._rendered(0, None), self._rendered(1, None)),
            send.stamps(config.region, config.cluster),
            store.store_host.hex().upper(),
        )

    def _sent(self, region: str) -> Template:
        return _template(fast_frames.sent(_OPAQUE, region, _ID, _QUEUE, _OFFSET, _KEY), _KEY)

    def _rendered(self, serialize: int, key: str | None) -> Template:
        command = Command(RequestCode.SEND_MESSAGE_V2, _OPAQUE, serialize=serialize)
        result = SendResult(msg_id=_ID, queue_id=_QUEUE, queue_offset=_OFFSET, transaction_id=key)
        return _template(reply_frame(command, self._finish(command, Reply(header=result))), key)


def _done(finish: Finish) -> tuple[Template, Template]:
    """Success and nothing else to say, as JSON and binary."""
    command = Command(AckMessage.code, _OPAQUE, serialize=1)
    binary = Template(reply_frame(command, finish(command, Reply())), [])
    return Template(fast_frames.done(_OPAQUE), [], str(_OPAQUE).encode()), binary


def _template(frame: bytes, key: str | None) -> Template:
    values = [_ID, str(_QUEUE), str(_OFFSET), *([] if key is None else [key])]
    return Template(frame, [value.encode() for value in values], str(_OPAQUE).encode())
