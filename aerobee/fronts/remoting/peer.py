# SPDX-License-Identifier: Apache-2.0
"""What the front remembers of a connection's other end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aerobee.protocol.message import pack_host

if TYPE_CHECKING:
    from aerobee.net.connection import Connection
    from aerobee.protocol.command import Command


def born_host(connection: Connection) -> bytes:
    """The peer's address as a record stores it, packed once per connection."""
    host: bytes | None = connection.attributes.get("born_host")
    if host is None:
        host = connection.attributes["born_host"] = pack_host(*connection.remote)
    return host


def introduce(connection: Connection, command: Command) -> None:
    """Note who speaks, for tools that list clients."""
    connection.attributes["language"] = command.language
    connection.attributes["version"] = command.version
