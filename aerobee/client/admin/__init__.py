# SPDX-License-Identifier: Apache-2.0
"""The admin client: one class, made of its parts."""

from __future__ import annotations

from aerobee.client.admin.access import acl_of
from aerobee.client.admin.admin import Admin
from aerobee.protocol.bodies.figures import GroupLag, QueueLag

__all__ = ["Admin", "GroupLag", "QueueLag", "acl_of"]
