# SPDX-License-Identifier: Apache-2.0
"""The broker's remoting port: finds the adapter of a request, and turns what it raises into an answer."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from aerobee.errors import BrokerError, DiskFull, ProtocolError, StoreError
from aerobee.fronts.remoting.routes import ROUTES
from aerobee.net.connection import Large, Reply
from aerobee.net.routes import Request
from aerobee.protocol import properties as props
from aerobee.protocol.codes import RequestCode, ResponseCode
from aerobee.protocol.command import ONE_WAY

if TYPE_CHECKING:
    from aerobee.broker.broker import Broker
    from aerobee.net.connection import Answer, Connection
    from aerobee.net.routes import Later, Route
    from aerobee.protocol.command import Command

log = logging.getLogger("aerobee.front")

_COMPLAIN_EVERY_MS = 60_000
# Answers to these, refusals too, say in which region the broker is and that it traces: clients' trace hooks read both.
# (An accepted send is written as text, with the two; see produce.py.)
_STAMPED = frozenset(
    {
        RequestCode.SEND_MESSAGE,
        RequestCode.SEND_MESSAGE_V2,
        RequestCode.SEND_BATCH_MESSAGE,
        RequestCode.SEND_REPLY_MESSAGE,
        RequestCode.SEND_REPLY_MESSAGE_V2,
        RequestCode.RECALL_MESSAGE,
    }
)


class RemotingFront:
    """`handle` is the handler of every accepted connection, this object their observer."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self._routes: dict[int, Route] = ROUTES
        self._complained: dict[int, int] = {}  # unknown code -> when it was last logged

    def handle(self, connection: Connection, command: Command) -> Answer | Later:
        route = self._routes.get(command.code)
        if route is None:
            return self._unknown(connection, command)
        header, adapter = route
        try:
            answer = adapter(Request(connection, command), command.fields(header), self.broker)
        except Exception as error:
            return self._stamped(command, _refusal(connection, command, error))
        if type(answer) is bytes or answer is None:
            return answer
        if type(answer) is Reply or type(answer) is Large:
            return self._stamped(command, answer)
        return self._guarded(connection, command, answer)  # type: ignore[arg-type]

    async def _guarded(self, connection: Connection, command: Command, later: Later) -> Answer:
        try:
            answer = await later
        except Exception as error:
            answer = _refusal(connection, command, error)
        return self._stamped(command, answer)

    def _stamped(self, command: Command, answer: Answer) -> Answer:
        if type(answer) is Reply and command.code in _STAMPED:
            answer.ext = {props.MSG_REGION: self.broker.config.region, props.TRACE_ON: "true"}
        return answer

    def opened(self, connection: Connection) -> None:
        log.debug("opened peer=%s", connection.remote_text)

    def closed(self, connection: Connection) -> None:
        log.debug("closed peer=%s", connection.remote_text)
        self.broker.clients.closed(connection)

    def _unknown(self, connection: Connection, command: Command) -> Answer:
        now = self.broker.clock.now()
        last = self._complained.get(command.code)
        if last is None or now - last >= _COMPLAIN_EVERY_MS:
            if len(self._complained) > 1000:  # a scan of all codes must not grow this for ever
                self._complained.clear()
            self._complained[command.code] = now
            log.warning("request code=%d peer=%s: not supported", command.code, connection.remote_text)
        return Reply(
            ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark=f" request type {command.code} not supported"
        )


def _refusal(connection: Connection, command: Command, error: Exception) -> Answer:
    """The one place where an exception becomes an answer."""
    if isinstance(error, BrokerError):
        code, remark = error.code, error.remark
        log.debug("refused code=%d peer=%s: %s", command.code, connection.remote_text, error)
    elif isinstance(error, DiskFull):
        code, remark = int(ResponseCode.SERVICE_NOT_AVAILABLE), str(error)
    elif isinstance(error, StoreError):
        code, remark = int(ResponseCode.SYSTEM_ERROR), str(error)
        log.error("request code=%d peer=%s: %s", command.code, connection.remote_text, error)
    elif isinstance(error, ProtocolError):
        # A field that is missing or does not convert: the framing is intact, so the connection lives.
        code, remark = int(ResponseCode.SYSTEM_ERROR), str(error)
        log.debug("refused code=%d peer=%s: %s", command.code, connection.remote_text, error)
    else:
        code, remark = int(ResponseCode.SYSTEM_ERROR), f"{type(error).__name__}: {error}"
        log.error("request code=%d peer=%s failed", command.code, connection.remote_text, exc_info=error)
    if command.flag & ONE_WAY:
        log.info("one-way request code=%d peer=%s refused: %s", command.code, connection.remote_text, remark)
        return None
    return Reply(code, remark=remark)


_NOT_ON_VIP = frozenset(
    {
        RequestCode.PULL_MESSAGE,
        RequestCode.LITE_PULL_MESSAGE,
        RequestCode.POP_MESSAGE,
        RequestCode.PEEK_MESSAGE,
        RequestCode.NOTIFICATION,
        RequestCode.POLLING_INFO,
    }
)


class VipFront:
    """The second port of Java clients up to 4.4.0: the same requests, but none that reads messages."""

    def __init__(self, front: RemotingFront) -> None:
        self._front = front

    def handle(self, connection: Connection, command: Command) -> Answer | Later:
        if command.code in _NOT_ON_VIP:
            remark = f"request code {command.code} is not served on the VIP port; use the broker's port"
            return Reply(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark=remark)
        return self._front.handle(connection, command)

    def opened(self, connection: Connection) -> None:
        self._front.opened(connection)

    def closed(self, connection: Connection) -> None:
        self._front.closed(connection)
