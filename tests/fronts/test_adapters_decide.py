# SPDX-License-Identifier: Apache-2.0
"""Adapters of the remoting port where more than a field decides: who asks, what was found, what is not kept yet."""

from __future__ import annotations

import asyncio
import inspect
from types import SimpleNamespace as Thing
from typing import Any

import pytest

from aerobee.broker.delivery.reading import Start
from aerobee.broker.operations import offsets as offset_op
from aerobee.broker.operations.admin import plain_acl as plain_acl_op
from aerobee.broker.operations.end_transaction import Ended
from aerobee.broker.operations.peek import Peeked
from aerobee.broker.operations.pop import Popped
from aerobee.errors import InvalidParameter, QueryNotFound, SystemFailure
from aerobee.fronts.remoting import admin, offsets, plain_acl, pop, produce, transactions
from aerobee.protocol import bodies
from aerobee.protocol.codes import ResponseCode
from aerobee.protocol.command import Command, decode
from aerobee.protocol.headers import accounts as ha
from aerobee.protocol.headers import cluster as hc
from aerobee.protocol.headers import consume as hr
from aerobee.protocol.headers import offsets as ho
from aerobee.protocol.headers import produce as hp
from aerobee.protocol.headers import transaction as hx
from tests.fronts.test_adapters import BACK, BROKER, ENDED, NOW, request

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
        rows: list[tuple[Any, Any]] = [
            (transactions.end, ENDED),
            (transactions.take_back, recalled),
            (produce.send_message_back, BACK),
        ]
        for adapter, header in rows:
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
    monkeypatch.setattr(offset_op, "query_offset", lambda *given: asked.append(given) or known)
    monkeypatch.setattr(offset_op, "first_offset", lambda *given: asked.append(given) or 77)
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


# -- words and forms -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "is_batch"),
    [
        ("true", True),
        ("TRUE", True),
        ("True", True),
        ("1", False),
        ("yes", False),
        ("", False),
        (None, False),
    ],
)
def test_only_the_word_is_true(said: str | None, is_batch: bool) -> None:
    command: Any = Thing(ext_dict=lambda: {} if said is None else {"m": said})
    assert produce._is_true(command, "m") is is_batch


@pytest.mark.parametrize(
    ("timer_out", "recall", "has_one"), [(5, True, True), (5, False, False), (0, True, False)]
)
def test_a_delayed_message_has_a_handle_where_recalls_are_served(
    timer_out: int, recall: bool, has_one: bool
) -> None:
    broker: Any = Thing(config=Thing(recall=recall, name="broker-a"))
    sent: Any = Thing(timer_out=timer_out, unique_key="AB")
    assert bool(produce._handle("t", sent, broker)) is has_one


@pytest.mark.parametrize(
    ("value", "known"),
    [("PULL", True), ("POP", True), ("pop", False), (0, True), (1, True), (2, False), (-1, False)],
)
def test_a_mode_is_named_or_numbered(value: object, known: bool) -> None:
    assert pop._names(value, bodies.Mode) is known
    assert not pop._names(True, bodies.Mode)


async def test_settings_that_are_no_text_are_refused_in_words() -> None:
    with pytest.raises(InvalidParameter, match="the settings are not UTF-8 text"):
        admin.change_settings(request(body=b"\xff\xfe"), hc.UpdateBrokerConfig(), BROKER)


def test_a_reply_is_answered_with_the_queue_it_was_stored_in(monkeypatch: pytest.MonkeyPatch) -> None:
    async def stored(*_: Any) -> Any:
        return Thing(queue_id=3)

    monkeypatch.setattr(transactions, "reply", stored)
    asked = request()
    rows: list[tuple[Any, Any]] = [
        (transactions.reply_v1, hp.SendReply),
        (transactions.reply_v2, hp.SendReplyV2),
    ]
    for adapter, kind in rows:
        answer: Any = asyncio.run(adapter(asked, kind(topic="t", queue_id=-1), BROKER))
        assert (answer.header.msg_id, answer.header.queue_id, answer.header.queue_offset) == ("0", 3, 0)


@pytest.mark.parametrize("serialize", [0, 1])
def test_a_pop_without_messages_says_when_it_was_served(serialize: int) -> None:
    """Only one that was refused before it was served has zeros and no strings."""
    command = Command(200_050, 7, serialize=serialize)
    empty = Popped(ResponseCode.POLLING_TIMEOUT, pop_time=5, invisible_ms=6, revive_queue=2, rest=1)
    answer = pop.popped_answer(command, empty)
    if isinstance(answer, bytes):
        told = decode(answer[4:])
        fields = told.ext_dict()
        assert told.code == 210
        assert (fields["popTime"], fields["invisibleTime"], fields["reviveQid"]) == ("5", "6", "2")
        assert (fields["restNum"], fields["startOffsetInfo"], fields["msgOffsetInfo"]) == ("1", "", "")
    else:
        header: Any = answer.header
        assert (answer.code, header.pop_time, header.invisible_time, header.rest_num) == (210, 5, 6, 1)
        assert (header.start_offset_info, header.msg_offset_info) == ("", "")
    refused: Any = pop.popped_answer(command, Popped(ResponseCode.POLLING_TIMEOUT))
    assert (refused.header.pop_time, refused.header.start_offset_info) == (0, None)
