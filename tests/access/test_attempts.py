# SPDX-License-Identifier: Apache-2.0
"""Attempts to get in, or further than one may: each is refused, does nothing, and leaves the connection as it was."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from aerobee.fronts.grpc.generated import messaging_pb2 as pb
from aerobee.protocol import bodies, names
from aerobee.protocol.accounts import SIGNATURE, Credentials, sign
from aerobee.protocol.command import Command, request
from aerobee.protocol.headers import consume as hr
from aerobee.protocol.headers import offsets as ho
from aerobee.protocol.headers import produce as hp
from aerobee.protocol.headers import topics as ht
from aerobee.protocol.headers import transaction as hx
from aerobee.protocol.receipt import parse_info
from tests.access.ports import ANN, NOBODY, ROOT, Ports

if TYPE_CHECKING:
    from collections.abc import Callable

    from aerobee.protocol.command import Header

MINE = hp.SendMessageV2(topic="mine", queue_id=0)
THEIRS = hp.SendMessageV2(topic="theirs", queue_id=0)
NOT_SIGNED = (16, "check signature failed.")


def said(answer: Command) -> tuple[int, str]:
    """RocketMQ's words; ours after them name the action."""
    return answer.code, (answer.remark or "").partition(" Needs ")[0]


def no_right(resource: str) -> tuple[int, str]:
    return 16, f"User:ann has no permission to access {resource} from 127.0.0.1, no matched policies."


@pytest.fixture
async def ports(ports: Ports) -> Ports:
    """Ann has a topic and a group; another topic and group have messages that are not hers."""
    ports.grant("Topic:mine All", "Group:mine All")
    for topic in ("mine", "theirs"):
        assert (
            await ports.ask(ROOT, hp.SendMessageV2(topic=topic, queue_id=0), f"in {topic}".encode())
        ).code == 0
    return ports


# -- signatures --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text[:-1],
        lambda text: text[:10],
        lambda text: text[::-1],
        str.lower,
        lambda text: text + "=",
        lambda text: text * 5000,
        lambda text: "",
        lambda text: "\n" + text,
    ],
    ids=["truncated", "a part", "re-ordered", "case", "padded", "over-long", "empty", "blank in front"],
)
async def test_a_changed_signature(ports: Ports, change: Callable[[str], str]) -> None:
    command = sign(request(MINE, b"x"), ANN)
    fields = command.ext_dict()
    command.ext = {**fields, SIGNATURE: change(fields[SIGNATURE])}
    assert said(await ports.send(command)) == NOT_SIGNED
    assert (await ports.ask(ANN, MINE, b"x")).code == 0, "the connection lives"


async def test_a_signature_that_was_seen_on_another_request(ports: Ports) -> None:
    seen = sign(request(MINE, b"x"), ROOT).ext_dict()
    for header, body in ((THEIRS, b"x"), (MINE, b"y"), (ht.DeleteTopic(topic="theirs"), b"")):
        command = sign(request(header, body), ROOT)
        command.ext = {**command.ext_dict(), SIGNATURE: seen[SIGNATURE]}
        assert said(await ports.send(command)) == NOT_SIGNED
    assert ports.server.broker.topics.get("theirs") is not None


async def test_fields_added_to_a_signed_request(ports: Ports) -> None:
    command = sign(request(ho.GetMaxOffset(topic="mine", queue_id=0)), ANN)
    command.ext = {**command.ext_dict(), "committed": "true"}
    assert said(await ports.send(command)) == NOT_SIGNED


async def test_a_good_request_vouches_for_no_other_on_its_connection(ports: Ports) -> None:
    for _ in range(3):
        assert (await ports.ask(ANN, MINE, b"x")).code == 0
        assert said(await ports.ask(Credentials("ann", "guessed"), MINE, b"x")) == NOT_SIGNED
        assert (await ports.ask(NOBODY, MINE, b"x")).code == 16


