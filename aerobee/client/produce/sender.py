# SPDX-License-Identifier: Apache-2.0
"""One send: choose a broker, hand the frame over, wait for the answer, try elsewhere when that may help."""

from __future__ import annotations

import asyncio
import logging
import shlex
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from aerobee import native
from aerobee.client.message import STATUS_BY_CODE, SendResult, SendStatus
from aerobee.client.produce.away import Away
from aerobee.client.produce.merging import Merging
from aerobee.client.produce.queue_selector import Faults, InTurn
from aerobee.client.produce.tries import Lines, NotAsWished, Tries
from aerobee.client.session.deadlines import Deadlines, expire, fail
from aerobee.client.session.refusal import refusal
from aerobee.errors import AerobeeError, ConnectionLost, NetworkError, NoRoute, TopicNotWritable
from aerobee.protocol import command as wire
from aerobee.protocol.accounts import sign
from aerobee.protocol.bodies import MessageQueue
from aerobee.protocol.codes import RequestCode, perm_text
from aerobee.protocol.fast_frames import Sending, SendTemplate
from aerobee.protocol.headers.produce import SendResult as SendResultHeader
from aerobee.protocol.routing import TopicQueues, limited

if native.is_on:
    from aerobee.client.produce.compiled_frames import compiled
    from aerobee.native.client_sends import SentAnswers

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from aerobee.client.options import SendOptions
    from aerobee.client.produce.merging import Call, Frame
    from aerobee.client.session.session import Session
    from aerobee.native.client_sends import SendFrames
    from aerobee.net.connection import Connection, Waiting
    from aerobee.protocol.command import Command

    Frames = SendTemplate | SendFrames

log = logging.getLogger("aerobee.client.producer")

T = TypeVar("T")

_sent = SentAnswers(SendResultHeader, SendResult, SendStatus.OK) if native.is_on else None
SINGLE, BATCH = RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE


