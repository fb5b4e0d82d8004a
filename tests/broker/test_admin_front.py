# SPDX-License-Identifier: Apache-2.0
"""Every request of the operators' tools, as it comes over the wire and as it is answered."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

import pytest

from aerobee.fronts.remoting.front import RemotingFront
from aerobee.fronts.remoting.routes import ROUTES
from aerobee.net.connection import Reply
from aerobee.protocol import bodies, names
from aerobee.protocol.codes import RequestCode
from aerobee.protocol.command import Command
from aerobee.protocol.message import decode, decode_all, pack_host

if TYPE_CHECKING:
    from collections.abc import Mapping

# What tools, consumers and brokers ask for besides messages, and what finishes a send.
ASKED_BY_TOOLS = (
    {29, 30, 31, 32, 33, 12, 303, 308, 314, 321, 43, 45}
    | {17, 18, 215, 351, 21, 200, 225, 201, 352, 207, 353, 222, 223, 25, 26, 306, 316, 329, 323}
    | {28, 202, 208, 203, 204, 328, 300, 343, 345, 305, 315, 317, 307, 309, 907}
    | {37, 324, 325, 370}
)


class Tool:
    """As much of a connection as a front looks at."""

    remote, remote_text, is_open = ("10.0.0.5", 4000), "10.0.0.5:4000", True
    remote_packed = pack_host(*remote)

    def __init__(self) -> None:
        self.attributes: dict[str, Any] = {"language": "JAVA", "version": 479}
        self.answered_ns = 0

    def send(self, command: Command) -> None: ...


class Front:
    """A front with one tool connected to it."""

    def __init__(self, bench: Any) -> None:
        self.front = RemotingFront(bench.broker)
        self.connection: Any = Tool()

    async def ask(self, code: int, fields: Mapping[str, object] | None = None, body: bytes = b"") -> Reply:
        ext = {
            name: str(value).lower() if value is True else str(value)
            for name, value in (fields or {}).items()
        }
        answer = self.front.handle(self.connection, Command(code, ext=ext, body=body))
        if inspect.isawaitable(answer):
            answer = await answer
        assert isinstance(answer, Reply)
        return answer

    async def json(self, code: int, kind: type[Any], body: bytes = b"", /, **fields: object) -> Any:
        answer = await self.ask(code, fields, body)
        assert answer.code == 0, answer.remark
        return bodies.decode(answer.body, kind)

    async def done(self, code: int, body: bytes = b"", /, **fields: object) -> Reply:
        answer = await self.ask(code, fields, body)
        assert answer.code == 0, answer.remark
        return answer

    async def refused(self, code: int, body: bytes = b"", /, **fields: object) -> int:
        answer = await self.ask(code, fields, body)
        assert answer.remark
        return answer.code


@pytest.fixture
def tool(bench: Any) -> Front:
    bench.send("orders", b"one", properties={"KEYS": "k1"})
    bench.send("orders", b"two", properties={"KEYS": "k2"})
    bench.broker.offsets.set("billing", "orders", 0, 1)
    bench.broker.groups.require("billing")
    return Front(bench)


def heartbeat() -> bytes:
    data = bodies.ConsumerData(
        group_name="billing", subscription_data_set=[bodies.SubscriptionData(topic="orders")]
    )
    producer = bodies.ProducerData(group_name="shop")
    return bodies.encode(
        bodies.Heartbeat(client_id="c1", consumer_data_set=[data], producer_data_set=[producer])
    )


def test_every_code_that_tools_ask_for_has_an_adapter() -> None:
    assert ASKED_BY_TOOLS - ROUTES.keys() == set()


async def test_topics_over_the_wire(tool: Front, bench: Any) -> None:
    await tool.done(
        17, topic="t", defaultTopic="TBW102", readQueueNums=2, writeQueueNums=2, perm=6, order=False
    )
    config = await tool.json(351, bodies.TopicConfig, topic="t")
    assert (config.topic_name, config.read_queue_nums) == ("t", 2)
    more = bodies.TopicConfigList(topic_config_list=[bodies.TopicConfig(topic_name="u")])
    await tool.done(18, bodies.encode(more))
    assert {"t", "u"} <= (await tool.json(21, bodies.TopicConfigs)).topic_config_table.keys()
    stats = await tool.json(202, bodies.TopicStats, topic="orders")
    assert stats.offset_table[bodies.MessageQueue("broker-a", 0, "orders")].max_offset == 2
    assert (await tool.json(300, bodies.GroupList, topic="orders")).group_list == ["billing"]
    assert "TBW102" in (await tool.json(305, bodies.TopicList)).topic_list
    await tool.done(215, topic="t")
    assert await tool.refused(351, topic="t") == 17
    assert await tool.refused(215, topic="TBW102") == 29


async def test_groups_over_the_wire(tool: Front) -> None:
    await tool.done(200, bodies.encode(bodies.GroupConfig(group_name="g", retry_max_times=3)))
    listed = bodies.GroupConfigList(group_config_list=[bodies.GroupConfig(group_name="h")])
    await tool.done(225, bodies.encode(listed))
    assert (await tool.json(352, bodies.GroupConfig, group="g")).retry_max_times == 3
    assert {"g", "h"} <= (await tool.json(201, bodies.GroupConfigs)).subscription_group_table.keys()
    forbidden = await tool.json(353, bodies.GroupForbidden, group="g", topic="orders", readable="false")
    assert forbidden.readable is False
    await tool.done(207, groupName="g", cleanOffset=True)
    assert await tool.refused(352, group="g") == 26
    assert await tool.refused(203, consumerGroup="billing") == 206
    assert await tool.refused(204, producerGroup="shop") == 1


async def test_connections_over_the_wire(tool: Front) -> None:
    await tool.done(34, heartbeat())
    connection = await tool.json(203, bodies.ConsumerConnection, consumerGroup="billing")
    assert connection.connection_set[0].client_addr == "10.0.0.5:4000"
    assert len((await tool.json(204, bodies.ProducerConnection, producerGroup="shop")).connection_set) == 1
    assert "shop" in (await tool.json(328, bodies.ProducerTable)).data
    found = await tool.json(345, bodies.GroupSubscriptionBody, group="billing", topic="orders")
    assert found.subscription_data.topic == "orders"
    assert (await tool.json(343, bodies.TopicList, group="billing")).topic_list == ["orders"]
    assert await tool.refused(307, consumerGroup="billing", clientId="c2") == 1
    assert await tool.refused(309, consumerGroup="billing", clientId="c2", msgId="x") == 1
    assert await tool.refused(223, topic="orders", group="nobody") == 1


async def test_progress_over_the_wire(tool: Front, bench: Any) -> None:
    queue = bodies.MessageQueue("broker-a", 0, "orders")
    stats = await tool.json(208, bodies.ConsumeStats, consumerGroup="billing", topic="orders")
    assert stats.offset_table[queue].broker_offset - stats.offset_table[queue].consumer_offset == 1
    assert (await tool.json(317, bodies.ConsumeStatsList, isOrder="false")).total_diff == 1
    spans = await tool.json(303, bodies.ConsumeTimeSpans, topic="orders", group="billing")
    assert len(spans.consume_time_span_set) == 4
    corrected = await tool.json(308, bodies.CorrectionOffsets, compareGroup="x", topic="orders")
    assert corrected.correction_offsets == {0: 1}
    await tool.done(314, srcGroup="billing", destGroup="copy", topic="orders", offline=True)
    assert bench.broker.offsets.get("copy", "orders", 0) == 1
    assert len((await tool.json(45, bodies.DelayOffsets)).offset_table) == 18
    assert "orders@billing" in (await tool.json(43, bodies.ConsumerOffsets)).offset_table


async def test_messages_over_the_wire(tool: Front, bench: Any) -> None:
    (first, second) = bench.records("orders")
    seen = await tool.done(33, offset=second.physical_offset)
    assert decode(seen.body).body == b"two"
    assert await tool.refused(33, offset=7) == 1
    span = {"maxNum": 10, "beginTimestamp": 0, "endTimestamp": 2**62}
    by_key = await tool.done(12, topic="orders", key="k1", **span)
    assert [record.body for record in decode_all(by_key.body)] == [b"one"]
    assert by_key.header is not None
    unique = await tool.ask(
        12, {"topic": "orders", "key": first.unique_key, **span, "_UNIQUE_KEY_QUERY": True}
    )
    assert [record.body for record in decode_all(unique.body)] == [b"one"]
    assert await tool.refused(12, topic="orders", key="none", **span) == 22
    view = await tool.json(321, bodies.ConsumeQueueView, topic="orders", queueId=0, index=0, count=10)
    assert len(view.queue_data) == 2
    assert await tool.refused(321, topic="orders", queueId=9, index=0, count=10) == 1


async def test_the_broker_over_the_wire(tool: Front) -> None:
    table = (await tool.json(28, bodies.KVTable)).table
    assert table["brokerVersionDesc"] == "V5_3_3"
    answer = await tool.done(26)
    assert b"brokerName=broker-a\n" in answer.body
    assert answer.header is not None
    await tool.done(25, b"recallMessageEnable=false")
    assert await tool.refused(25, b"brokerName=x") == 29
    assert await tool.refused(25, b"rocketmqHome=x") == 16
    assert await tool.refused(25, b"\xff\xfe") == 29
    assert await tool.refused(315, statsName="TOPIC_PUT_NUMS", statsKey="nothing") == 1
    await tool.done(315, statsName="TOPIC_PUT_NUMS", statsKey="orders")
    await tool.done(907)
    for code in (306, 316, 329):
        await tool.done(code)


async def test_transactions_over_the_wire(tool: Front, bench: Any) -> None:
    named = {"TRAN_MSG": "true", "PGROUP": "shop"}
    place = []
    for body in (b"commit", b"rollback"):
        sent = bench.send("orders", body, properties=named, sys_flag=4, producer_group="shop")
        place.append({"tranStateTableOffset": sent.queue_offset, "commitLogOffset": sent.physical_offset})
    common = {"producerGroup": "shop", "msgId": "x"}
    assert await tool.refused(37, **common, **place[0], commitOrRollback=5) == 1
    await tool.done(37, **common, **place[0], commitOrRollback=0)
    await tool.done(37, **common, **place[0], commitOrRollback=8)
    await tool.done(37, **common, **place[1], commitOrRollback=12)
    assert await tool.refused(37, producerGroup="other", msgId="x", **place[0], commitOrRollback=8) == 1
    assert [record.body for record in bench.records("orders")] == [b"one", b"two", b"commit"]
    assert await tool.refused(323, msgId="x") == 1


async def test_a_sync_store_answers_a_commit_when_it_is_durable(bench: Any) -> None:
    tool = Front(bench)
    await tool.done(25, b"flushDiskType=SYNC_FLUSH")
    named = {"TRAN_MSG": "true", "PGROUP": "shop"}
    sent = bench.send("orders", b"x", properties=named, sys_flag=4, producer_group="shop")
    fields = {"tranStateTableOffset": sent.queue_offset, "commitLogOffset": sent.physical_offset}
    await tool.done(37, producerGroup="shop", msgId="x", **fields, commitOrRollback=8)
    assert len(bench.records("orders")) == 1


async def test_replies_and_recalls_over_the_wire(tool: Front, bench: Any) -> None:
    fields = {
        "a": "responders",
        "b": "DefaultCluster_REPLY_TOPIC",
        "c": "TBW102",
        "d": 4,
        "e": 0,
        "f": 0,
        "g": 1,
    }
    assert await tool.refused(325, b"answer", **fields, h=0, i="CORRELATION_ID\x011\x02") == 1
    long_names = {"producerGroup": "responders", "topic": "DefaultCluster_REPLY_TOPIC", "queueId": 0}
    assert await tool.refused(324, b"answer", **long_names, properties="REPLY_TO_CLIENT\x01gone\x02") == 1
    due = bench.clock.now() + 60_500
    timed = {
        "producerGroup": "shop",
        "topic": "orders",
        "queueId": 0,
        "properties": f"TIMER_DELIVER_MS\x01{due}\x02",
    }
    sent = await tool.done(10, b"later", **timed)
    handle = sent.header.recall_handle  # type: ignore[union-attr]
    taken_back = await tool.done(370, topic="orders", recallHandle=handle, producerGroup="shop")
    assert taken_back.header is not None
    assert len(bench.records(names.TIMER_TOPIC)) == 2
    assert await tool.refused(370, topic="orders", recallHandle="x") == 604


ADMIN = [
    code for code, route in ROUTES.items() if route.adapter.__module__.endswith((".admin", ".transactions"))
]


@pytest.mark.parametrize("code", sorted(ADMIN))
async def test_a_request_without_fields_or_body_is_refused_not_fatal(tool: Front, code: int) -> None:
    answer = await tool.ask(code)
    assert answer.code in (0, 1, 22, 29), (RequestCode(code), answer.remark)
    for odd in ("TypeError", "AttributeError", "KeyError", "IndexError"):
        assert odd not in (answer.remark or "")