async def test_a_one_way_request_is_refused_in_silence(ports: Ports) -> None:
    before = ports.server.broker.store.max_offset("theirs", 0)
    connection = await ports.connection()
    connection.send(sign(request(THEIRS, b"x", one_way=True), ANN))
    connection.send(sign(request(THEIRS, b"x", one_way=True), Credentials("root", "guessed")))
    assert (await ports.ask(ANN, MINE, b"x")).code == 0
    assert ports.server.broker.store.max_offset("theirs", 0) == before


# -- who one says to be -------------------------------------------------------------------------------------------


def grpc_send(topic: str) -> Any:
    message = pb.Message(body=b"x", topic=pb.Resource(name=topic))
    message.system_properties.message_id = "01" + "A" * 32
    return pb.SendMessageRequest(messages=[message])


@pytest.mark.parametrize("who", [ANN, NOBODY])
async def test_headers_that_only_a_proxy_may_say(ports: Ports, who: Credentials) -> None:
    forged = {
        "x_mq_authorization_ak": "root", "rpc_remote_address": "10.0.0.1:1", "x_mq_channel_id": "c",
        "x_forwarded_for": "10.0.0.1",
    }  # fmt: skip
    status = (await ports.call(who, "SendMessage", grpc_send("theirs"), **forged)).status
    assert status.code == pb.UNAUTHORIZED
    assert "10.0.0.1" not in status.message


async def test_several_topics_in_one_send(ports: Ports) -> None:
    both = pb.SendMessageRequest(messages=[*grpc_send("mine").messages, *grpc_send("theirs").messages])
    assert "Topic:theirs" in (await ports.call(ANN, "SendMessage", both)).status.message


async def test_another_users_client_id(ports: Ports) -> None:
    """What the broker tells a client by telemetry, half messages among it, is not told to who says its id."""
    topics = [pb.Resource(name="theirs")]
    command = pb.TelemetryCommand(settings=pb.Settings(publishing=pb.Publishing(topics=topics)))
    (answer,) = await ports.telemetry(ROOT, command, x_mq_client_id="theirs")
    assert answer.settings.publishing.topics[0].name == "theirs"
    (told,) = await ports.telemetry(ANN, x_mq_client_id="theirs")
    assert told.status.code == pb.UNAUTHORIZED
    assert "another user" in told.status.message
    assert (await ports.call(ANN, "SendMessage", grpc_send("mine"), x_mq_client_id="theirs")).status.code == (
        pb.UNAUTHORIZED
    )
    assert (
        await ports.call(ANN, "SendMessage", grpc_send("mine"), x_mq_client_id="own")
    ).status.code == pb.OK


async def test_who_was_not_let_in_is_not_known_as_a_client(ports: Ports) -> None:
    await ports.telemetry(NOBODY, x_mq_client_id="stranger")
    await ports.call(
        NOBODY, "Heartbeat", pb.HeartbeatRequest(client_type=pb.PRODUCER), x_mq_client_id="stranger"
    )
    assert [peer.client_id for peer in ports.service.peers] == []


# -- names that look alike ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["mine-too", "min", "Mine", "mine%", "ns%mine", "mine_theirs"])
async def test_a_topic_named_nearly_like_ones_own(ports: Ports, name: str) -> None:
    assert said(await ports.ask(ANN, hp.SendMessageV2(topic=name, queue_id=0), b"x")) == no_right(
        f"Topic:{name}"
    )


PULL: dict[str, Any] = {"queue_id": 0, "queue_offset": 0, "sys_flag": 4, "subscription": "*"}


