# SPDX-License-Identifier: Apache-2.0
"""The texts are what Java's fastjson writes and reads for the same bodies."""

from __future__ import annotations

import struct
import zlib
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import inspect

from aerobee.errors import ProtocolError
from aerobee.protocol import bodies as B
from aerobee.protocol.bodies import decode, encode, registration

STRUCTS = [
    kind
    for name in B.__all__
    if isinstance(kind := getattr(B, name), type) and issubclass(kind, msgspec.Struct) and name != "Body"
]
QUEUE = B.MessageQueue("broker-a", 0, "T")

SUBSCRIPTION = (
    '{"classFilterMode":false,"codeSet":[2598919],"expressionType":"TAG","subString":"TagA",'
    '"subVersion":1700000000000,"tagsSet":["TagA"],"topic":"T"}'
)
subscription = B.SubscriptionData(
    code_set=[2598919], sub_string="TagA", sub_version=1_700_000_000_000, tags_set=["TagA"], topic="T"
)
TOPIC = (
    '{"attributes":{},"order":false,"perm":6,"readQueueNums":8,"topicFilterType":"SINGLE_TAG","topicName":"T",'
    '"topicSysFlag":0,"writeQueueNums":8}'
)
topic = B.TopicConfig(topic_name="T", read_queue_nums=8, write_queue_nums=8)
VERSION = '{"counter":0,"stateVersion":0,"timestamp":1700000000000}'
version = B.DataVersion(timestamp=1_700_000_000_000)
QUEUE_TEXT = '{"brokerName":"broker-a","queueId":0,"topic":"T"}'