class Sender:
    def __init__(self, session: Session[SendOptions], group: str) -> None:
        self._session = session
        self._group = group
        self._options = session.options
        self._clock = session.clock
        self._warm: dict[tuple[int, str, str], WarmConnection] = {}
        self._turns: dict[str, InTurn] = {}
        self._faults = Faults() if session.options.avoid_slow_brokers else None
        self._deadlines = Deadlines(session.clock)
        self._lines = Lines(session.clock)
        self._connections: dict[str, Connection] = {}  # by broker, the last one that was written to
        self._away = Away(session)
        self._rendered_here = not session.options.access_key  # signed frames take the general way
        self._merging = Merging(partial(self._frame, BATCH), partial(self._frame, SINGLE))

    def close(self) -> None:
        self._deadlines.close()

    # -- queues --------------------------------------------------------------------------------------------

    async def queues(self, topic: str) -> Sequence[MessageQueue]:
        """The writable queues; an unknown topic gets those of the template topic, whose brokers create it."""
        known = self._session.routes.get(topic)
        if known is None or not known.writable:
            try:
                known = await self._session.route(topic)
            except NoRoute:
                known = await self._from_template(topic)
        if not known.writable:
            known = await self._session.refresh_route(topic)
        if not known.writable:
            raise _unwritable(topic, known)
        return known.writable

    async def _from_template(self, topic: str) -> TopicQueues:
        try:
            template = await self._session.route(self._options.template_topic)
        except NoRoute:
            raise NoRoute(
                f"topic {topic!r} is unknown and the brokers create no topics: create it first"
            ) from None
        return self._session.adopt_route(topic, limited(template.route, self._options.new_topic_queues))

    def _choose(self, queues: Sequence[MessageQueue], topic: str, avoid: str | None) -> MessageQueue:
        turn = self._turns.get(topic)
        if turn is None:
            turn = self._turns[topic] = InTurn(hash((self._session.client_id, topic)) & 0xFFFF)
        if self._faults is not None:
            queues = self._faults.allowed(queues, self._clock.now())
        return turn.choose(queues, avoid)

    def in_turn(self, topic: str, select: Callable[[], Awaitable[MessageQueue]]) -> Awaitable[MessageQueue]:
        """The queue of a send that has its place among others: who can choose at once does not overtake those that
        still wait for the topic's route."""
        if topic not in self._lines and self._session.routes.get(topic) is not None:
            return select()
        return self._lines.through(topic, self._clock.now() + self._options.send_timeout_ms, select)

    # -- sending -------------------------------------------------------------------------------------------

    def start_now(self, sending: Sending, queue: MessageQueue | None) -> tuple[Call, MessageQueue] | None:
        """The first try when nothing has to be waited for before, which is nearly always; else None."""
        topic = sending.topic
        known = self._session.routes.get(topic)
        if known is None or not known.writable:
            return None
        if queue is not None and queue in self._lines:
            return None
        chosen = queue or self._choose(known.writable, topic, None)
        merging, is_plain = self._merging, queue is None and sending.may_merge
        if merging.turn and is_plain:
            call = merging.join(sending, chosen)
            if call is not None:
                return call, chosen
        warm = self._warm_connection(SINGLE, topic, chosen.broker_name)
        if warm is None:
            return None
        if not merging.turn and warm.connection.awaits_nothing:  # nobody to wait for
            call = warm.new_call()
            self._write_lone(warm, sending, chosen, call)
            self._deadlines.watch(call, self._deadline(sending))
        elif is_plain:
            call = merging.add(sending, chosen)
        else:
            call = merging.add_alone(sending, chosen)
        return call, chosen

    def _write_lone(
        self, warm: WarmConnection, sending: Sending, queue: MessageQueue, call: asyncio.Future[Any]
    ) -> None:
        if not self._rendered_here:
            rendering = self._rendering(warm.template, sending, queue)
            warm.connection.write_at_once(warm.connection.rendered(rendering, call))
            warm.connection.tell_if_lost()
            return
        waiting: Waiting = call if _sent is None else _sent.call(call, sending.message_id, queue)
        warm.connection.ask_at_once(warm.template.frame, queue.queue_id, sending, waiting)

    def _frame(self, code: RequestCode, sending: Sending, queue: MessageQueue, waiting: Waiting) -> Frame:
        warm = self._warm_connection(code, sending.topic, queue.broker_name)
        if warm is None:  # lost within this turn
            self._tell_lost(queue.broker_name)
            fail(waiting, ConnectionLost(f"the connection to broker {queue.broker_name!r} was lost"))
            return None
        frame = warm.connection.rendered(self._rendering(warm.template, sending, queue), waiting)
        self._deadlines.watch(waiting, self._deadline(sending))
        return warm.connection, frame

    def way(
        self, sending: Sending, queue: MessageQueue | None
    ) -> tuple[MessageQueue, str, Callable[[int], bytes]] | None:
        """For one who has a connection of his own: the queue a first try goes to, its broker's address, and what renders
        the frame; None when something has to be waited for."""
        known = self._session.routes.get(sending.topic)
        if known is None or not known.writable or (queue is not None and queue in self._lines):
            return None
        chosen = queue or self._choose(known.writable, sending.topic, None)
        address = self._session.routes.master(chosen.broker_name)
        warm = self._warm.get((SINGLE, sending.topic, chosen.broker_name))
        template = warm.template if warm else self._template(SINGLE, sending.topic, chosen.broker_name)
        return None if address is None else (chosen, address, self._rendering(template, sending, chosen))

    def _rendering(self, template: Frames, sending: Sending, queue: MessageQueue) -> Callable[[int], bytes]:
        frame, queue_id = template.frame, queue.queue_id

        def render(opaque: int) -> bytes:  # a `partial` would take twice as long
            return frame(opaque, queue_id, sending)

        return render if self._rendered_here else partial(self._signed, render)

    def _deadline(self, sending: Sending) -> int:
        """Its birth is told by the wall clock."""
        return sending.born - self._clock.ahead + self._options.send_timeout_ms

    def _warm_connection(self, code: RequestCode, topic: str, broker_name: str) -> WarmConnection | None:
        """The open way to a broker; None when it must be opened first."""
        key = (code, topic, broker_name)
        warm = self._warm.get(key)
        routes = self._session.routes
        if warm is not None and warm.version == routes.version and warm.connection.is_open:
            return warm
        address = routes.master(broker_name)
        connection = self._session.open_connection(address) if address else None
        if connection is None:
            return None
        template = warm.template if warm else self._template(code, topic, broker_name)
        if _sent is not None:
            connection.ahead = _sent.take
        self._connections[broker_name] = connection
        self._session.check_loop()
        new_call = asyncio.get_running_loop().create_future
        warm = self._warm[key] = WarmConnection(template, connection, routes.version, new_call)
        return warm

    def _template(self, code: RequestCode, topic: str, broker_name: str) -> Frames:
        options = self._options
        template = SendTemplate(
            code, self._group, topic, broker_name, options.template_topic, options.new_topic_queues
        )
        return compiled(template) if native.is_on else template

    def finish(self, answer: Command | SendResult, sending: Sending, chosen: MessageQueue) -> SendResult:
        """What came of a try begun by `start_now`. Raises when it was refused."""
        if self._faults is None and type(answer) is SendResult and answer.status is SendStatus.OK:
            return answer  # the usual one: no call more than it needs
        result = self._good(answer, sending, chosen)
        if self._faults is not None:
            took_ms = self._clock.wall() - sending.born
            self._faults.answered(chosen.broker_name, took_ms, self._clock.now())
        return result

    async def send_elsewhere(
        self, error: AerobeeError, sending: Sending, queue: MessageQueue | None, chosen: MessageQueue
    ) -> SendResult:
        """Further tries, after one begun by `start_now` has failed."""
        tries = self._tries(sending, queue)
        tries.at = chosen.broker_name
        known = self._session.routes.get(sending.topic)
        if queue is None and known is not None:
            tries.brokers = {each.broker_name for each in known.writable}
        return await self._send_again(tries, error, sending, SINGLE, queue)

    async def send(self, sending: Sending, code: RequestCode, queue: MessageQueue | None) -> SendResult:
        """In turn with those that wait for the same queue. Without a queue given, tries go to other brokers too."""
        tries = self._tries(sending, queue)
        if queue is not None:
            if self._tell_lost(queue.broker_name):
                await asyncio.sleep(0)  # they try again before us
            if not self._is_open(queue) and self._lines.lead(queue):
                return await self._lines.headed(queue, self._try_on(tries, sending, code, queue))
            await self._lines.join(queue, tries.deadline)
        return await self._set_out(sending, code, queue)

    async def _set_out(self, sending: Sending, code: RequestCode, queue: MessageQueue | None) -> SendResult:
        tries = self._tries(sending, queue)
        try:
            return await self._try(tries, sending, code, queue)
        except AerobeeError as error:
            return await self._send_again(tries, error, sending, code, queue)

    async def _try_on(
        self, tries: Tries, sending: Sending, code: RequestCode, queue: MessageQueue | None
    ) -> SendResult:
        try:
            return await self._try(tries, sending, code, queue)
        except AerobeeError as error:
            return await self._try_again(tries, error, sending, code, queue)

    def _tell_lost(self, broker_name: str) -> bool:
        """Those who wait on a lost connection hear of it before who comes after them; False when there is nobody."""
        connection = self._connections.get(broker_name)
        return connection is not None and connection.tell_if_lost()

    def _is_open(self, queue: MessageQueue) -> bool:
        address = self._session.routes.master(queue.broker_name)
        return address is not None and self._session.open_connection(address) is not None

    def _tries(self, sending: Sending, queue: MessageQueue | None) -> Tries:
        # A refusal of the one broker that has the queue is final; only its absence is waited for.
        refusals = self._options.send_retries if queue is None else 0
        deadline = self._deadline(sending)
        return Tries(refusals, deadline - self._options.send_timeout_ms, deadline)

    async def _send_again(
        self,
        tries: Tries,
        error: AerobeeError,
        sending: Sending,
        code: RequestCode,
        queue: MessageQueue | None,
    ) -> SendResult:
        """What goes to one queue stands in line, so that none overtakes another while the broker is away."""
        is_late = self._clock.now() >= tries.deadline
        if queue is None or is_late or not self._options.send_retries or not isinstance(error, NetworkError):
            return await self._try_again(tries, error, sending, code, queue)
        if self._lines.lead(queue):
            return await self._lines.headed(queue, self._try_again(tries, error, sending, code, queue))
        await self._lines.join(queue, tries.deadline)
        return await self._set_out(
            sending, code, queue
        )  # not `send`: the line it would join anew may be there still

    async def _try_again(
        self,
        tries: Tries,
        error: AerobeeError,
        sending: Sending,
        code: RequestCode,
        queue: MessageQueue | None,
    ) -> SendResult:
        while self._options.send_retries and (pause := tries.again(error, self._clock.now())) is not None:
            # Outages are told elsewhere.
            log.debug("send to broker=%s failed, trying again: %s", tries.at, error)
            try:
                async with tries.in_time(self._clock, sending.topic):
                    await self._after_failure(sending.topic, tries.at, error)
                if pause:
                    await self._away.rest(error, pause)
                return await self._try(tries, sending, code, queue)
            except AerobeeError as failed:
                error = failed
        if isinstance(error, NotAsWished):
            return error.result
        raise tries.told(error, sending.topic, self._clock.now()) from None

    async def patiently(self, topic: str, ask: Callable[[], Awaitable[T]]) -> T:
        """What `ask` says, which may be asked twice: a broker that is away is waited for as long as a send would."""
        began = self._clock.now()
        tries = Tries(0, began, began + self._options.send_timeout_ms)
        while True:
            try:
                return await ask()
            except AerobeeError as error:
                pause = tries.again(error, self._clock.now()) if self._options.send_retries else None
                if pause is None:
                    raise
                await self._after_failure(topic, None, error)
                await self._clock.sleep(pause)

    async def _after_failure(self, topic: str, broker_name: str | None, error: AerobeeError) -> None:
        if self._faults is not None and broker_name is not None:
            self._faults.failed(broker_name, self._clock.now())
        await self._away.look_for(topic, error)

    async def _try(
        self, tries: Tries, sending: Sending, code: RequestCode, queue: MessageQueue | None
    ) -> SendResult:
        async with tries.in_time(self._clock, sending.topic):
            chosen, connection = await self._connect(tries, sending.topic, queue)
        template = self._template(code, sending.topic, chosen.broker_name)
        began = self._clock.now()
        call: asyncio.Future[Command] = asyncio.get_running_loop().create_future()
        connection.write(connection.rendered(self._rendering(template, sending, chosen), call))
        # Not among `_deadlines`: they expire in the order they came, and this one began before others that came earlier.
        timer = self._clock.call_at(tries.deadline, partial(expire, call))
        try:
            result = self._good(await call, sending, chosen)
        finally:
            timer.cancel()
        if self._faults is not None:
            self._faults.answered(chosen.broker_name, self._clock.now() - began, self._clock.now())
        return result

    async def _connect(
        self, tries: Tries, topic: str, queue: MessageQueue | None
    ) -> tuple[MessageQueue, Connection]:
        try:
            queues = await self._away.queues(topic, self.queues)
        except NoRoute:
            # Known before: its broker restarts. Nothing known at all: the server is starting.
            tries.hopeless = bool(self._session.routes.topics()) and not self._session.routes.had(topic)
            raise
        tries.brokers = {each.broker_name for each in ([queue] if queue else queues)}
        chosen = queue or self._choose(queues, topic, tries.at)
        tries.at = chosen.broker_name
        address = self._session.routes.master(chosen.broker_name)
        if address is None:
            raise NoRoute(f"broker {chosen.broker_name!r} has no master now")
        return chosen, await self._away.connection(address)

    def _good(self, answer: Command | SendResult, sending: Sending, queue: MessageQueue) -> SendResult:
        result = answer if isinstance(answer, SendResult) else result_of(answer, sending, queue)
        if result.status is not SendStatus.OK and self._options.retry_unless_ok:
            raise NotAsWished(result)
        return result

    def _signed(self, render: Callable[[int], bytes], opaque: int) -> bytes:
        command = wire.decode(memoryview(render(opaque))[4:])
        return wire.encode(sign(command, self._options))

    async def send_oneway(self, sending: Sending, queue: MessageQueue | None) -> None:
        queues = await self.queues(sending.topic)
        chosen = queue or self._choose(queues, sending.topic, None)
        address = self._session.routes.master(chosen.broker_name)
        if address is None:
            raise NoRoute(f"broker {chosen.broker_name!r} has no master now")
        connection = self._session.open_connection(address) or await self._session.connection(address)
        template = self._template(SINGLE, sending.topic, chosen.broker_name)
        frame = template.frame(0, chosen.queue_id, sending)
        connection.send(sign(wire.decode(memoryview(frame)[4:]), self._options))


