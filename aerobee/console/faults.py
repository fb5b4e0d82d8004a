# SPDX-License-Identifier: Apache-2.0
"""What a failure is called on a page, and what to do about it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from aerobee.console.security import ReadOnly, WrongForm
from aerobee.errors import (
    AclDenied,
    BrokerError,
    GroupNotFound,
    NetworkError,
    NoPermission,
    NoRoute,
    QueryNotFound,
    RequestCodeNotSupported,
    SubscriptionParseFailed,
    TopicNotFound,
)

if TYPE_CHECKING:
    from aerobee.console.words import Words


class Fault(NamedTuple):
    status: int
    title: str
    text: str
    hint: str = ""


def fault_of(error: Exception, t: Words) -> Fault:
    text = " ".join(str(error).split())
    match error:
        case ReadOnly():
            return Fault(
                403, t("Read-only"), text, t("Start it without --read-only to change things from here.")
            )
        case WrongForm():
            return Fault(403, t("Not accepted"), text)
        case NoPermission() | AclDenied():
            hint = t(
                "Log in with an account that may, or have it granted. "
                "A topic or group that it may look at opens by its whole name in the search field."
            )
            return Fault(403, t("This account may not do that"), text, hint)
        case RequestCodeNotSupported():
            hint = t("It is a request of Aerobee's own, or newer than the broker; the other pages work.")
            return Fault(404, t("This broker cannot tell"), text, hint)
        case NoRoute() | TopicNotFound() | GroupNotFound() | QueryNotFound():
            return Fault(404, t("Not there"), text)
        case NetworkError() | OSError():
            hint = t("Is it running? This page tries again when you load it again.")
            return Fault(503, t("The cluster does not answer"), text, hint)
        case BrokerError() if not isinstance(error, SubscriptionParseFailed):
            return Fault(409, t("The broker refused"), text)
    return Fault(400, t("That does not work"), text)