PINNED = {
    "HeartbeatData": (
        B.Heartbeat(
            client_id="10.0.0.9@4711#123456789",
            consumer_data_set=[B.ConsumerData(group_name="g", subscription_data_set=[subscription])],
            producer_data_set=[B.ProducerData(group_name="p")],
        ),
        '{"clientID":"10.0.0.9@4711#123456789","consumerDataSet":[{"consumeFromWhere":"CONSUME_FROM_LAST_OFFSET",'
        '"consumeType":"CONSUME_PASSIVELY","groupName":"g","messageModel":"CLUSTERING","subscriptionDataSet":'
        f'[{SUBSCRIPTION}],"unitMode":false}}],"heartbeatFingerprint":0,"producerDataSet":[{{"groupName":"p"}}],'
        '"withoutSub":false}',
    ),
    "ConsumerConnection": (
        B.ConsumerConnection(
            connection_set=[
                B.Connection(client_addr="10.0.0.9:50001", client_id="..", language="JAVA", version=479)
            ],
            subscription_table={"T": subscription},
        ),
        '{"connectionSet":[{"clientAddr":"10.0.0.9:50001","clientId":"..","language":"JAVA","version":479}],'
        '"consumeFromWhere":"CONSUME_FROM_LAST_OFFSET","consumeType":"CONSUME_PASSIVELY",'
        f'"messageModel":"CLUSTERING","subscriptionTable":{{"T":{SUBSCRIPTION}}}}}',
    ),
    "TopicConfig": (topic, TOPIC),
    "RegisterBrokerBody": (
        B.RegisterBrokerBody(
            topic_config_serialize_wrapper=B.TopicConfigs(
                data_version=version, topic_config_table={"T": topic}
            )
        ),
        f'{{"filterServerList":[],"topicConfigSerializeWrapper":{{"dataVersion":{VERSION},'
        f'"topicConfigTable":{{"T":{TOPIC}}}}}}}',
    ),
    "LockBatch": (
        B.LockBatch(client_id="c", consumer_group="g", mq_set=[QUEUE]),
        f'{{"clientId":"c","consumerGroup":"g","mqSet":[{QUEUE_TEXT}],"onlyThisBroker":false}}',
    ),
    "LockedQueues": (B.LockedQueues(lock_ok_mq_set=[QUEUE]), f'{{"lockOKMQSet":[{QUEUE_TEXT}]}}'),
    "SubscriptionGroupConfig": (
        B.GroupConfig(group_name="g"),
        '{"attributes":{},"brokerId":0,"consumeBroadcastEnable":true,"consumeEnable":true,'
        '"consumeFromMinEnable":true,"consumeMessageOrderly":false,"consumeTimeoutMinute":15,"groupName":"g",'
        '"groupRetryPolicy":{"type":"CUSTOMIZED"},"groupSysFlag":0,"notifyConsumerIdsChangedEnable":true,'
        '"retryMaxTimes":16,"retryQueueNums":1,"whichBrokerWhenConsumeSlowly":1}',
    ),
    "RetryPolicy": (
        B.RetryPolicy(type="EXPONENTIAL", exponential_retry_policy=B.ExponentialRetry()),
        '{"exponentialRetryPolicy":{"initial":5000,"max":7200000,"multiplier":2},"type":"EXPONENTIAL"}',
    ),
    "TopicStatsTable": (
        B.TopicStats(
            offset_table={
                QUEUE: B.TopicOffset(last_update_timestamp=99, max_offset=5),
                B.MessageQueue("broker-a", 1, "T"): B.TopicOffset(),
            }
        ),
        f'{{"offsetTable":{{{QUEUE_TEXT}:{{"lastUpdateTimestamp":99,"maxOffset":5,"minOffset":0}},'
        '{"brokerName":"broker-a","queueId":1,"topic":"T"}:{"lastUpdateTimestamp":0,"maxOffset":0,"minOffset":0}},'
        '"topicPutTps":0.0}',
    ),
    "ConsumeStats": (
        B.ConsumeStats(offset_table={QUEUE: B.QueueProgress()}),
        f'{{"consumeTps":0.0,"offsetTable":{{{QUEUE_TEXT}:{{"brokerOffset":0,"consumerOffset":0,'
        '"lastTimestamp":0,"pullOffset":0}}}',
    ),
    "ResetOffsetBody": (
        B.ResetOffsetBody(offset_table={QUEUE: 3}),
        f'{{"offsetTable":{{{QUEUE_TEXT}:3}}}}',
    ),
    "consumerOffset.json": (
        B.ConsumerOffsets(data_version=version, offset_table={"T@g": {0: 12, 1: 7}}),
        f'{{"dataVersion":{VERSION},"offsetTable":{{"T@g":{{0:12,1:7}}}}}}',
    ),
    "delayOffset.json": (
        B.DelayOffsets(data_version=version, offset_table={1: 5, 2: 0}),
        f'{{"dataVersion":{VERSION},"offsetTable":{{1:5,2:0}}}}',
    ),
    "ClusterInfo": (
        B.ClusterInfo(
            broker_addr_table={
                "broker-a": B.BrokerData(broker_addrs={0: "a:1"}, broker_name="broker-a", cluster="C")
            },
            cluster_addr_table={"C": ["broker-a"]},
        ),
        '{"brokerAddrTable":{"broker-a":{"brokerAddrs":{0:"a:1"},"brokerName":"broker-a","cluster":"C",'
        '"enableActingMaster":false}},"clusterAddrTable":{"C":["broker-a"]}}',
    ),
    "ConsumerStatusTable": (
        B.ConsumerStatusTable(consumer_table={"c": {QUEUE: 4}}),
        f'{{"consumerTable":{{"c":{{{QUEUE_TEXT}:4}}}}}}',
    ),
    "CorrectionOffsets": (B.CorrectionOffsets(correction_offsets={0: 123}), '{"correctionOffsets":{0:123}}'),
    "BatchAck": (
        B.BatchAck(
            broker_name="b",
            acks=[
                B.BatchAckEntry(
                    bits="AQI=",
                    consumer_group="g",
                    topic="T",
                    start_offset=1,
                    queue_id=2,
                    revive_queue_id=3,
                    pop_time=4,
                    invisible_time=5,
                )
            ],
        ),
        '{"acks":[{"b":"AQI=","c":"g","it":5,"pt":4,"q":2,"r":"0","rq":3,"so":1,"t":"T"}],"brokerName":"b"}',
    ),
    "messageRequestMode.json": (
        B.RequestModes(
            message_request_mode_map={
                "T": {"g": B.RequestMode(consumer_group="g", mode=B.Mode.POP, topic="T")}
            }
        ),
        '{"messageRequestModeMap":{"T":{"g":{"consumerGroup":"g","mode":"POP","popShareQueueNum":0,"topic":"T"}}}}',
    ),
    "kvConfig.json": (
        B.KVConfig(config_table={"ORDER_TOPIC_CONFIG": {"T": "broker-a:4"}}),
        '{"configTable":{"ORDER_TOPIC_CONFIG":{"T":"broker-a:4"}}}',
    ),
    "Assignment": (
        B.Assignment(message_queue_assignments=[B.AssignedQueue(message_queue=QUEUE, mode=B.Mode.POP)]),
        f'{{"messageQueueAssignments":[{{"messageQueue":{QUEUE_TEXT},"mode":"POP"}}]}}',
    ),
    "no assignment": (B.Assignment(), "{}"),
}


