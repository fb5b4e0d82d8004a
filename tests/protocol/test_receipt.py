# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aerobee.errors import ProtocolError
from aerobee.protocol import receipt
from aerobee.protocol.receipt import AckRecord, CheckpointRecord, Receipt, Taken

longs = st.integers(0, 2**63 - 1)
retries = st.sampled_from(["0", "1", "2"])
brokers = st.text("abc-_0", min_size=1, max_size=9)
receipts = st.builds(
    Receipt, longs, longs, longs, st.integers(0, 999), retries, brokers, st.integers(0, 99), longs,
    st.just(-1) | longs,
)  # fmt: skip


@given(receipts)
@settings(deadline=None)
def test_a_handle_survives(handle: Receipt) -> None:
    assert Receipt.parse(handle.text) == handle
    assert len(handle.text.split(" ")) == (8 if handle.commit_log_offset < 0 else 9)


def test_the_handles_text() -> None:
    handle = Receipt(1024, 1_700_000_000_000, 60_000, 3, "0", "broker-a", 2, 1030)
    assert handle.text == "1024 1700000000000 60000 3 0 broker-a 2 1030"
    assert Receipt.parse(handle.text + " 77 more").commit_log_offset == 77
    assert handle.visible_at == 1_700_000_060_000
    assert handle.expired(handle.visible_at)
    assert not handle.expired(handle.visible_at - 1)
    assert not handle.is_orderly
    assert handle._replace(revive_qid=999).is_orderly
    assert handle._replace(retry="1").real_topic("T", "g") == "%RETRY%g_T"


@pytest.mark.parametrize(
    "text",
    ["", "1 2 3 4 0 b 1", "x 2 3 4 0 b 1 5", "1 2 3 4 0 b x 5", "1 2 3 4 0 b 1 5 x", "1  2 3 4 0 b 1 5"],
)
def test_what_is_no_handle_is_a_protocol_error(text: str) -> None:
    with pytest.raises(ProtocolError, match="receipt handle"):
        Receipt.parse(text)


@pytest.mark.slow
@given(st.text(st.sampled_from("0123456789 -xé;,%"), max_size=60) | st.text(max_size=30))
@settings(deadline=None, max_examples=200)
def test_garbage_is_a_protocol_error_everywhere(text: str) -> None:
    readers = (
        Receipt.parse,
        receipt.parse_start_offsets,
        receipt.parse_msg_offsets,
        receipt.parse_order_counts,
    )
    for read in (*readers, receipt.parse_bits):
        try:
            read(text)
        except ProtocolError:
            continue


# -- info strings -------------------------------------------------------------------------------------


def test_info_strings_are_written_as_java_writes_them() -> None:
    taken = [Taken("0", 3, 1024, [1024, 1025, 1030]), Taken("1", 0, 57, [57])]
    assert receipt.start_offset_info(taken) == "0 3 1024;1 0 57"
    assert receipt.msg_offset_info(taken) == "0 3 1024,1025,1030;1 0 57"
    assert receipt.parse_start_offsets("0 3 1024;1 0 57") == {("0", 3): 1024, ("1", 0): 57}
    assert receipt.parse_msg_offsets("0 3 1024,1025,1030") == {("0", 3): [1024, 1025, 1030]}
    assert receipt.parse_start_offsets("") == receipt.parse_start_offsets(None) == {}


def test_order_counts_are_written_as_java_writes_them() -> None:
    assert ";".join(receipt.order_count_entries("0", 3, [(1024, 1)])) == "0 qo3%1024 1;0 3 1"
    assert receipt.order_count_entries("0", 3, [(1024, 0)]) == ["0 3 0"]
    assert receipt.order_count_entries("0", 3, [(5, 2), (6, 1)]) == ["0 qo3%5 2", "0 qo3%6 1", "0 3 1"]
    assert receipt.order_count_entries("0", 3, [(5, 2), (6, 0)]) == ["0 qo3%5 2", "0 3 0"]
    middle = receipt.order_count_entries("0", 3, [(5, 2), (6, 1), (7, 3)])
    assert middle == ["0 qo3%5 2", "0 qo3%6 1", "0 qo3%7 3", "0 3 1"], "the least of all"
    assert receipt.order_count_entries("0", 3, [(5, 1), (6, 2)])[-1] == "0 3 1"
    assert receipt.parse_order_counts("0 qo3%1024 1;0 3 1") == {("0", "qo3%1024"): 1, ("0", "3"): 1}


queues = st.dictionaries(
    st.tuples(retries, st.integers(0, 99)),
    st.tuples(longs, st.lists(longs, min_size=1, max_size=5)),
    max_size=4,
)


