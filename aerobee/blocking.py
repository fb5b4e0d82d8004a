# SPDX-License-Identifier: Apache-2.0
"""The client without `async`, and a server that needs none: `import aerobee.blocking as aerobee`."""

from aerobee.client.blocking import *  # noqa: F403
from aerobee.client.blocking import __all__ as _clients
from aerobee.server_thread import Server as Server

__all__ = [*_clients, "Server"]