@pytest.mark.parametrize(("value", "written"), PINNED.values(), ids=PINNED)
def test_bodies_have_javas_text(value: Any, written: str) -> None:
    assert encode(value).decode() == written
    assert decode(written.encode(), type(value)) == value
    assert decode(written.encode() + b"\n", type(value)) == value


# -- routes -------------------------------------------------------------------------------------------

ROUTE = (
    '{"brokerDatas":[{"brokerAddrs":{"0":"10.0.0.1:10911","1":"10.0.0.2:10911"},"brokerName":"broker-a",'
    '"cluster":"DefaultCluster","enableActingMaster":false}],"filterServerTable":{},"queueDatas":[{"brokerName":'
    '"broker-a","perm":6,"readQueueNums":4,"topicSysFlag":0,"writeQueueNums":4}]}'
)
route = B.TopicRoute(
    broker_datas=[
        B.BrokerData(
            broker_addrs={0: "10.0.0.1:10911", 1: "10.0.0.2:10911"},
            broker_name="broker-a",
            cluster="DefaultCluster",
        )
    ],
    queue_datas=[B.QueueData(broker_name="broker-a", read_queue_nums=4, write_queue_nums=4)],
)


@pytest.mark.parametrize(
    ("requester", "accepts", "quoted"),
    [(479, None, True), (401, None, True), (399, None, False), (317, False, False), (121, True, True)],
)
def test_a_route_has_quoted_keys_from_4_9_4_on(requester: int, accepts: bool | None, quoted: bool) -> None:
    written = encode(route, B.route_dialect(requester, accepts)).decode()
    assert written == (ROUTE if quoted else ROUTE.replace('"0":', "0:").replace('"1":', "1:"))
    assert decode(written.encode(), B.TopicRoute) == route
    assert decode(written.replace(",", " ,\n ").encode(), B.TopicRoute) == route


def test_optional_members_of_a_route_are_read_and_absent_when_there_are_none() -> None:
    data = b'{"orderTopicConf":"a:4","topicQueueMappingByBroker":{"a":{"epoch":1}},"queueDatas":[{"topicSynFlag":0}]}'
    found = decode(data, B.TopicRoute)
    assert found.order_topic_conf == "a:4"
    assert found.queue_datas == [B.QueueData()]


# -- heartbeats of other clients ----------------------------------------------------------------------


def test_gos_heartbeat_is_read_whatever_its_case() -> None:
    data = b'{"clientID":"c","consumerDataSet":[{"groupName":"g","messageModel":"BroadCasting"}]}'
    assert decode(data, B.Heartbeat).consumer_data_set[0].message_model is B.MessageModel.BROADCASTING


def test_the_ordinals_of_the_cpp_client_are_read() -> None:
    data = (
        b'{"clientID":"c","consumerDataSet":[{"consumeFromWhere":4,"consumeType":1,"groupName":"g","messageModel":1,'
        b'"subscriptionDataSet":[{"codeSet":["65"],"subString":"A","subVersion":"5","tagsSet":["A"],"topic":"T"}]}],'
        b'"producerDataSet":null}\n'
    )
    consumer = decode(data, B.Heartbeat).consumer_data_set[0]
    assert consumer.message_model is B.MessageModel.CLUSTERING
    assert consumer.consume_from_where is B.ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
    assert consumer.consume_type is B.ConsumeType.CONSUME_PASSIVELY
    assert consumer.subscription_data_set[0].code_set == [65]


@pytest.mark.seed("S000-34")
def test_no_assignment_and_an_empty_one_are_told_apart() -> None:
    empty = B.Assignment(message_queue_assignments=[])
    assert encode(empty) == b'{"messageQueueAssignments":[]}'
    assert decode(encode(empty), B.Assignment).message_queue_assignments == []
    assert decode(encode(B.Assignment()), B.Assignment).message_queue_assignments is None


def test_a_batch_ack_is_read_by_its_long_names() -> None:
    data = (
        b'{"brokerName":"b","acks":[{"consumerGroup":"g","topic":"T","retry":"1","startOffset":1,"queueId":2,'
        b'"reviveQueueId":3,"popTime":4,"invisibleTime":5,"bitSet":"AQI="}]}'
    )
    entry = B.BatchAckEntry(
        bits="AQI=",
        consumer_group="g",
        topic="T",
        retry="1",
        start_offset=1,
        queue_id=2,
        revive_queue_id=3,
        pop_time=4,
        invisible_time=5,
    )
    assert B.decode_batch_ack(data) == B.BatchAck(acks=[entry], broker_name="b")


