# SPDX-License-Identifier: Apache-2.0
"""A store read in bulk by those who decode records themselves (Spark): queue units and bytes of the log, nothing looked
at, so that a message costs the broker no more than its copying."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aerobee.broker import checks
from aerobee.net.reply import Reply, reply_frame, with_body
from aerobee.protocol.codes import RequestCode
from aerobee.protocol.frames import DEFAULT_MAX_FRAME
from aerobee.protocol.headers.consume import LogBounds, ReadLog, ReadUnits, UnitsRead

if TYPE_CHECKING:
    from aerobee.broker.broker import Broker
    from aerobee.fronts.remoting.routes import Adapter
    from aerobee.net.connection import Answer, Connection
    from aerobee.protocol.command import Command

MOST_BYTES = DEFAULT_MAX_FRAME - 65_536
MOST_UNITS = 50_000
MOST_SAMPLES = 1_024  # each is looked up by itself


def read_units(connection: Connection, command: Command, broker: Broker) -> Answer:
    header = command.fields(ReadUnits)
    checks.broker_readable(broker.config)
    checks.readable_queue(broker.topics, header.topic, header.queue_id)
    step = max(1, header.step)
    count = min(header.count, MOST_UNITS if step == 1 else MOST_SAMPLES * step)
    # Where offsets were deleted since they were asked about, it begins later.
    first = max(header.offset, broker.store.min_offset(header.topic, header.queue_id))
    count -= first - header.offset
    units = broker.store.units(header.topic, header.queue_id, first, count, step)
    return Reply(header=UnitsRead(offset=first), body=units)


def read_log(connection: Connection, command: Command, broker: Broker) -> Answer:
    header = command.fields(ReadLog)
    checks.broker_readable(broker.config)
    bounds = LogBounds(min_position=broker.store.log_min, max_position=broker.store.log_max)
    found = broker.store.log_from(header.position, min(header.size, MOST_BYTES))
    return with_body(reply_frame(command, Reply(header=bounds)), found)


ROUTES: dict[int, Adapter] = {
    RequestCode.AEROBEE_READ_UNITS: read_units,
    RequestCode.AEROBEE_READ_LOG: read_log,
}