class WarmConnection(msgspec.Struct):
    """An open connection and the frames made for it, valid while the routes stay."""

    template: Frames
    connection: Connection
    version: int
    new_call: Callable[[], Call]  # of the connection's loop


def result_of(answer: Command, sending: Sending, queue: MessageQueue) -> SendResult:
    status = STATUS_BY_CODE.get(answer.code)
    if status is None:
        raise refusal(answer)
    fields = answer.fields(SendResultHeader)
    stored = queue
    if fields.queue_id != queue.queue_id:
        stored = MessageQueue(queue.broker_name, fields.queue_id, sending.topic)
    return SendResult(
        status,
        sending.message_id,
        fields.msg_id,
        stored,
        fields.queue_offset,
        fields.transaction_id,
        fields.recall_handle,
    )


def _unwritable(topic: str, known: TopicQueues) -> NoRoute:
    if not known.is_closed:
        return NoRoute(f"topic {topic!r} has no broker with a master now")
    perms = sorted({perm_text(data.perm) for data in known.route.queue_datas})
    return TopicNotWritable(
        f"topic {topic!r} has no queue that may be written, its permission is {', '.join(perms)}: "
        f"`aerobee topics update {shlex.quote(topic)} --perm rw` opens it, `aerobee admin addWritePerm` "
        "a broker that was closed by wipeWritePerm"
    )