def test_the_order_info_file_is_read_with_either_keys() -> None:
    info = B.OrderInfo(offsets=[5, 1], consumed_counts={5: 1}, pop_time=9, invisible_time=60)
    value = B.OrderInfos(table={"T@g": {0: info}})
    assert decode(encode(value), B.OrderInfos) == value
    assert decode(encode(value, B.Dialect.STANDARD), B.OrderInfos) == value


# -- every body ---------------------------------------------------------------------------------------

LEAVES = {
    inspect.IntType: st.integers(-(2**63), 2**63 - 1),
    inspect.FloatType: st.floats(allow_nan=False, allow_infinity=False),
    inspect.BoolType: st.booleans(),
    inspect.StrType: st.text(st.characters(exclude_categories=["Cs"]), max_size=6),
    inspect.AnyType: st.dictionaries(st.sampled_from(["x", "y"]), st.integers(0, 9), max_size=2),
}


def strategy(info: inspect.Type) -> st.SearchStrategy[Any]:
    if isinstance(info, inspect.UnionType):
        inner = next(each for each in info.types if not isinstance(each, inspect.NoneType))
        return st.none() | strategy(inner)
    if isinstance(info, inspect.StructType):
        return st.builds(info.cls, **{field.name: strategy(field.type) for field in info.fields})
    if isinstance(info, inspect.DictType):
        return st.dictionaries(strategy(info.key_type), strategy(info.value_type), max_size=2)
    if isinstance(info, inspect.ListType):
        return st.lists(strategy(info.item_type), max_size=2)
    if isinstance(info, inspect.TupleType):
        return st.tuples(*map(strategy, info.item_types))
    if isinstance(info, inspect.EnumType):
        return st.sampled_from(list(info.cls))
    return LEAVES[type(info)]


@pytest.mark.parametrize("kind", STRUCTS, ids=lambda kind: kind.__name__)
@given(data=st.data())
@settings(deadline=None, max_examples=8)
def test_every_body_survives_both_dialects(kind: type[Any], data: st.DataObject) -> None:
    value = data.draw(strategy(inspect.type_info(kind)))
    for dialect in B.Dialect:
        assert decode(encode(value, dialect), kind) == value


@pytest.mark.parametrize("kind", STRUCTS, ids=lambda kind: kind.__name__)
def test_every_body_has_defaults_and_declares_its_members_in_javas_order(kind: type[Any]) -> None:
    assert decode(b"{}", kind) == kind()
    names = list(kind.__struct_encode_fields__)
    assert names == sorted(names)


@pytest.mark.parametrize("kind", STRUCTS, ids=lambda kind: kind.__name__)
def test_every_body_reads_null_members_as_absent(kind: type[Any]) -> None:
    nulls = ",".join(f'"{name}":null' for name in kind.__struct_encode_fields__)
    assert decode(f"{{{nulls}}}".encode(), kind) == kind()


@given(st.binary(max_size=60) | st.text('{}[]":,01ab \\', max_size=40).map(str.encode))
@settings(deadline=None, max_examples=60)
@pytest.mark.slow
def test_garbage_is_a_protocol_error_for_every_body(data: bytes) -> None:
    for kind in STRUCTS:
        try:
            decode(data, kind)
        except ProtocolError:
            continue


# -- registration -------------------------------------------------------------------------------------

registrations = st.builds(
    B.RegisterBrokerBody,
    filter_server_list=st.lists(st.sampled_from(["a:1", "b:2"]), max_size=2),
    topic_config_serialize_wrapper=st.builds(
        B.TopicConfigs,
        data_version=st.builds(B.DataVersion, st.integers(0, 9), st.integers(0, 9), st.integers(0, 2**40)),
        topic_config_table=st.lists(
            st.builds(
                B.TopicConfig,
                topic_name=st.text("abc%_-", min_size=1, max_size=9),
                read_queue_nums=st.integers(0, 1024),
                write_queue_nums=st.integers(0, 1024),
                perm=st.integers(0, 15),
                topic_filter_type=st.sampled_from(["SINGLE_TAG", "MULTI_TAG"]),
                attributes=st.dictionaries(
                    st.sampled_from(["message.type", "x y"]), st.text(max_size=5), max_size=2
                ),
            ),
            max_size=4,
        ).map(lambda configs: {config.topic_name: config for config in configs}),
    ),
)


@pytest.mark.slow
@given(registrations, st.sampled_from([409, 479]))
@settings(deadline=None)
def test_a_registration_survives_plain_and_compressed(body: B.RegisterBrokerBody, broker: int) -> None:
    assert B.decode_registration(B.encode_registration(body), broker) == body
    assert B.decompress_registration(B.compress_registration(body, broker)) == body


