# SPDX-License-Identifier: Apache-2.0
"""What a client asks of this broker and only another can do: passed on by remoting, which passes nothing on again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aerobee.errors import error_for
from aerobee.net.pool import Pool
from aerobee.net.tls import namesrv_tls
from aerobee.protocol.accounts import Credentials, sign
from aerobee.protocol.command import request
from aerobee.protocol.headers.produce import RecallMessage, RecallResult
from aerobee.settings.broker import own_account

if TYPE_CHECKING:
    from aerobee.broker.operations.recall import Recall
    from aerobee.broker.state.routes import Host
    from aerobee.settings import BrokerConfig

CALL_MS = 2_000


async def recall_at(host: Host, asked: Recall, config: BrokerConfig) -> str:
    """The id of the message taken back; raises what the other broker says. Signed by this broker: its own gates have
    let the client through."""
    pool = Pool(tls=namesrv_tls(config))  # recalls are rare: no connection is kept
    try:
        connection = await pool.get(host.address)
        header = RecallMessage(
            producer_group=asked.producer_group, topic=asked.topic, recall_handle=asked.handle
        )
        answer = await connection.call(sign(request(header), Credentials(*own_account(config))), CALL_MS)
    finally:
        await pool.close()
    if answer.code != 0:
        raise error_for(answer.code, answer.remark)
    return answer.fields(RecallResult).msg_id
