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
from aerobee.broker.operations.admin import ask_client, cluster, groups, progress, topics
from aerobee.broker.operations.admin import plain_acl as plain_acl_op
from aerobee.broker.operations.end_transaction import Ended
from aerobee.broker.operations.notify import Notify
from aerobee.broker.operations.peek import Peek, Peeked
from aerobee.broker.operations.pop import Pop
from aerobee.broker.operations.query import KeyQuery
from aerobee.broker.operations.recall import Recall
from aerobee.broker.operations.reset_offset import Reset
from aerobee.broker.operations.send_back import SendBackRequest
from aerobee.broker.state.half_messages import Outcome
from aerobee.clock import ManualClock
from aerobee.errors import QueryNotFound, SystemFailure
from aerobee.fronts.remoting import admin, offsets, plain_acl, pop, produce, transactions
from aerobee.protocol import bodies
from aerobee.protocol.headers import accounts as ha
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
        (transactions.EndTransaction("p", 3, 4, Outcome.COMMIT, True), BROKER),
    ),
    "end, bare": Row(
        transactions.end, transactions, "end_transaction",
        hx.EndTransaction(
            producer_group="p", tran_state_table_offset=3, commit_log_offset=4, commit_or_rollback=12
        ),
        (transactions.EndTransaction("p", 3, 4, Outcome.ROLLBACK, False), BROKER),
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
        offsets.search, offsets.op, "search_offset",
        ho.SearchOffset(topic="t", queue_id=2, timestamp=5, boundary_type="upper"),
        ("t", 2, 5, Boundary.UPPER, BROKER),
    ),
    "search, bare": Row(
        offsets.search, offsets.op, "search_offset", ho.SearchOffset(topic="t", queue_id=2, timestamp=5),
        ("t", 2, 5, Boundary.LOWER, BROKER),
    ),
    "update": Row(
        offsets.update, offsets.op, "update_offset",
        ho.UpdateConsumerOffset(consumer_group="g", topic="t", queue_id=2, commit_offset=7),
        ("g", "t", 2, 7, BROKER),
    ),
    "earliest": Row(
        offsets.earliest, offsets.op, "earliest_store_time", ho.EarliestStoreTime(topic="t", queue_id=2),
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
        admin.query_message, admin.query, "query_by_key",
        ho.QueryMessage(topic="t", key="k", max_num=3, begin_timestamp=4, end_timestamp=5, unique_key=True),
        (KeyQuery("t", "k", 3, 4, 5, True), BROKER),
    ),
    "query, bare": Row(
        admin.query_message, admin.query, "query_by_key", ho.QueryMessage(topic="t", key="k"),
        (KeyQuery("t", "k", 32, 0, 2**63 - 1, False), BROKER),
    ),
    "queue": Row(
        admin.query_queue, admin.query, "query_queue",
        ho.QueryConsumeQueue(topic="t", queue_id=2, index=3, count=4, consumer_group="g"),
        ("t", 2, 3, 4, "g", BROKER),
    ),
    "queue, bare": Row(
        admin.query_queue, admin.query, "query_queue", ho.QueryConsumeQueue(topic="t"), ("t", 0, 0, 10, "", BROKER)
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


# -- what depends on more than a field ---------------------------------------------------------------------------


def test_a_client_before_3_4_9_says_nothing_of_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[Any] = []
    monkeypatch.setattr(produce, "send_back", lambda wanted, broker: told.append(wanted))
    for version, limit in ((120, None), (121, 9), (122, 9)):
        assert produce.send_message_back(request(version=version), BACK, BROKER).code == 0
        assert told.pop().max_reconsume_times == limit


@pytest.mark.parametrize(("mode", "start"), [(0, Start.MIN), (1, Start.MAX), (2, Start.MIN), (-1, Start.MIN)])
def test_a_pop_begins_at_the_newest_only_when_it_says_so(mode: int, start: Start) -> None:
    header = hr.PopMessage(
        consumer_group="g",
        topic="t",
        queue_id=2,
        max_msg_nums=3,
        invisible_time=4,
        poll_time=5,
        init_mode=mode,
    )
    assert pop.pop_of(header, 6).start is start


@pytest.mark.parametrize("odd", [1, 4, 9, 13, -1])
def test_a_transaction_ends_in_three_ways(odd: int) -> None:
    header = hx.EndTransaction(
        producer_group="p", tran_state_table_offset=3, commit_log_offset=4, commit_or_rollback=odd
    )
    with pytest.raises(SystemFailure, match=f"commitOrRollback {odd} is none of 0, 8 and 12"):
        transactions.end(request(), header, BROKER)


async def test_ends_recalls_and_returns_wait_until_they_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[Any] = []

    async def kept(unkept: Any, answer: Any, broker: Any) -> Any:
        waited.append(unkept)
        return answer

    for module in (transactions, produce):
        monkeypatch.setattr(module, "kept", kept)
    for unkept in (None, ("t", 5)):
        monkeypatch.setattr(transactions, "end_transaction", lambda *_, u=unkept: Ended(unkept=u))
        monkeypatch.setattr(transactions, "recall", lambda *_, u=unkept: ("AB12", Thing(unkept=u)))
        monkeypatch.setattr(produce, "send_back", lambda *_, u=unkept: u)
        recalled = hp.RecallMessage(topic="t", recall_handle="h")
        for adapter, header in (
            (transactions.end, ENDED),
            (transactions.take_back, recalled),
            (produce.send_message_back, BACK),
        ):
            answer = adapter(request(), header, BROKER)
            assert inspect.isawaitable(answer) is (unkept is not None)
            answer = await answer if inspect.isawaitable(answer) else answer
            assert answer.code == 0
            if adapter is transactions.take_back:
                assert answer.header.msg_id == "AB12"
    assert waited == [("t", 5)] * 3


@pytest.mark.parametrize(
    ("said", "known", "answer"),
    [(None, 5, 5), (False, 5, 5), (True, 0, 0), (None, -1, 77), (True, -1, 77), (False, -1, None)],
)
def test_a_group_without_an_offset_begins_where_it_would_unless_it_wants_to_know(
    said: bool | None, known: int, answer: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(offsets.op, "query_offset", lambda *given: asked.append(given) or known)
    monkeypatch.setattr(offsets.op, "first_offset", lambda *given: asked.append(given) or 77)
    header = ho.QueryConsumerOffset(consumer_group="g", topic="t", queue_id=2, set_zero_if_not_found=said)
    if answer is None:
        with pytest.raises(QueryNotFound, match="group 'g' has no offset on topic 't' yet"):
            offsets.query(request(), header, BROKER)
    else:
        assert offsets.query(request(), header, BROKER).header.offset == answer
        assert asked[1:] == ([("t", 2, BROKER)] if known < 0 else [])
    assert asked[0] == ("g", "t", 2, BROKER)


@pytest.mark.parametrize(("server_side", "spoken"), [(False, "CPP"), (True, "JAVA")])
async def test_the_list_of_cpp_is_told_where_clients_are_told(
    server_side: bool, spoken: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def reset(*_: Any) -> str:
        return "table"

    monkeypatch.setattr(offsets, "reset_offset", reset)
    monkeypatch.setattr(offsets, "offsets_body", lambda table, language: f"{table} {language}".encode())
    broker: Any = Thing(config=Thing(server_side_reset=server_side))
    answer = await offsets.reset(request(language="CPP"), ho.ResetOffset(topic="t", group="g"), broker)
    assert answer.body == f"table {spoken}".encode()


@pytest.mark.parametrize("messages", [[], [b"one", b"two"]])
def test_a_look_says_what_is_there_and_what_is_left(
    messages: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pop, "peek", lambda *_: Peeked(messages=messages, rest=5))
    header = hr.PeekMessage(consumer_group="g", topic="t", queue_id=2, max_msg_nums=3)
    answer = pop.peek_message(request(), header, BROKER)
    expected = (0, "FOUND") if messages else (19, "NO_MESSAGE_IN_QUEUE")
    assert (answer.code, answer.remark) == expected
    assert (answer.body, answer.header.rest_num) == (b"".join(messages), 5)


# -- the list of RocketMQ 4 --------------------------------------------------------------------------------------


@pytest.mark.parametrize("user", ["me", None])
def test_changes_of_the_list_are_somebodys_and_of_this_moment(
    user: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[Any] = []
    acl = object()
    monkeypatch.setattr(plain_acl_op, "in_force", lambda access, code: (told.append((access, code)), acl)[1])
    for name in ("put_account", "delete_account", "replace_white_addresses"):
        monkeypatch.setattr(plain_acl_op, name, lambda *given: told.append(given))
    put, asked = ha.UpdateAclConfig(access_key="shop"), request()
    asked.user = user
    plain_acl.put_account(asked, put, BROKER)
    plain_acl.delete_account(asked, ha.DeleteAclConfig(access_key="shop"), BROKER)
    white = ha.UpdateWhiteAddresses(global_white_addrs="10.*", acl_file_full_path="/f")
    plain_acl.replace_white_addresses(asked, white, BROKER)
    plain_acl.replace_white_addresses(asked, ha.UpdateWhiteAddresses(global_white_addrs="10.*"), BROKER)
    who = user or ""
    assert told == [
        (BROKER.access, 50), (who, put, acl, NOW),
        (BROKER.access, 51), (who, "shop", acl, NOW),
        (BROKER.access, 53), (who, "10.*", "/f", acl, NOW),
        (BROKER.access, 53), (who, "10.*", "", acl, NOW),
    ]  # fmt: skip