def test_a_compressed_registration_has_javas_layout() -> None:
    body: Any = PINNED["RegisterBrokerBody"][0]
    plain = zlib.decompress(B.compress_registration(body, 479))
    parts = [VERSION.encode(), b"T 8 8 6 SINGLE_TAG {}", b"[]"]
    sized = [struct.pack(">i", len(part)) + part for part in parts]
    assert plain == sized[0] + struct.pack(">i", 1) + sized[1] + sized[2] + struct.pack(">i", 0)


def test_a_registration_of_4_x_has_topics_without_attributes() -> None:
    parts = [b"{}", b"T 8 8 6 SINGLE_TAG", b"[]"]
    sized = [struct.pack(">i", len(part)) + part for part in parts]
    data = zlib.compress(sized[0] + struct.pack(">i", 1) + sized[1] + sized[2])
    assert B.decompress_registration(data).topic_config_serialize_wrapper.topic_config_table == {"T": topic}


def test_brokers_before_3_0_11_register_their_topics_bare() -> None:
    found = B.decode_registration(f'{{"topicConfigTable":{{"T":{TOPIC}}}}}'.encode(), 36)
    assert found.topic_config_serialize_wrapper.topic_config_table == {"T": topic}


def test_from_3_0_11_on_the_topics_of_a_broker_are_a_part_of_what_it_registers() -> None:
    text = (
        f'{{"filterServerList":["f:1"],"topicConfigSerializeWrapper":{{"topicConfigTable":{{"T":{TOPIC}}}}}}}'
    )
    found = B.decode_registration(text.encode(), 37)
    assert found.topic_config_serialize_wrapper.topic_config_table == {"T": topic}
    assert found.filter_server_list == ["f:1"]
    assert not B.decode_registration(text.encode(), 36).topic_config_serialize_wrapper.topic_config_table


def test_no_body_is_no_topics() -> None:
    assert B.decode_registration(b"", 479) == B.RegisterBrokerBody()


@pytest.mark.parametrize(
    "plain",
    [
        b"",
        struct.pack(">i", -1),
        struct.pack(">i", 2**31 - 1),
        struct.pack(">i", 2) + b"{}",
        struct.pack(">i", 2) + b"{}" + struct.pack(">i", 2**31 - 1),
        struct.pack(">i", 2) + b"{}" + struct.pack(">ii", 1, 3) + b"T 8",
        struct.pack(">i", 2) + b"{}" + struct.pack(">ii", 1, 19) + b"T 8 x 6 SINGLE_TAG ",
        struct.pack(">i", 2) + b"{}" + struct.pack(">ii", 1, 2) + b"\xff\xff",
    ],
)
def test_a_registration_that_does_not_add_up_is_a_protocol_error(plain: bytes) -> None:
    with pytest.raises(ProtocolError):
        B.decompress_registration(zlib.compress(plain))


@given(st.binary(max_size=80))
@settings(deadline=None)
def test_a_garbage_registration_is_a_protocol_error(data: bytes) -> None:
    for attempt in (data, zlib.compress(data)):
        with pytest.raises(ProtocolError):
            B.decompress_registration(attempt)


def test_queues_sort_by_topic_broker_and_number() -> None:
    queues = [B.MessageQueue(b, q, t) for t in "BA" for b in "ba" for q in (10, 9)]
    assert [str(queue) for queue in sorted(queues)][:4] == ["A/a/9", "A/a/10", "A/b/9", "A/b/10"]
    assert len({*queues, *queues}) == 8


def test_a_registration_is_limited_in_topics_however_small_it_came() -> None:
    topics = (struct.pack(">i", 9) + b"a 1 1 1 b") * (registration.MAX_TOPICS + 1)
    plain = struct.pack(">i", 2) + b"{}" + struct.pack(">i", registration.MAX_TOPICS + 1) + topics
    with pytest.raises(ProtocolError, match="registration of 50001 topics, limit 50000"):
        B.decompress_registration(zlib.compress(plain))
    table = ",".join(f'"{n:x}":{{}}' for n in range(600_000))
    body = f'{{"topicConfigSerializeWrapper":{{"topicConfigTable":{{{table}}}}}}}'.encode()
    with pytest.raises(ProtocolError, match="values, limit 600000"):
        B.decode_registration(body, 500)


def test_a_topic_of_a_registration_is_limited_in_size() -> None:
    text = b"a 1 1 1 b {" + b"1:1," * 20_000 + b"}"
    plain = struct.pack(">i", 2) + b"{}" + struct.pack(">ii", 1, len(text)) + text
    with pytest.raises(ProtocolError, match="topic of 80012 bytes in a registration, limit 65536"):
        B.decompress_registration(zlib.compress(plain))
