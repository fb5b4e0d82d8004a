# SPDX-License-Identifier: Apache-2.0
"""Statuses: business errors travel as gRPC OK with a code in the body; one table from ours to theirs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aerobee import errors
from aerobee.fronts.grpc.generated import messaging_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Sequence


class Refused(Exception):
    """A request the API refuses by a code of its own, before any operation runs."""

    def __init__(self, code: Any, text: str) -> None:
        super().__init__(text)
        self.code = code


OK = pb.Status(code=pb.OK, message="OK")

_CODES: dict[type[Exception], Any] = {
    errors.TopicNotFound: pb.TOPIC_NOT_FOUND,
    errors.GroupNotFound: pb.CONSUMER_GROUP_NOT_FOUND,
    errors.SystemBusy: pb.TOO_MANY_REQUESTS,
    errors.FlowControl: pb.TOO_MANY_REQUESTS,
    errors.RequestCodeNotSupported: pb.NOT_IMPLEMENTED,
    errors.SubscriptionParseFailed: pb.ILLEGAL_FILTER_EXPRESSION,
    errors.NoPermission: pb.FORBIDDEN,
    errors.AccessDenied: pb.UNAUTHORIZED,
    errors.AclDenied: pb.UNAUTHORIZED,
    errors.MessageIllegal: pb.BAD_REQUEST,
    errors.InvalidParameter: pb.BAD_REQUEST,
    errors.NoMessage: pb.INVALID_RECEIPT_HANDLE,
    errors.IllegalOperation: pb.BAD_REQUEST,
    errors.InvalidHandle: pb.BAD_REQUEST,
    errors.QueryNotFound: pb.OFFSET_NOT_FOUND,
    errors.DiskFull: pb.INTERNAL_SERVER_ERROR,
}


def status_of(error: Exception) -> Any:
    """The status a client sees for an error; its text ends up in the client's exception."""
    if isinstance(error, Refused):
        return pb.Status(code=error.code, message=str(error))
    text = getattr(error, "remark", "") or str(error) or type(error).__name__
    return pb.Status(code=_CODES.get(type(error), pb.INTERNAL_SERVER_ERROR), message=text)


def common(found: Sequence[Any]) -> Any:
    """The status of a whole request: the code of all its parts, or MULTIPLE_RESULTS; the reasons stay with the parts."""
    if len(found) == 1 and found[0].code == pb.OK:
        return OK
    if not found:
        return pb.Status(code=pb.INTERNAL_SERVER_ERROR, message="the request holds no entries")
    code = found[0].code if len({status.code for status in found}) == 1 else pb.MULTIPLE_RESULTS
    return pb.Status(code=code, message=pb.Code.Name(code))
