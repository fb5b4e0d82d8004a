# SPDX-License-Identifier: Apache-2.0
"""The three error families of docs/style.md, raised by the broker and raised again, alike, by the client."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class AerobeeError(Exception):
    """Everything this package raises on purpose, misuse (ValueError, TypeError) aside."""


class ProtocolError(AerobeeError):
    """The peer broke the framing or the format: log it and close the connection."""


# -- the disk ---------------------------------------------------------------------------------------


class StoreError(AerobeeError):
    """The disk refused: writes are refused, reads go on."""


class DiskFull(StoreError):
    """No space for another record; sends work again when space returns."""


class CorruptRecord(StoreError):
    """A record failed its checks; it is reported and never served."""


class StoreInUse(StoreError):
    """Another process holds the data directory."""


# -- the network, seen from a client -----------------------------------------------------------------


class NetworkError(AerobeeError, OSError):
    """A connection could not be made, or was lost while a request was under way. An OSError too, as elsewhere."""

    retryable: ClassVar[bool] = True


class ConnectionLost(NetworkError):
    """The connection was lost before the answer came; nobody knows whether the request arrived."""


class ClientClosed(NetworkError):
    """The client was stopped meanwhile: to try again does not help."""

    retryable: ClassVar[bool] = False


class RequestTimeout(NetworkError, TimeoutError):
    """No answer within the time given. A TimeoutError too."""


class NoRoute(AerobeeError):
    """The name servers know no broker for the topic."""

    retryable: ClassVar[bool] = True


class TopicNotWritable(NoRoute):
    """Its brokers are there, and it is closed to sends: waiting opens nothing."""

    retryable: ClassVar[bool] = False


class PartlyDone(AerobeeError):
    """A change that was made in some places and failed in others; `failures` are by place, `what` says the change."""

    def __init__(self, what: str, done: Sequence[str], failures: Mapping[str, AerobeeError]) -> None:
        why = "; ".join(f"{place}: {error}" for place, error in failures.items())
        super().__init__(f"{what} on {', '.join(done)}, but not on {why}")
        self.what = what
        self.done = tuple(done)
        self.failures = dict(failures)


# -- a request that was refused ----------------------------------------------------------------------


class BrokerError(AerobeeError):
    """A request was refused with a response code; the connection lives on.

    ``retryable`` tells a producer to try another broker; ``refresh_route`` that its route is stale.
    """

    code: ClassVar[int]
    retryable: ClassVar[bool] = False
    refresh_route: ClassVar[bool] = False
    by_code: ClassVar[dict[int, type[BrokerError]]] = {}

    def __init__(self, remark: str = "") -> None:
        super().__init__(remark)
        self.remark = remark

    def __init_subclass__(cls) -> None:
        if not issubclass(cls, cls.by_code.setdefault(cls.code, cls)):
            raise TypeError(f"{cls.__name__} reuses response code {cls.code}")

    def __str__(self) -> str:
        return f"{self.remark} (code {self.code} {type(self).__name__})"


class UnknownResponse(AerobeeError):
    """A refusal whose code has no class of its own."""

    retryable: ClassVar[bool] = False

    def __init__(self, code: int, remark: str) -> None:
        super().__init__(f"{remark} (code {code})")
        self.code = code
        self.remark = remark


def error_for(code: int, remark: str | None) -> BrokerError | UnknownResponse:
    """The exception a client raises for a response code."""
    known = BrokerError.by_code.get(code)
    return known(remark or "") if known else UnknownResponse(code, remark or "refused")


class SystemFailure(BrokerError):
    code = 1
    retryable = True


class AclDenied(SystemFailure):
    """By an access control list of RocketMQ 4 (plain_acl.yml), which has no code of its own."""

    retryable = False


class SystemBusy(BrokerError):
    code = 2
    retryable = True


class RequestCodeNotSupported(BrokerError):
    code = 3


class MessageIllegal(BrokerError):
    code = 13


class ServiceNotAvailable(BrokerError):
    code = 14
    retryable = True


class NoPermission(BrokerError):
    code = 16
    retryable = True


class AccessDenied(NoPermission):
    """By access control: not who it says, or without the right: then `lacks` says which actions would do, any one."""

    def __init__(self, remark: str = "", lacks: str = "") -> None:
        super().__init__(remark)
        self.lacks = lacks


class TopicNotFound(BrokerError):
    code = 17
    retryable = True
    refresh_route = True


class QueryNotFound(BrokerError):
    code = 22


class SubscriptionParseFailed(BrokerError):
    code = 23


class SubscriptionNotFound(BrokerError):
    code = 24


class SubscriptionNotLatest(BrokerError):
    code = 25


class GroupNotFound(BrokerError):
    code = 26


class FilterDataNotFound(BrokerError):
    code = 27


class FilterDataNotLatest(BrokerError):
    code = 28


class InvalidParameter(BrokerError):
    code = 29


class AclUpdateFailed(BrokerError):
    """The account of a plain_acl.yml."""

    code = 209


class AclDeleteFailed(BrokerError):
    code = 210


class WhiteAddressesUpdateFailed(BrokerError):
    code = 211


class ConsumerNotOnline(BrokerError):
    code = 206


class ConsumeTimeout(BrokerError):
    code = 207


class NoMessage(BrokerError):
    code = 208


class FlowControl(BrokerError):
    code = 215
    retryable = True


class IllegalOperation(BrokerError):
    code = 604


class InvalidHandle(IllegalOperation, ValueError):
    """A text that is no recall handle; of one that comes too late it is the plain `IllegalOperation`."""


class GoAway(BrokerError):
    code = 1500
    retryable = True
