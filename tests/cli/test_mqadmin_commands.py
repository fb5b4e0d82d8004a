# SPDX-License-Identifier: Apache-2.0
"""`aerobee admin`: mqadmin's commands print what RocketMQ's print (the patterns of tests/interop/test_mqadmin.py)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest

from aerobee import blocking
from aerobee.testing import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from conftest import Done

    from aerobee.testing import TestServer

pytestmark = pytest.mark.slow

TOPIC, GROUP, PRODUCER = "mq-topic", "mq-group", "mq-producer"
TIME = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d"
ADDRESS = r"127\.0\.0\.1:\d+"
CLIENT = r"\S+@\S+"
NUMBER = r"-?\d+(\.\d+)?"
MESSAGE = [
    rf"^Topic:\s+{TOPIC}$",
    r"^Tags:\s+\[A\]$",
    r"^Keys:\s+\[k\d\]$",
    r"^Queue ID:\s+\d+$",
    r"^Queue Offset:\s+\d+$",
    r"^CommitLog Offset:\s+\d+$",
    rf"^Born Timestamp:\s+{TIME},\d+$",
    rf"^Store Host:\s+{ADDRESS}$",
    r"^Properties:\s+\{.*UNIQ_KEY=\w+.*\}$",
    rf"MessageTrack \[consumerGroup={GROUP}, trackType=CONSUMED, exceptionDesc=null\]",
]

CASES: dict[str, list[str]] = {
    "clusterList": [
        r"^#Cluster Name +#Broker Name +#BID +#Addr +#Version +#InTPS\(LOAD\) +#OutTPS\(LOAD\) +#Timer\(Progress\)"
        r" +#PCWait\(ms\) +#Hour +#SPACE +#ACTIVATED$",
        rf"^DefaultCluster +broker-a +0 +{ADDRESS} +V\d_\d+_\d+ +{NUMBER}\(\d+,\d+ms\) +"
        rf"{NUMBER}\(\d+,\d+ms\|\d+,\d+ms\) +\S+\(\S+w, \S+, \S+\) +\d+ +{NUMBER} +0\.\d+ +true$",
    ],
    "clusterList -m": [
        r"^#Cluster Name +#Broker Name +#InTotalYest +#OutTotalYest +#InTotalToday +#OutTotalToday$",
        r"^DefaultCluster +broker-a +\d+ +\d+ +\d+ +\d+$",
    ],
    "topicList": [rf"^{TOPIC}$", "^TBW102$", "^SCHEDULE_TOPIC_XXXX$", "^DefaultCluster$", "^broker-a$"],
    "topicList -c": [r"^#Cluster Name +#Topic +#Consumer Group$", rf"^DefaultCluster +{TOPIC} +{GROUP}$"],
    f"topicRoute -t {TOPIC}": [
        r'"brokerAddrs":\{"?0"?:"' + ADDRESS, r'"brokerName":"broker-a"', r'"perm":6', r'"readQueueNums":2',
    ],
    f"topicRoute -t {TOPIC} -l": [
        r"^#ClusterName +#BrokerName +#BrokerAddrs +#ReadQueue +#WriteQueue +#Perm$",
        rf"^DefaultCluster +broker-a +\{{0={ADDRESS}\}} +2 +2 +6$",
        r"^Total: +1 +2 +2$",
    ],
    f"topicStatus -t {TOPIC}": [
        r"^#Broker Name +#QID +#Min Offset +#Max Offset +#Last Updated$",
        rf"^broker-a +0 +0 +\d+ +{TIME},\d+$",
    ],
    f"topicClusterList -t {TOPIC}": [r"^DefaultCluster$"],
    "updateTopic -c DefaultCluster -t mq-new -r 2 -w 2": [
        rf"^create topic to {ADDRESS} success\.$",
        r"^TopicConfig \[topicName=mq-new, readQueueNums=2, writeQueueNums=2, perm=RW-",
    ],
    "updateTopic -b {broker} -t mq-new -r 3 -w 3": [rf"^create topic to {ADDRESS} success\.$"],
    "updateTopicPerm -c DefaultCluster -t mq-new -p 4": [rf"^update topic perm from 6 to 4 in {ADDRESS} success\.$"],
    "deleteTopic -c DefaultCluster -t mq-new": [
        r"^delete topic \[mq-new\] from cluster \[DefaultCluster\] success\.$",
        r"^delete topic \[mq-new\] from NameServer success\.$",
    ],
    "updateSubGroup -c DefaultCluster -g mq-new-group -r 3": [
        rf"^create subscription group to {ADDRESS} success\.$",
        r"^SubscriptionGroupConfig\{groupName=mq-new-group, consumeEnable=true.*retryMaxTimes=3",
    ],
    "getConsumerConfig -g mq-new-group": [
        r"^groupName +=  mq-new-group$", r"^retryMaxTimes +=  3$", r"^consumeEnable +=  true$",
    ],
    "deleteSubGroup -c DefaultCluster -g mq-new-group": [
        rf"^delete subscription group \[mq-new-group\] from broker \[{ADDRESS}\] in cluster \[DefaultCluster\] "
        r"success\.$",
    ],
    "consumerProgress": [
        r"^#Group +#Count +#Version +#Type +#Model +#TPS +#Diff Total$",
        rf"^{GROUP} +1 +V\d_\d+_\d+ +PUSH +CLUSTERING +\d+ +\d+$",
    ],
    f"consumerProgress -g {GROUP}": [
        r"^#Topic +#Broker Name +#QID +#Broker Offset +#Consumer Offset +#Diff +#Inflight +#LastTime$",
        rf"^{TOPIC} +broker-a +0 +\d+ +\d+ +0 +0 +{TIME}$",
        r"^Consume TPS: \S+$",
        r"^Consume Diff Total: 0$",
        r"^Consume Inflight Total: 0$",
    ],
    f"consumerProgress -g {GROUP} -s true": [
        r"^#Topic +#Broker Name +#QID +#Broker Offset +#Consumer Offset +#Client IP +#Diff +#Inflight +#LastTime$",
        rf"^{TOPIC} +broker-a +1 +\d+ +\d+ +[\d.]+ +0 +0 +{TIME}$",
    ],
    f"consumerStatus -g {GROUP}": [
        r"^#Index +#ClientId +#Version",
        rf"^1 +{CLIENT} +V\d_\d+_\d+",
        r"^Same subscription in the same group of consumer$",
    ],
    f"consumerStatus -g {GROUP} -i {{client}}": [
        r"^#Consumer Properties#$", r"^PROP_CONSUME_TYPE +: CONSUME_PASSIVELY$", rf"^{TOPIC} +broker-a +0 ",
        r"^#User Consume Info#$",
    ],
    f"consumerConnection -g {GROUP}": [
        r"^#ClientId +#ClientAddr +#Language +#Version$",
        rf"^{CLIENT} +{ADDRESS} +\w+ +V\d_\d+_\d+$",
        rf"^{TOPIC} +\*$",
        r"^ConsumeType: CONSUME_PASSIVELY$",
        r"^MessageModel: CLUSTERING$",
        r"^ConsumeFromWhere: CONSUME_FROM_FIRST_OFFSET$",
    ],
    f"producerConnection -g {PRODUCER} -t {TOPIC}": [rf"^0001  {CLIENT} +{ADDRESS} +\w+ +V\d_\d+_\d+$"],
    f"cloneGroupOffset -s {GROUP} -d mq-clone -t {TOPIC} -o true": [
        rf"^clone group offset success\. srcGroup\[{GROUP}\], destGroup=\[mq-clone\], topic\[{TOPIC}\]$",
    ],
    f"resetOffsetByTime -g mq-clone -t {TOPIC} -s 0": [
        rf"^start reset consumer offset by specified, group\[mq-clone\], topic\[{TOPIC}\], force\[true\], "
        r"timestamp\(string\)\[0\], timestamp\(long\)\[0\]$",
        r"^#brokerName +#queueId +#offset$",
        r"^broker-a +0 +0$",
    ],
    f"skipAccumulatedMessage -g mq-clone -t {TOPIC}": [r"^broker-a +0 +[1-9]\d*$", r"^broker-a +1 +[1-9]\d*$"],
    f"queryMsgById -t {TOPIC} -i {{offset_id}}": [r"^OffsetID:\s+{offset_id}$", *MESSAGE],
    f"queryMsgById -t {TOPIC} -i {{unique_id}}": [r"^OffsetID:\s+{offset_id}$", *MESSAGE],
    f"queryMsgByUniqueKey -t {TOPIC} -i {{unique_id}}": MESSAGE,
    f"queryMsgByOffset -t {TOPIC} -b broker-a -i 0 -o 1": [r"^Queue Offset:\s+1$", *MESSAGE],
    f"queryMsgByKey -t {TOPIC} -k k3": [r"^#Message ID +#QID +#Offset$", r"^[0-9A-F]{32,} +[01] +\d+$"],
    f"printMsg -t {TOPIC} -d true": [
        rf"^minOffset=0, maxOffset=\d+, MessageQueue \[topic={TOPIC}, brokerName=broker-a, queueId=0\]$",
        rf"^MSGID: \S+ MessageExt \[brokerName=broker-a, queueId=\d, storeSize=\d+.*topic='{TOPIC}'.* BODY: m\d$",
    ],
    f"printMsgByQueue -t {TOPIC} -a broker-a -i 0 -p true -d true -f true": [
        rf"^MSGID: \S+ MessageExt \[brokerName=broker-a, queueId=0, .*topic='{TOPIC}'.* BODY: m\d$",
        r"^Tag: A +Count: \d+$",
    ],
    f"consumeMessage -t {TOPIC} -c 3": [
        r"^The older 3 message of the \d queue will be provided$", r"^Consume ok$", r"^MSGID: \S+ MessageExt \[",
    ],
    f"sendMessage -t {TOPIC} -p hello -k k3 -c A": [
        r"^#Broker Name +#QID +#Send Result +#MsgId$", r"^broker-a +[01] +SEND_OK +\S+$",
    ],
    f"checkMsgSendRT -t {TOPIC} -a 3 -s 10": [
        r"^#Broker Name +#QID +#Send Result +#RT$", r"^broker-a +[01] +true +\d+$", r"^Avg RT: \S+$",
    ],
    "brokerStatus -b {broker}": [
        r"^brokerVersionDesc +: V\d_\d+_\d+$", r"^brokerActive +: true$", r"^bootTimestamp +: \d{13}$",
        r"^runtime +: \[ \d+ days, \d+ hours, \d+ minutes, \d+ seconds \]$", r"^putTps +: \S+",
    ],
    "brokerStatus -c DefaultCluster": [rf"^{ADDRESS} +brokerVersionDesc +: V\d_\d+_\d+$"],
    "getBrokerConfig -b {broker}": [
        r"^=+{broker}=+$", r"^brokerName +=  broker-a$", r"^maxMessageSize +=  4194304$",
    ],
    "updateBrokerConfig -b {broker} -k longPollingEnable -v true": [r"^update broker config success, {broker}$"],
    "getNamesrvConfig": [r"^=+{namesrv}=+$", r"^listenPort +=  \d+$"],
    "updateNamesrvConfig -k brokerExpiryMs -v 120000": [
        r"^update name server config success!", "^brokerExpiryMs : 120000$",
    ],
    "statsAll": [
        r"^#Topic +#Consumer Group +#Accumulation +#InTPS +#OutTPS +#InMsg24Hour +#OutMsg24Hour$",
        rf"^{TOPIC} +{GROUP} +\d+ +{NUMBER} +{NUMBER} +\d+ +\d+$",
        rf"^TBW102 +0 +{NUMBER} +\d+ +NO_CONSUMER$",
    ],
    f"allocateMQ -t {TOPIC} -i 127.0.0.1,127.0.0.2": [
        r'^\{"result":\{"127\.0\.0\.\d":\[\{"brokerName":"broker-a","queueId":\d,"topic":"' + TOPIC + '"',
    ],
    "wipeWritePerm -b broker-a": [r"^wipe write perm of broker\[broker-a\] in name server\[{namesrv}\] OK, [1-9]\d*$"],
    "addWritePerm -b broker-a": [r"^add write perm of broker\[broker-a\] in name server\[{namesrv}\] OK, [1-9]\d*$"],
    "updateKvConfig -s ORDERS -k a -v b": [r"^create or update kv config to namespace success\.$"],
    "deleteKvConfig -s ORDERS -k a": [r"^delete kv config from namespace success\.$"],
    f"setConsumeMode -c DefaultCluster -t {TOPIC} -g mq-clone -m POP -q 8": [
        rf"^set consume mode to {ADDRESS} success\.$",
        rf"^topic\[{TOPIC}\] group\[mq-clone\] consume mode\[POP\] popShareQueueNum\[8\]$",
    ],
    f"setConsumeMode -b {{broker}} -t {TOPIC} -g mq-clone -m PULL": [
        r"^set consume mode to {broker} success\.$", r"consume mode\[PULL\] popShareQueueNum\[0\]$",
    ],
    "brokerConsumeStats -b {broker}": [
        r"^#Topic +#Group +#Broker Name +#QID +#Broker Offset +#Consumer Offset +#Diff +#LastTime$",
        rf"^{TOPIC} +{GROUP} +broker-a +0 +\d+ +\d+ +\d+ +{TIME}$",
        r"^Diff Total: \d+$",
    ],
    "cleanExpiredCQ -c DefaultCluster": [r"^success$"],
    "cleanUnusedTopic -b {broker}": [r"^success$"],
    "deleteExpiredCommitLog": [r"^success$"],
}  # fmt: skip


@pytest.fixture(scope="module")
def prepared(server: TestServer) -> Iterator[dict[str, Any]]:
    """A topic with ten consumed messages, a live producer and a live consumer."""
    server.create_topic(TOPIC, queues=2)
    seen: list[bytes] = []
    admin = blocking.Admin(server.namesrv)
    producer = blocking.Producer(server.namesrv, group=PRODUCER)
    consumer = blocking.PushConsumer(
        server.namesrv,
        group=GROUP,
        topics={TOPIC: "*"},
        handler=lambda message: seen.append(message.body),
        start="first",
        options=blocking.Options(persist_offsets_ms=100),
    )
    with admin, producer, consumer:
        admin.create_group("mq-clone")
        messages = [blocking.Message(TOPIC, f"m{i}".encode(), tags="A", keys=[f"k{i}"]) for i in range(10)]
        sent = [producer.send(message) for message in messages]
        wait_until(lambda: len(seen) == 10, 20_000)
        wait_until(lambda: server.lag(GROUP).lag == 0, 20_000)
        yield {
            "broker": server.broker_address,
            "namesrv": server.namesrv,
            "offset_id": sent[0].offset_id,
            "unique_id": sent[0].message_id,
            "client": consumer.session.client_id,
        }


def fill(text: str, values: dict[str, str]) -> str:
    for name, value in values.items():
        text = text.replace(f"{{{name}}}", value)
    return text


@pytest.mark.seed("S000-3", "S000-4")
@pytest.mark.parametrize("line", CASES, ids=lambda line: line.replace("mq-", "").replace(" ", "_"))
def test_command(line: str, prepared: dict[str, str], good: Callable[..., Done]) -> None:
    output = good("admin", *fill(line, prepared).split()).out
    escaped = {name: re.escape(value) for name, value in prepared.items()}
    missing = [each for each in CASES[line] if not re.search(fill(each, escaped), output, re.MULTILINE)]
    assert not missing, output


@pytest.mark.seed("S000-5")
def test_the_share_count_is_q_and_n_names_the_name_servers(
    prepared: dict[str, str], good: Callable[..., Done]
) -> None:
    line = f"setConsumeMode -n {prepared['namesrv']} -c DefaultCluster -t {TOPIC} -g mq-clone -m POP -q 3"
    assert "popShareQueueNum[3]" in good("admin", *line.split()).out
