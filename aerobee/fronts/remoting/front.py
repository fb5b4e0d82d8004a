# SPDX-License-Identifier: Apache-2.0
"""The broker's remoting ports: the path of their requests, what their answers say of the broker, who comes and goes."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from aerobee import native
from aerobee.fronts.gates.call import Port
from aerobee.fronts.gates.remoting import RemotingPath
from aerobee.fronts.remoting.routes import ROUTES
from aerobee.protocol import properties as props
from aerobee.protocol.codes import RequestCode

if TYPE_CHECKING:
    from aerobee.broker.broker import Broker
    from aerobee.net.connection import Connection, Reply, Run
    from aerobee.protocol.command import Command

log = logging.getLogger("aerobee.front")

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

    def __init__(self, broker: Broker, port: Port = Port.BROKER) -> None:
        self.broker = broker
        path = RemotingPath(port, ROUTES, broker, broker.clock, self._stamped, broker.stats.counted.rpc)
        self.handle = path.handle
        self.run: Run | None = None  # what takes the busiest requests ahead of `handle`, where it is built
        if native.is_on:
            from aerobee.fronts.remoting.lane import Lane
            from aerobee.fronts.remoting.verified import VerifiedRuns

            self.run = Lane(broker, path.may_run, self._stamped).run
            if path.has_checks:
                self.run = VerifiedRuns(self.run, path).run

    def _stamped(self, command: Command, reply: Reply) -> Reply:
        if command.code in _STAMPED:
            reply.ext = {props.MSG_REGION: self.broker.config.region, props.TRACE_ON: "true"}
        return reply

    def opened(self, connection: Connection) -> None:
        log.debug("opened peer=%s", connection.remote_text)

    def closed(self, connection: Connection) -> None:
        log.debug("closed peer=%s", connection.remote_text)
        self.broker.clients.closed(connection)
