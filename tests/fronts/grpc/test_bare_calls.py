# SPDX-License-Identifier: Apache-2.0
"""Every call of the gRPC API that names nothing, or a topic and a group alone: refused with a code of its own."""

from __future__ import annotations

from typing import Any

import pytest

from aerobee.fronts.grpc.generated import messaging_pb2 as pb
from aerobee.fronts.grpc.routes import ROUTES, Answers

pytestmark = pytest.mark.slow  # a server and a channel each

NAMED = {"topic": "orders", "group": "billing"}
# What an empty request gets, and one that names a topic and a group and nothing else.
EXPECTED = {
    "QueryRoute": (pb.ILLEGAL_TOPIC, pb.OK),
    "QueryAssignment": (pb.ILLEGAL_TOPIC, pb.OK),
    "Heartbeat": (pb.OK, pb.OK),
    "NotifyClientTermination": (pb.OK, pb.OK),
    "SendMessage": (pb.MESSAGE_CORRUPTED, pb.MESSAGE_CORRUPTED),
    "EndTransaction": (pb.ILLEGAL_TOPIC, pb.INVALID_TRANSACTION_ID),
    "RecallMessage": (pb.ILLEGAL_TOPIC, pb.BAD_REQUEST),
    "ReceiveMessage": (pb.ILLEGAL_TOPIC, pb.ILLEGAL_TOPIC),  # it has a queue, which names the topic
    "AckMessage": (pb.ILLEGAL_CONSUMER_GROUP, pb.INTERNAL_SERVER_ERROR),  # it holds no entry
    "ChangeInvisibleDuration": (pb.ILLEGAL_CONSUMER_GROUP, pb.INVALID_RECEIPT_HANDLE),
    "ForwardMessageToDeadLetterQueue": (pb.ILLEGAL_CONSUMER_GROUP, pb.INVALID_RECEIPT_HANDLE),
    "PullMessage": (pb.ILLEGAL_TOPIC, pb.ILLEGAL_TOPIC),
    "UpdateOffset": (pb.ILLEGAL_TOPIC, pb.ILLEGAL_TOPIC),
    "GetOffset": (pb.ILLEGAL_TOPIC, pb.ILLEGAL_TOPIC),
    "QueryOffset": (pb.ILLEGAL_TOPIC, pb.ILLEGAL_TOPIC),
}


async def answered(client: Any, name: str, request: Any) -> Any:
    if ROUTES[name].answers is Answers.STREAM:
        found = await client.stream(name, request)
        return [each.status for each in found if each.WhichOneof("content") == "status"][-1]
    return (await client.call(name, request)).status


def named(name: str) -> Any:
    request = ROUTES[name].request()
    for field, text in NAMED.items():
        if field in request.DESCRIPTOR.fields_by_name:
            getattr(request, field).name = text
    return request


@pytest.mark.parametrize("name", ROUTES)
async def test_a_bare_call_is_answered_with_a_code_of_its_own(
    client: Any, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    client.server.broker.topics.ensure("orders", 2)
    found = [await answered(client, name, request) for request in (ROUTES[name].request(), named(name))]
    assert tuple(pb.Code.Name(status.code) for status in found) == tuple(map(pb.Code.Name, EXPECTED[name]))
    assert all(status.message for status in found)
    failures = [
        record for record in caplog.records if record.exc_info is not None or record.levelname == "ERROR"
    ]
    assert failures == []
