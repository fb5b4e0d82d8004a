# SPDX-License-Identifier: Apache-2.0
"""For tests, ours and users': an embedded server, a clock moved by hand, and pytest fixtures (`plugin`).

>>> async def test_a_failed_payment_is_tried_again_after_half_an_hour(aerobee_manual_server):
...     server = aerobee_manual_server
...     async with Producer(server.namesrv) as producer, PushConsumer(server.namesrv, group="billing", ..., handler=pay):
...         await producer.send(Message("payments", b"42"))
...         await eventually(lambda: server.lag("billing").delayed == 1)  # failed, and the server has it back
...         server.clock.advance(minutes=30)
...         await eventually(lambda: attempts == [1, 2])
"""

from aerobee.clock import ManualClock
from aerobee.testing.cluster import ClusterUnderTest
from aerobee.testing.moved_clock import TestClock
from aerobee.testing.process import ServerProcess
from aerobee.testing.server import TestServer
from aerobee.testing.waiting import eventually, wait_until

__all__ = [
    "ClusterUnderTest",
    "ManualClock",
    "ServerProcess",
    "TestClock",
    "TestServer",
    "eventually",
    "wait_until",
]