@pytest.mark.parametrize(
    ("topic", "needs"),
    [
        ("%RETRY%theirs", "Group:theirs"),
        ("%RETRY%theirs_mine", "Group:theirs_mine"),
        ("%RETRY%theirs+mine", "Group:theirs"),
        ("%RETRY%mine_theirs", "Topic:theirs"),
        ("%RETRY%mine+theirs", "Topic:theirs"),
        ("%DLQ%theirs", "Topic:%DLQ%theirs"),
        ("%DLQ%mine", "Topic:%DLQ%mine"),
        ("RMQ_SYS_TRACE_TOPIC", "Topic:RMQ_SYS_TRACE_TOPIC"),
        ("RMQ_SYS_TRANS_HALF_TOPIC", "Topic:RMQ_SYS_TRANS_HALF_TOPIC"),
        ("SCHEDULE_TOPIC_XXXX", "Topic:SCHEDULE_TOPIC_XXXX"),
    ],
)
async def test_reading_what_is_kept_for_others(ports: Ports, topic: str, needs: str) -> None:
    pull = hr.PullMessage(consumer_group="mine", topic=topic, **PULL)
    assert said(await ports.ask(ANN, pull)) == no_right(needs)
    assert said(
        await ports.ask(ANN, hr.PopMessage(consumer_group="mine", topic=topic, invisible_time=1000))
    ) == (no_right(needs))
    if not topic.startswith(
        "%RETRY%mine+"
    ):  # which says whose it is: what was given to her group, and comes again
        units = await ports.ask(ANN, hr.ReadUnits(topic=topic, queue_id=0, offset=0, count=1))
        assert units.code == 16


async def test_a_group_whose_name_is_anothers_and_a_topics(ports: Ports) -> None:
    """%RETRY%mine_theirs is the retry topic of group mine_theirs, and of POP of topic `theirs` by group `mine`."""
    ports.grant("Topic:theirs Sub", "Group:mine Sub")
    pull = hr.PullMessage(consumer_group="mine", topic="%RETRY%mine_theirs", **PULL)
    assert (await ports.ask(ANN, pull)).code != 16
    ports.server.broker.groups.require("mine_theirs")
    assert said(await ports.ask(ANN, pull)) == no_right("Group:mine_theirs")


async def test_anybody_may_write_traces_and_nobody_reads_them_by_that(ports: Ports) -> None:
    trace = hp.SendMessageV2(topic=names.TRACE_TOPIC, queue_id=0)
    assert (await ports.ask(ANN, trace, b"x")).code == 0
    assert (await ports.ask(ANN, ho.QueryMessage(topic=names.TRACE_TOPIC, key="k"))).code == 16


# -- what a request only points at ---------------------------------------------------------------------------------


async def place(ports: Ports, topic: str) -> int:
    """Of the message in the log: what the answer to a send tells its producer."""
    answer = await ports.ask(ROOT, hp.SendMessageV2(topic=topic, queue_id=0), b"not hers")
    return int(answer.fields(hp.SendResult).msg_id[-16:], 16)


async def test_another_topics_message_by_its_place(ports: Ports) -> None:
    theirs, mine = await place(ports, "theirs"), await place(ports, "mine")
    for topic in (None, "mine", "theirs"):
        assert said(await ports.ask(ANN, ho.ViewMessage(offset=theirs, topic=topic))) == no_right(
            "Topic:theirs"
        )
    assert (await ports.ask(ANN, ho.ViewMessage(offset=mine))).code == 0
    back = hp.SendBack(offset=theirs, group="mine", origin_topic="mine")
    assert said(await ports.ask(ANN, back)) == no_right("Topic:theirs")
    assert ports.server.broker.topics.get("%RETRY%mine") is None
    assert (await ports.ask(ANN, hp.SendBack(offset=mine, group="mine"))).code == 0
    delayed = hp.SendMessageV2(topic="theirs", queue_id=0, properties="DELAY\x0118\x02")
    answer = await ports.ask(ROOT, delayed, b"later")
    waits = int(answer.fields(hp.SendResult).msg_id[-16:], 16)
    assert said(await ports.ask(ANN, ho.ViewMessage(offset=waits))) == no_right("Topic:theirs")


