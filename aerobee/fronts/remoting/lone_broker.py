# SPDX-License-Identifier: Apache-2.0
"""Requests of tools that presume parts of a cluster this broker does without: slaves, controllers, RocksDB, users.

Each is answered as a RocketMQ broker without those parts answers; what it would not answer either is not here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aerobee.broker.operations.admin import cluster
from aerobee.errors import SystemFailure
from aerobee.net.connection import Reply
from aerobee.protocol.codes import RequestCode

if TYPE_CHECKING:
    from aerobee.broker.broker import Broker
    from aerobee.fronts.remoting.routes import Adapter
    from aerobee.net.connection import Answer, Connection
    from aerobee.protocol.command import Command


def export_pop_records(connection: Connection, command: Command, broker: Broker) -> Answer:
    cluster.write_pop_records(broker)
    return Reply()


def reset_master_flush_offset(connection: Connection, command: Command, broker: Broker) -> Answer:
    """A slave's business; a master says yes and does nothing."""
    return Reply()


def epochs(connection: Connection, command: Command, broker: Broker) -> Answer:
    raise SystemFailure("this request only for controllerMode ")


def export_settings_as_json(connection: Connection, command: Command, broker: Broker) -> Answer:
    """They are kept as JSON anyway."""
    return Reply(remark="export done.")


def users_and_policies(connection: Connection, command: Command, broker: Broker) -> Answer:
    raise SystemFailure(
        "The authenticationMetadataProvider is not configured: this broker keeps no users and no policies"
    )


_USERS = range(3001, 3011)  # create, update, delete, get and list users, then the same of policies
ROUTES: dict[int, Adapter] = {
    **dict.fromkeys(_USERS, users_and_policies),
    RequestCode.POP_ROLLBACK: export_pop_records,
    RequestCode.RESET_MASTER_FLUSH_OFFSET: reset_master_flush_offset,
    RequestCode.GET_BROKER_EPOCH_CACHE: epochs,
    RequestCode.EXPORT_ROCKSDB_CONFIG_TO_JSON: export_settings_as_json,
}
