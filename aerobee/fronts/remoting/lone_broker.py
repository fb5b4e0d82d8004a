# SPDX-License-Identifier: Apache-2.0
"""Requests of tools that presume parts of a cluster this broker does without: slaves, controllers, RocksDB.

Each is answered as a RocketMQ broker without those parts answers; what it would not answer either is not here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aerobee.broker.operations.admin import cluster
from aerobee.errors import SystemFailure
from aerobee.net.connection import Reply

if TYPE_CHECKING:
    from aerobee.broker.broker import Broker
    from aerobee.net.connection import Answer
    from aerobee.net.routes import Request
    from aerobee.protocol.command import Header


def export_pop_records(request: Request, header: Header, broker: Broker) -> Answer:
    cluster.write_pop_records(broker)
    return Reply()


def reset_master_flush_offset(request: Request, header: Header, broker: Broker) -> Answer:
    """A slave's business; a master says yes and does nothing."""
    return Reply()


def epochs(request: Request, header: Header, broker: Broker) -> Answer:
    raise SystemFailure("this request only for controllerMode ")


def export_settings_as_json(request: Request, header: Header, broker: Broker) -> Answer:
    """They are kept as JSON anyway."""
    return Reply(remark="export done.")