async def test_another_producers_transaction(ports: Ports) -> None:
    half = hp.SendMessageV2(
        topic="theirs", queue_id=0, producer_group="p", sys_flag=4,
        properties="UNIQ_KEY\x01K1\x02TRAN_MSG\x01true\x02PGROUP\x01p\x02",
    )  # fmt: skip
    sent = (await ports.ask(ROOT, half, b"not hers to commit")).fields(hp.SendResult)
    at = int(sent.msg_id[-16:], 16)
    before = ports.server.broker.store.max_offset("theirs", 0)
    for topic in (None, "mine"):
        end = hx.EndTransaction(
            topic=topic, producer_group="p", tran_state_table_offset=sent.queue_offset, commit_log_offset=at,
            commit_or_rollback=hx.COMMIT,
        )  # fmt: skip
        assert said(await ports.ask(ANN, end)) == no_right("Topic:theirs")
    ended = pb.EndTransactionRequest(
        topic=pb.Resource(name="mine"), transaction_id=f"{sent.queue_offset}-{at}-K1", resolution=pb.COMMIT
    )
    assert "Topic:theirs" in (await ports.call(ANN, "EndTransaction", ended)).status.message
    assert ports.server.broker.store.max_offset("theirs", 0) == before
    own = hx.EndTransaction(
        producer_group="p", tran_state_table_offset=sent.queue_offset, commit_log_offset=at,
        commit_or_rollback=hx.COMMIT,
    )  # fmt: skip
    assert (await ports.ask(ROOT, own)).code == 0
    assert ports.server.broker.store.max_offset("theirs", 0) == before + 1


async def test_another_groups_receipt(ports: Ports) -> None:
    ports.grant("Topic:theirs Sub", "Group:mine Sub")
    pop = hr.PopMessage(consumer_group="theirs", topic="theirs", invisible_time=60_000, init_mode=0)
    popped = await ports.ask(ROOT, pop)
    result = popped.fields(hr.PopResult)
    start = parse_info(result.start_offset_info or "")
    extra = f"{next(iter(start.values()))} {result.pop_time} {result.invisible_time} {result.revive_qid} 0 broker-a 0 0"
    ack: dict[str, Any] = {"topic": "theirs", "queue_id": 0, "extra_info": extra, "offset": 0}
    assert said(await ports.ask(ANN, hr.AckMessage(consumer_group="theirs", **ack))) == no_right(
        "Group:theirs"
    )
    change = hr.ChangeInvisible(consumer_group="theirs", **ack, invisible_time=1)
    assert said(await ports.ask(ANN, change)) == no_right("Group:theirs")
    in_flight = ports.server.broker.pops.leases.in_flight
    held = {lane for lane in in_flight.lanes if lane[1] == "theirs"}
    await ports.ask(ANN, hr.AckMessage(consumer_group="mine", **ack))
    assert {lane for lane in in_flight.lanes if lane[1] == "theirs"} == held
    assert (await ports.ask(ROOT, hr.AckMessage(consumer_group="theirs", **ack))).code == 0, (
        "still its own to ack"
    )
    entry = bodies.BatchAckEntry(
        consumer_group="theirs", topic="theirs", start_offset=0, pop_time=result.pop_time
    )
    acks = bodies.encode(bodies.BatchAck(acks=[entry]))
    assert said(await ports.ask(ANN, hr.BatchAckMessage(), acks)) == no_right("Group:theirs")


async def test_reading_the_store_in_bulk(ports: Ports) -> None:
    log = hr.ReadLog(position=0, size=4096)
    assert said(await ports.ask(ANN, log)) == no_right("Topic:*")
    theirs = hr.ReadUnits(topic="theirs", queue_id=0, offset=0, count=1)
    assert said(await ports.ask(ANN, theirs)) == no_right("Topic:theirs")
    assert (await ports.ask(ANN, hr.ReadUnits(topic="mine", queue_id=0, offset=0, count=1))).code == 0
    ports.grant("Topic:* Sub")
    assert (await ports.ask(ANN, log)).code == 0


@pytest.mark.parametrize(
    "header",
    [
        hr.PullMessage(consumer_group="mine", topic="theirs", **PULL, bulk=True),
        hr.PullMessage(consumer_group="mine", topic="theirs", **PULL, as_stored=True),
        hr.LitePullMessage(consumer_group="mine", topic="theirs", **PULL),
        hr.PeekMessage(consumer_group="mine", topic="theirs"),
    ],
)
async def test_other_ways_to_read(ports: Ports, header: Header) -> None:
    assert said(await ports.ask(ANN, header)) == no_right("Topic:theirs")
