# SPDX-License-Identifier: Apache-2.0
"""Adapters of the remoting port, one by one: each field of a request goes where it belongs, and what is left out is what
it means to leave it out."""

from __future__ import annotations

import inspect
from contextlib import suppress
from types import SimpleNamespace as Thing
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from aerobee.broker.delivery.reading import Start
from aerobee.broker.operations import offsets as offset_op
from aerobee.broker.operations import query as query_op
from aerobee.broker.operations.admin import ask_client, cluster, groups, progress, topics
from aerobee.broker.operations.end_transaction import EndTransaction
from aerobee.broker.operations.notify import Notify
from aerobee.broker.operations.peek import Peek
from aerobee.broker.operations.pop import Pop
from aerobee.broker.operations.query import KeyQuery
from aerobee.broker.operations.recall import Recall
from aerobee.broker.operations.reset_offset import Reset
from aerobee.broker.operations.send_back import SendBackRequest
from aerobee.broker.state.half_messages import Outcome
from aerobee.clock import ManualClock
from aerobee.fronts.remoting import admin, offsets, pop, produce, transactions
from aerobee.protocol import bodies
from aerobee.protocol.headers import cluster as hc
from aerobee.protocol.headers import consume as hr
from aerobee.protocol.headers import groups as hg
from aerobee.protocol.headers import offsets as ho
from aerobee.protocol.headers import produce as hp
from aerobee.protocol.headers import topics as ht
from aerobee.protocol.headers import transaction as hx
from aerobee.store.results import Boundary

if TYPE_CHECKING:
    from aerobee.protocol.command import Header

NOW = 1_700_000_000_000
BROKER: Any = Thing(
    clock=ManualClock(NOW),
    config=Thing(server_side_reset=False, recall=True, name="broker-a"),
    access=object(),
    store=object(),
)
PACKED = b"\x0a\x00\x00\x01\x00\x00\x10\x00"


class Stop(Exception):
    """The operation was reached."""


class Row(NamedTuple):
    adapter: Any
    where: Any  # whose name the adapter calls the operation by
    operation: str
    header: Header
    told: tuple[Any, ...]
    named: dict[str, Any] = {}  # noqa: RUF012 - never changed


POPPED = hr.PopMessage(
    consumer_group="g", topic="t", queue_id=2, max_msg_nums=3, invisible_time=4, poll_time=5, born_time=6,
    init_mode=1, exp="red", exp_type="TAG", order=True, attempt_id="a1",
)  # fmt: skip
NOTIFIED = hr.Notification(
    consumer_group="g", topic="t", queue_id=2, poll_time=5, born_time=6, order=True, attempt_id="a1", exp="red",
    exp_type="TAG",
)  # fmt: skip
ENDED = hx.EndTransaction(
    producer_group="p", tran_state_table_offset=3, commit_log_offset=4, commit_or_rollback=8,
    from_transaction_check=True, topic="t",
)  # fmt: skip
BACK = hp.SendBack(offset=7, group="g", delay_level=3, max_reconsume_times=9, failure="why")

