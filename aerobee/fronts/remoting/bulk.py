# SPDX-License-Identifier: Apache-2.0
"""Queue units (20002) and bytes of the log (20003), Aerobee's own requests for readers in bulk."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aerobee.broker.operations.bulk import log_from, units_of
from aerobee.net.reply import Large, Reply, reply_frame
from aerobee.protocol.headers.consume import LogBounds, ReadLog, ReadUnits, UnitsRead

if TYPE_CHECKING:
    from aerobee.broker.broker import Broker
    from aerobee.net.connection import Answer
    from aerobee.net.routes import Request


def read_units(request: Request, header: ReadUnits, broker: Broker) -> Answer:
    first, units = units_of(header.topic, header.queue_id, header.offset, header.count, header.step, broker)
    return Reply(header=UnitsRead(offset=first), body=units)


def read_log(request: Request, header: ReadLog, broker: Broker) -> Answer:
    found = log_from(header.position, header.size, broker)
    bounds = LogBounds(min_position=broker.store.log_min, max_position=broker.store.log_max)
    return Large(reply_frame(request.command, Reply(header=bounds)), found)
