# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aerobee.client.options import Options
from aerobee.protocol import command as wire
from aerobee.protocol.codes import RequestCode
from aerobee.protocol.fast_frames import AckTemplate, Sending, SendTemplate
from aerobee.protocol.headers.consume import AckMessage
from aerobee.protocol.headers.produce import SendBatch, SendMessageV2


@pytest.mark.parametrize("code", [RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE])
@given(
    group=st.text(min_size=1),
    broker=st.text(min_size=1),
    text=st.text(),
    numbers=st.tuples(*[st.integers(0, 2**31 - 1)] * 4),
    limit=st.none() | st.integers(0, 20),
)
def test_the_template_says_what_the_general_encoder_says(
    code: RequestCode,
    group: str,
    broker: str,
    text: str,
    numbers: tuple[int, int, int, int],
    limit: int | None,
) -> None:
    queue_id, sys_flag, flag, opaque = numbers
    sending = Sending("to%pic", b"body", text, "ID", 1_700_000_000_000, sys_flag, flag, 2, 3, limit)
    options = Options()
    template = SendTemplate(code, group, "to%pic", broker, options.template_topic, options.new_topic_queues)
    frame = template.frame(opaque, queue_id, sending)
    decoded = wire.decode(frame[4:])
    kind = SendBatch if code == RequestCode.SEND_BATCH_MESSAGE else SendMessageV2
    header = kind(
        producer_group=group,
        topic="to%pic",
        queue_id=queue_id,
        sys_flag=sys_flag,
        born_timestamp=1_700_000_000_000,
        flag=flag,
        properties=text,
        reconsume_times=3,
        unit_mode=False,
        max_reconsume_times=limit,
        batch=code == RequestCode.SEND_BATCH_MESSAGE,
        broker_name=broker,
    )
    general = wire.decode(wire.encode(wire.request(header, b"body", one_way=True))[4:])
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    assert decoded.ext_dict() == general.ext_dict()
    assert (decoded.code, decoded.flag, decoded.body, decoded.language, decoded.version) == (
        general.code, general.flag, general.body, general.language, general.version
    )  # fmt: skip
    assert decoded.opaque == opaque


@given(
    st.text(min_size=1), st.text(min_size=1), st.text(min_size=1), st.integers(0, 99), st.integers(0, 2**40)
)
def test_the_ack_template_says_what_the_general_encoder_says(
    group: str, topic: str, broker: str, queue_id: int, offset: int
) -> None:
    receipt = f"1 2 3 4 0 {broker} {queue_id} {offset}"
    frame = AckTemplate(group, topic, broker).frame(7, receipt, str(queue_id), str(offset))
    header = AckMessage(
        consumer_group=group,
        topic=topic,
        queue_id=queue_id,
        extra_info=receipt,
        offset=offset,
        broker_name=broker,
    )
    general = wire.decode(wire.encode(wire.request(header))[4:])
    decoded = wire.decode(frame[4:])
    assert (decoded.code, decoded.flag, decoded.opaque) == (general.code, 0, 7)
    assert decoded.ext_dict() == general.ext_dict()