ROWS = {
    "pop": Row(
        pop.pop_message, pop, "pop", POPPED,
        (Pop("g", "t", Start.MAX, 2, 3, 4, 5, 6, "red", "TAG", True, "a1"), BROKER),
    ),
    "pop, bare": Row(
        pop.pop_message, pop, "pop",
        hr.PopMessage(consumer_group="g", topic="t", queue_id=2, max_msg_nums=3, invisible_time=4, poll_time=5),
        (Pop("g", "t", Start.MIN, 2, 3, 4, 5, NOW, None, None, False, None), BROKER),
    ),
    "notification": Row(
        pop.notification, pop, "notify", NOTIFIED,
        (Notify("g", "t", 2, 5, 6, True, "a1", "red", "TAG"), BROKER),
    ),
    "notification, bare": Row(
        pop.notification, pop, "notify", hr.Notification(consumer_group="g", topic="t", queue_id=2, poll_time=5),
        (Notify("g", "t", 2, 5, NOW, False, None, None, None), BROKER),
    ),
    "peek": Row(
        pop.peek_message, pop, "peek",
        hr.PeekMessage(consumer_group="g", topic="t", queue_id=2, max_msg_nums=3),
        (Peek("g", "t", 2, 3), BROKER),
    ),
    "polling": Row(
        pop.polling_count, pop, "polling_info", hr.PollingInfo(consumer_group="g", topic="t", queue_id=2),
        ("g", "t", 2, BROKER),
    ),
    "end": Row(
        transactions.end, transactions, "end_transaction", ENDED,
        (EndTransaction("p", 3, 4, Outcome.COMMIT, True), BROKER),
    ),
    "end, bare": Row(
        transactions.end, transactions, "end_transaction",
        hx.EndTransaction(
            producer_group="p", tran_state_table_offset=3, commit_log_offset=4, commit_or_rollback=12
        ),
        (EndTransaction("p", 3, 4, Outcome.ROLLBACK, False), BROKER),
    ),
    "resume": Row(
        transactions.resume, transactions, "resume_check", hx.ResumeCheck(topic="t", msg_id="AB"), ("AB", BROKER)
    ),
    "resume, bare": Row(transactions.resume, transactions, "resume_check", hx.ResumeCheck(), ("", BROKER)),
    "recall": Row(
        transactions.take_back, transactions, "recall",
        hp.RecallMessage(producer_group="p", topic="t", recall_handle="h"), (Recall("t", "h", "p", PACKED), BROKER),
    ),
    "recall, bare": Row(
        transactions.take_back, transactions, "recall", hp.RecallMessage(topic="t", recall_handle="h"),
        (Recall("t", "h", "", PACKED), BROKER),
    ),
    "send back": Row(
        produce.send_message_back, produce, "send_back", BACK, (SendBackRequest("g", 7, 3, 9, "why"), BROKER)
    ),
    "send back, bare": Row(
        produce.send_message_back, produce, "send_back", hp.SendBack(offset=7, group="g"),
        (SendBackRequest("g", 7, 0, None, ""), BROKER),
    ),
    "reset": Row(
        offsets.reset, offsets, "reset_offset",
        ho.ResetOffset(topic="t", group="g", timestamp=5, is_force=False, queue_id=2, offset=7),
        (Reset("g", "t", 5, 2, 7, False), BROKER),
    ),
    "reset, queue 0 to offset 0": Row(
        offsets.reset, offsets, "reset_offset",
        ho.ResetOffset(topic="t", group="g", timestamp=5, queue_id=0, offset=0),
        (Reset("g", "t", 5, 0, 0, True), BROKER),
    ),
    "reset, bare": Row(
        offsets.reset, offsets, "reset_offset", ho.ResetOffset(topic="t", group="g"),
        (Reset("g", "t", -1, -1, -1, True), BROKER),
    ),
    "search": Row(
        offsets.search, offset_op, "search_offset",
        ho.SearchOffset(topic="t", queue_id=2, timestamp=5, boundary_type="upper"),
        ("t", 2, 5, Boundary.UPPER, BROKER),
    ),
    "search, bare": Row(
        offsets.search, offset_op, "search_offset", ho.SearchOffset(topic="t", queue_id=2, timestamp=5),
        ("t", 2, 5, Boundary.LOWER, BROKER),
    ),
    "update": Row(
        offsets.update, offset_op, "update_offset",
        ho.UpdateConsumerOffset(consumer_group="g", topic="t", queue_id=2, commit_offset=7),
        ("g", "t", 2, 7, BROKER),
    ),
    "earliest": Row(
        offsets.earliest, offset_op, "earliest_store_time", ho.EarliestStoreTime(topic="t", queue_id=2),
        ("t", 2, BROKER),
    ),
    "topic": Row(
        admin.put_topic, topics, "put_topic",
        ht.CreateTopic(
            topic="t", read_queue_nums=3, write_queue_nums=4, perm=2, topic_filter_type="MULTI_TAG",
            topic_sys_flag=5, order=True, attributes="+a=b",
        ),
        (
            bodies.TopicConfig(
                topic_name="t", read_queue_nums=3, write_queue_nums=4, perm=2, topic_filter_type="MULTI_TAG",
                topic_sys_flag=5, order=True,
            ),
            "+a=b", BROKER,
        ),
    ),
    "topic, bare": Row(
        admin.put_topic, topics, "put_topic", ht.CreateTopic(topic="t"),
        (bodies.TopicConfig(topic_name="t", read_queue_nums=8, write_queue_nums=8), "", BROKER),
    ),
    "delete group": Row(
        admin.delete_group, groups, "delete_group", hg.DeleteGroup(group_name="g", clean_offset=True),
        ("g", BROKER), {"clean_offsets": True},
    ),
    "delete group, bare": Row(
        admin.delete_group, groups, "delete_group", hg.DeleteGroup(group_name="g"), ("g", BROKER),
        {"clean_offsets": False},
    ),
    "forbid": Row(
        admin.forbid, groups, "forbid", hg.ForbidGroup(group="g", topic="t", readable=False),
        ("g", "t", False, BROKER),
    ),
    "forbid, only asking": Row(
        admin.forbid, groups, "forbid", hg.ForbidGroup(group="g", topic="t"), ("g", "t", None, BROKER)
    ),
    "subscription": Row(
        admin.subscription, groups, "subscription", hg.GroupSubscription(group="g", topic="t"), ("g", "t", BROKER)
    ),
    "consume stats": Row(
        admin.consume_stats, progress, "consume_stats",
        hg.ConsumeStatsQuery(consumer_group="g", topic="t", topic_list="a;b"), ("g", "t", ["a", "b"], BROKER),
    ),
    "consume stats, bare": Row(
        admin.consume_stats, progress, "consume_stats", hg.ConsumeStatsQuery(consumer_group="g"),
        ("g", None, [""], BROKER),
    ),
    "time spans": Row(
        admin.time_spans, progress, "time_spans", ho.ConsumeTimeSpanQuery(topic="t", group="g"), ("g", "t", BROKER)
    ),
    "correction": Row(
        admin.correction, progress, "correction_offsets",
        ho.CorrectionOffset(filter_groups="a,b", compare_group="c", topic="t"), ("a,b", "c", "t", BROKER),
    ),
    "correction, bare": Row(
        admin.correction, progress, "correction_offsets", ho.CorrectionOffset(compare_group="c", topic="t"),
        ("", "c", "t", BROKER),
    ),
    "clone": Row(
        admin.clone_offsets, progress, "clone_offsets",
        ho.CloneGroupOffset(src_group="a", dest_group="b", topic="t", offline=True), ("a", "b", "t", BROKER),
        {"offline": True},
    ),
    "clone, bare": Row(
        admin.clone_offsets, progress, "clone_offsets", ho.CloneGroupOffset(src_group="a", dest_group="b"),
        ("a", "b", None, BROKER), {"offline": False},
    ),
    "query": Row(
        admin.query_message, query_op, "query_by_key",
        ho.QueryMessage(topic="t", key="k", max_num=3, begin_timestamp=4, end_timestamp=5, unique_key=True),
        (KeyQuery("t", "k", 3, 4, 5, True), BROKER),
    ),
    "query, bare": Row(
        admin.query_message, query_op, "query_by_key", ho.QueryMessage(topic="t", key="k"),
        (KeyQuery("t", "k", 32, 0, 2**63 - 1, False), BROKER),
    ),
    "queue": Row(
        admin.query_queue, query_op, "query_queue",
        ho.QueryConsumeQueue(topic="t", queue_id=2, index=3, count=4, consumer_group="g"),
        ("t", 2, 3, 4, "g", BROKER),
    ),
    "queue, bare": Row(
        admin.query_queue, query_op, "query_queue", ho.QueryConsumeQueue(topic="t"), ("t", 0, 0, 10, "", BROKER)
    ),
    "running info": Row(
        admin.running_info, ask_client, "running_info",
        hg.RunningInfo(consumer_group="g", client_id="c", jstack_enable=True), ("g", "c", BROKER), {"jstack": True},
    ),
    "running info, bare": Row(
        admin.running_info, ask_client, "running_info", hg.RunningInfo(consumer_group="g", client_id="c"),
        ("g", "c", BROKER), {"jstack": False},
    ),
    "consume directly": Row(
        admin.consume_directly, ask_client, "consume_directly",
        hr.ConsumeDirectly(consumer_group="g", client_id="c", msg_id="m", topic="t"), ("g", "c", "m", "t", BROKER),
    ),
    "status": Row(
        admin.consumer_status, ask_client, "consumer_status",
        ho.ConsumerStatus(topic="t", group="g", client_addr="a"), ("g", "t", "a", BROKER),
    ),
    "stats": Row(
        admin.stats, cluster, "stats", hc.BrokerStats(stats_name="n", stats_key="k"), ("n", "k", BROKER)
    ),
}  # fmt: skip


def request(**more: Any) -> Any:
    told = {"body": b"", "version": 479, "language": "JAVA", **more}
    return Thing(user="me", command=Thing(**told), connection=Thing(remote_packed=PACKED))


@pytest.mark.parametrize("name", ROWS)
async def test_every_field_goes_where_it_belongs(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    row, told = ROWS[name], []

    def operation(*given: Any, **named: Any) -> Any:
        told.append((given, named))
        raise Stop

    monkeypatch.setattr(row.where, row.operation, operation)
    with suppress(Stop):
        answer = row.adapter(request(), row.header, BROKER)
        if inspect.isawaitable(answer):
            await answer
    assert told == [(row.told, row.named)]
