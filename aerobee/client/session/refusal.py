# SPDX-License-Identifier: Apache-2.0
"""A refusal as the exception it becomes, with the next step for those whose words are RocketMQ's own."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING

from aerobee.errors import ConnectionLost, NoPermission, error_for
from aerobee.protocol.access import NO_ACCOUNT, WRONG_SECRET

if TYPE_CHECKING:
    from aerobee.errors import BrokerError, NetworkError, UnknownResponse
    from aerobee.protocol.command import Command

RECALL_IS_OFF = "recall failed, operation is forbidden"  # Apache's words, and its default
UNKNOWN = ": create it, or send to it first"  # what to do about a topic that no name server knows


def refusal(answer: Command) -> BrokerError | UnknownResponse:
    error = error_for(answer.code, answer.remark)
    if isinstance(error, NoPermission):
        error.add_note(next_step(error.remark))
    return error


def next_step(remark: str) -> str:
    """Of who was refused for want of permission."""
    if NO_ACCOUNT in remark:
        return "this program named no account: options=Options(access_key=..., secret_key=...)"
    if WRONG_SECRET in remark:
        return "the secret_key of its options is not that of the account"
    if RECALL_IS_OFF in remark:
        return "Apache RocketMQ takes no message back unless its broker.conf says recallMessageEnable=true"
    return "an operator has to allow it, by a right of the account or a setting of topic or group"


def about_tls(tls: str, error: NetworkError) -> str:
    """Of one who takes the connection and closes it without an answer: it may want TLS, or know none."""
    if tls == "off":
        is_closed = isinstance(error, ConnectionLost)
        return ' Or does it take TLS alone? Then: Options(tls="on", tls_ca=...)' if is_closed else ""
    cause = error.__cause__
    is_closed = isinstance(cause, (ConnectionResetError, ssl.SSLError))
    if not is_closed or isinstance(cause, ssl.SSLCertVerificationError):
        return ""
    return ' Does it speak TLS at all? If not: Options(tls="off")'