@pytest.mark.slow
@given(queues)
@settings(deadline=None)
def test_info_strings_survive(found: dict[tuple[str, int], tuple[int, list[int]]]) -> None:
    taken = [Taken(retry, queue, start, offsets) for (retry, queue), (start, offsets) in found.items()]
    assert receipt.parse_start_offsets(receipt.start_offset_info(taken)) == {
        k: v[0] for k, v in found.items()
    }
    assert receipt.parse_msg_offsets(receipt.msg_offset_info(taken)) == {k: v[1] for k, v in found.items()}


@pytest.mark.parametrize("text", ["0 3", "0 3 4 5", "0  3 4", "0 3 1;0 3 1", "0 3 x", "0 x 3", "0 3 1,"])
def test_bad_info_strings_are_a_protocol_error(text: str) -> None:
    with pytest.raises(ProtocolError):
        receipt.parse_start_offsets(text)
    with pytest.raises(ProtocolError):
        receipt.parse_msg_offsets(text)


# -- bits ---------------------------------------------------------------------------------------------


def test_a_bit_set_is_written_as_java_writes_it() -> None:
    assert receipt.bits_text([0, 9]) == "AQI="
    assert receipt.parse_bits("AQI=") == [0, 9]
    assert receipt.parse_bits("") == []


@given(st.sets(st.integers(0, 500)))
def test_bit_sets_survive(bits: set[int]) -> None:
    assert receipt.parse_bits(receipt.bits_text(bits)) == sorted(bits)


@pytest.mark.parametrize("text", ["!", "AQI", "é", "A" * 20_000])
def test_bad_bit_sets_are_a_protocol_error(text: str) -> None:
    with pytest.raises(ProtocolError):
        receipt.parse_bits(text)


# -- the revive log -----------------------------------------------------------------------------------


def test_a_checkpoint_has_javas_members() -> None:
    point = CheckpointRecord(
        group="g", topic="T", start_offset=5, pop_time=100, invisible_time=60, count=2, queue_id=1,
        diffs=[0, 3], broker_name="b",
    )  # fmt: skip
    assert receipt.encode_revive(point) == (
        b'{"bm":0,"bn":"b","c":"g","d":[0,3],"it":60,"n":2,"pt":100,"q":1,"ro":0,"rp":"0","so":5,"t":"T"}'
    )
    assert receipt.decode_checkpoint(receipt.encode_revive(point)) == point
    assert point.offsets == [5, 8]
    assert point.revive_time == 160
    assert point.unique_key == "T@1@5@g@100@b@ck"


def test_an_old_checkpoint_has_contiguous_offsets_and_no_broker() -> None:
    point = receipt.decode_checkpoint(
        b'{"so":5,"pt":100,"it":60,"bm":0,"n":3,"q":1,"t":"T","c":"g","ro":0,"reviveTime":160,"d":null}'
    )
    assert point.offsets == [5, 6, 7]
    assert point.broker_name == ""


def test_a_checkpoint_that_claims_millions_of_offsets_is_bounded() -> None:
    assert len(CheckpointRecord(group="g", topic="T", count=2**31).offsets) == receipt.MAX_BITS


def test_acks_match_their_checkpoint() -> None:
    point = CheckpointRecord(group="g", topic="T", start_offset=5, pop_time=100, queue_id=1, broker_name="b")
    ack = AckRecord(offset=6, group="g", topic="T", start_offset=5, pop_time=100, queue_id=1, broker_name="b")
    assert ack.merge_key == point.merge_key
    assert json.loads(receipt.encode_revive(ack)) == {
        "ao": 6, "bn": "b", "c": "g", "pt": 100, "q": 1, "so": 5, "t": "T",
    }  # fmt: skip
    assert receipt.decode_ack(receipt.encode_revive(ack)) == ack
    assert ack.unique_key == "T@1@6@g@100@b@ack"


def test_a_batch_ack_lists_its_offsets() -> None:
    ack = AckRecord(
        offsets=[6, 8], group="g", topic="T", start_offset=5, pop_time=100, queue_id=1, broker_name="b"
    )
    found = receipt.decode_ack(receipt.encode_revive(ack))
    assert found == ack
    assert found.acked == [6, 8]
    assert AckRecord(offset=6, topic="T").acked == [6]


def test_acks_are_read_by_their_long_names() -> None:
    data = (
        b'{"ackOffset":6,"startOffset":5,"consumerGroup":"g","topic":"T","queueId":1,"popTime":100,"brokerName":"b",'
        b'"ackOffsetList":[6]}'
    )
    assert receipt.decode_ack(data) == AckRecord(
        offset=6, offsets=[6], group="g", topic="T", start_offset=5, pop_time=100, queue_id=1, broker_name="b"
    )


@pytest.mark.parametrize("data", [b"", b"[]", b"{", b'{"t":"T"}', b'{"t":"T","c":"g","d":{}}', b"\xff"])
def test_a_checkpoint_that_is_none_is_a_protocol_error(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        receipt.decode_checkpoint(data)
