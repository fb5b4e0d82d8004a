# SPDX-License-Identifier: Apache-2.0
"""The admin client: topics, groups, progress, messages, brokers."""

from __future__ import annotations

from aerobee.client.admin.brokers import BrokerAdmin
from aerobee.client.admin.messages import MessageAdmin
from aerobee.protocol.bodies.figures import GroupLag, QueueLag

__all__ = ["Admin", "GroupLag", "QueueLag"]


class Admin(MessageAdmin, BrokerAdmin):
    """Everything an operator asks of a cluster.

    >>> async with Admin("127.0.0.1:9876") as admin:
    ...     await admin.create_topic("orders", queues=8)
    ...     print((await admin.lag("billing")).lag)
    ...     await admin.reset_offsets("billing", "orders", to="first")
    ...     await admin.resend_dead_letters("billing")
    """
