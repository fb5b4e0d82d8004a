# SPDX-License-Identifier: Apache-2.0
"""Runs of sends and batches that need no decision, served by the compiled lane.

It drafts the sends it understands (`native/sends.pyx`), the store keeps the draft as a whole, and only then statistics,
wake-ups and answers follow. `broker/operations/send.py` is the reference.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from aerobee.broker.delivery.keeping import NOT_WAITING
from aerobee.broker.operations import send
from aerobee.clock import perf_counter_ns
from aerobee.fronts.remoting.lane_answers import OPAQUE, template
from aerobee.native.sends import SendLane
from aerobee.native.texts import Texts
from aerobee.net.reply import Reply, refusal, reply_frame
from aerobee.protocol import command as wire
from aerobee.protocol import fast_frames
from aerobee.protocol import properties as props
from aerobee.protocol.codes import RequestCode
from aerobee.protocol.command import Command
from aerobee.protocol.frames import FrameDecoder
from aerobee.protocol.headers.produce import SendBatch, SendMessage, SendMessageV2, SendResult

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from typing import Any

    from aerobee.broker.broker import Broker
    from aerobee.fronts.remoting.lane_answers import Finish
    from aerobee.native.answers import Template
    from aerobee.net.connection import Connection
    from aerobee.protocol.bodies import TopicConfig
    from aerobee.protocol.command import Header

_HEADERS: dict[int, type[Header]] = {
    RequestCode.SEND_MESSAGE: SendMessage,
    RequestCode.SEND_MESSAGE_V2: SendMessageV2,
    RequestCode.SEND_BATCH_MESSAGE: SendBatch,
}
# In the properties of messages whose record would not be their properties and the stamps, one after the other.
_NOT_AS_IT_IS = (*send.SPECIAL, props.RECORD_CRC)
# Values of a rendered answer that stand nowhere else in it.
_ID, _KEY, _QUEUE, _OFFSET = "#message-id#", "#unique-key#", 1_234_567_891, 1_234_567_892


class Kept(NamedTuple):
    """A run that is in the log."""

    end: int  # where in the log
    frames: bytes
    answered: int  # of the frames, those that are not one-way
    answers: bytes


class SendRuns:
    """`codes` are those it serves: no gate stands before them."""

    def __init__(self, broker: Broker, is_open: Callable[[int], bool], finish: Finish) -> None:
        self._broker = broker
        self._finish = finish
        self._draft = broker.store.new_draft()
        headers = {code: header for code, header in _HEADERS.items() if is_open(code)}
        self.codes = frozenset(headers)
        batches = frozenset({RequestCode.SEND_BATCH_MESSAGE})
        self._sends = SendLane(headers, batches, self, self._draft, send.MAX_BATCH)
        self._prepared: tuple[object, ...] = ()
        self._needs_sync = False
        broker.topics.listeners.append(self._sends.forget)
        self.topics = broker.topics
        self.plain = broker.topics.plain
        self.begin: Callable[[], bool] = partial(broker.store.begin, self._draft)
        self.choose: Callable[[int, TopicConfig, str], int] = send.choose_queue

    def run(
        self, data: bytes, at: int, connection: Connection
    ) -> tuple[int, bytes | Coroutine[Any, Any, bytes]]:
        broker, store, sends = self._broker, self._broker.store, self._sends
        now = (broker.settings.value, store.settings.value, store.store_host)
        if now != self._prepared:
            self._prepare()
            self._prepared = now
        began_ns = perf_counter_ns()
        end = sends.take(data, at, connection.remote_packed, connection.limits.max_frame)
        if end == at:
            return at, b""
        try:
            store.keep(self._draft)
            answers = sends.answers
            if answers and end == len(data) and not self._needs_sync:
                connection.write_at_once(answers)  # in the log: the peer can go on while we do the rest
                answers = b""
            took_ns = store.dispatch(self._draft, sends.calls, began_ns)
            broker.stats.sent_run(sends)
            # Of the run, for all its requests: codes are rarely mixed, and nobody waits for one of them alone.
            broker.stats.counted.rpc.add_run(sends.code, took_ns, sends.calls)
            if self._needs_sync and sends.answered:
                kept = Kept(self._draft.start + self._draft.size, data[at:end], sends.answered, sends.answers)
                return end, self._durable(kept, connection)
            return end, answers
        finally:
            self._draft.drop()

    # -- what it is asked ---------------------------------------------------------------------------------------

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
        self._needs_sync = store.needs_sync
        # Who does not want to wait for the disk is answered before those who do: not in the same run.
        words = (*_NOT_AS_IT_IS, NOT_WAITING) if self._needs_sync else _NOT_AS_IT_IS
        self._sends.prepare(
            Texts(words, props.TAGS, props.UNIQ_KEY, props.KEYS),
            (self._sent(config.region), self._rendered(1, _KEY)),
            (
                _with_place(fast_frames.sent_batch(OPAQUE, config.region, _ID, _QUEUE, _OFFSET), None),
                self._rendered(1, None),
            ),
            send.stamps(config.region, config.cluster),
            store.store_host.hex().upper(),
        )

    def _sent(self, region: str) -> Template:
        return _with_place(fast_frames.sent(OPAQUE, region, _ID, _QUEUE, _OFFSET, _KEY), _KEY)

    def _rendered(self, serialize: int, key: str | None) -> Template:
        command = Command(RequestCode.SEND_MESSAGE_V2, OPAQUE, serialize=serialize)
        result = SendResult(msg_id=_ID, queue_id=_QUEUE, queue_offset=_OFFSET, transaction_id=key)
        return _with_place(reply_frame(command, self._finish(command, Reply(header=result))), key)


def _with_place(frame: bytes, key: str | None) -> Template:
    return template(frame, _ID, _QUEUE, _OFFSET, *([] if key is None else [key]))
