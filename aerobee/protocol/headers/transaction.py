# SPDX-License-Identifier: Apache-2.0
"""Transactions: the second phase, the check and its resumption."""

from __future__ import annotations

from msgspec import field

from aerobee.protocol.codes import RequestCode
from aerobee.protocol.command import Header

UNKNOWN, COMMIT, ROLLBACK = 0, 8, 12  # commitOrRollback: the sysFlag bits of the outcome


class EndTransaction(Header, kw_only=True):
    code = RequestCode.END_TRANSACTION
    topic: str | None = None
    producer_group: str
    tran_state_table_offset: int
    commit_log_offset: int
    commit_or_rollback: int
    from_transaction_check: bool | None = None
    msg_id: str | None = None
    transaction_id: str | None = None
    broker_name: str | None = field(default=None, name="bname")


class CheckTransaction(Header, kw_only=True):
    code = RequestCode.CHECK_TRANSACTION_STATE
    topic: str | None = None
    tran_state_table_offset: int
    commit_log_offset: int
    msg_id: str | None = None
    transaction_id: str | None = None
    offset_msg_id: str | None = None
    broker_name: str | None = field(default=None, name="bname")


class ResumeCheck(Header):
    code = RequestCode.RESUME_CHECK_HALF_MESSAGE
    topic: str | None = None
    msg_id: str | None = None
