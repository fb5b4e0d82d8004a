# SPDX-License-Identifier: Apache-2.0
"""Queue units (20002) and bytes of the log (20003), Aerobee's own requests for readers in bulk."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aerobee.broker.operations.bulk import log_from, units_of
from aerobee.net.reply import Large, Reply, reply_frame
from aerobee.protocol.codes import RequestCode
from aerobee.protocol.headers.consume import LogBounds, ReadLog, ReadUnits, UnitsRead

if TYPE_CHECKING:
    from aerobee.broker.broker import Broker
    from aerobee.fronts.remoting.routes import Adapter
    from aerobee.net.connection import Answer, Connection
    from aerobee.protocol.command import Command


def read_units(connection: Connection, command: Command, broker: Broker) -> Answer:
    asked = command.fields(ReadUnits)
    first, units = units_of(asked.topic, asked.queue_id, asked.offset, asked.count, asked.step, broker)
    return Reply(header=UnitsRead(offset=first), body=units)


def read_log(connection: Connection, command: Command, broker: Broker) -> Answer:
    asked = command.fields(ReadLog)
    found = log_from(asked.position, asked.size, broker)
    bounds = LogBounds(min_position=broker.store.log_min, max_position=broker.store.log_max)
    return Large(reply_frame(command, Reply(header=bounds)), found)


ROUTES: dict[int, Adapter] = {
    RequestCode.AEROBEE_READ_UNITS: read_units,
    RequestCode.AEROBEE_READ_LOG: read_log,
}
