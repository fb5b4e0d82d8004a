# SPDX-License-Identifier: Apache-2.0
"""Every mqadmin command of rocketmq-tools 5.3.3 that an operator uses: no stack trace, and the shape of the output.

The patterns were read off the same commands on the Java broker (`--server rocketmq` proves them again).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import peers
import pytest
from servers import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from conftest import Running
    from servers import Server

TOPIC, GROUP, PRODUCER = "mqadmin-topic", "mqadmin-group", "mqadmin-producer"
TRACE = re.compile(r"^\s+at \S+\(\S+\)|Exception(:|$)", re.MULTILINE)
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
    r"^Reconsume Times:\s+0$",
    rf"^Born Timestamp:\s+{TIME},\d+$",
    rf"^Store Timestamp:\s+{TIME},\d+$",
    rf"^Born Host:\s+{ADDRESS}$",
    rf"^Store Host:\s+{ADDRESS}$",
    r"^System Flag:\s+0$",
    r"^Properties:\s+\{.*UNIQ_KEY=\w+.*\}$",
    rf"MessageTrack \[consumerGroup={GROUP}, trackType=CONSUMED, exceptionDesc=null\]",
]

# command line -> patterns, each of which some line must match ({...} is filled from the prepared data)
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
    "topicList": [
        rf"^{TOPIC}$",
        rf"^%RETRY%{GROUP}$",
        "^TBW102$",
        "^SCHEDULE_TOPIC_XXXX$",
        "^RMQ_SYS_TRANS_HALF_TOPIC$",
        "^DefaultCluster$",
        "^broker-a$",
        "^DefaultCluster_REPLY_TOPIC$",
    ],
    "topicList -c": [
        r"^#Cluster Name +#Topic +#Consumer Group\s*$",
        rf"^DefaultCluster +{TOPIC} +{GROUP}\s*$",
    ],
    f"topicRoute -t {TOPIC}": [
        r'"brokerAddrs":\{"?0"?:"' + ADDRESS,
        r'"brokerName":"broker-a"',
        r'"cluster":"DefaultCluster"',
        r'"perm":6',
        r'"readQueueNums":2',
        r'"writeQueueNums":2',
    ],
    f"topicRoute -t {TOPIC} -l": [
        r"^#ClusterName +#BrokerName +#BrokerAddrs +#ReadQueue +#WriteQueue +#Perm\s*$",
        rf"^DefaultCluster +broker-a +\{{0={ADDRESS}\}} +2 +2 +6\s*$",
        r"^Total: +1 +2 +2\s*$",
    ],
    f"topicStatus -t {TOPIC}": [
        r"^#Broker Name +#QID +#Min Offset +#Max Offset +#Last Updated$",
        rf"^broker-a +0 +0 +\d+ +{TIME},\d+$",
        rf"^broker-a +1 +0 +\d+ +{TIME},\d+$",
    ],
    "updateTopic -c DefaultCluster -t mqadmin-new -r 2 -w 2": [
        rf"^create topic to {ADDRESS} success\.$",
        r"^TopicConfig \[topicName=mqadmin-new, readQueueNums=2, writeQueueNums=2, perm=RW-",
    ],
    "updateTopic -b {broker} -t mqadmin-new -r 3 -w 3": [rf"^create topic to {ADDRESS} success\.$"],
    "updateTopicPerm -c DefaultCluster -t mqadmin-new -p 4": [
        rf"^update topic perm from 6 to 4 in {ADDRESS} success\.$",
    ],
    "deleteTopic -c DefaultCluster -t mqadmin-new": [
        r"^delete topic \[mqadmin-new\] from cluster \[DefaultCluster\] success\.$",
        r"^delete topic \[mqadmin-new\] from NameServer success\.$",
    ],
    "updateSubGroup -c DefaultCluster -g mqadmin-new-group -r 3": [
        rf"^create subscription group to {ADDRESS} success\.$",
        r"^SubscriptionGroupConfig\{groupName=mqadmin-new-group, consumeEnable=true.*retryMaxTimes=3",
    ],
    "getConsumerConfig -g mqadmin-new-group": [
        r"^groupName +=  mqadmin-new-group$",
        r"^retryMaxTimes +=  3$",
        r"^consumeEnable +=  true$",
    ],
    "deleteSubGroup -c DefaultCluster -g mqadmin-new-group": [
        r"^delete subscription group \[mqadmin-new-group\] from broker \[" + ADDRESS + r"\] in cluster "
        r"\[DefaultCluster\] success\.$",
    ],
    "consumerProgress": [
        r"^#Group +#Count +#Version +#Type +#Model +#TPS +#Diff Total$",
        rf"^{GROUP} +1 +V5_3_3 +PUSH +CLUSTERING +\d+ +\d+$",
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
        r"^#Index +#ClientId +#Version +#ConsumerRunningInfoFile$",
        rf"^1 +{CLIENT} +V5_3_3 +\d+/{CLIENT}$",
        r"^Same subscription in the same group of consumer$",
        r"^Rebalance OK$",
    ],
    f"consumerStatus -g {GROUP} -i {{client}}": [
        r"^#Consumer Properties#$",
        r"^PROP_CONSUME_TYPE +: CONSUME_PASSIVELY$",
        rf"^{TOPIC} +broker-a +0 ",
        r"^#User Consume Info#$",
    ],
    f"consumerConnection -g {GROUP}": [
        r"^#ClientId +#ClientAddr +#Language +#Version$",
        rf"^{CLIENT} +{ADDRESS} +JAVA +V5_3_3$",
        rf"^{TOPIC} +\*$",
        rf"^%RETRY%{GROUP} +\*$",
        r"^ConsumeType: CONSUME_PASSIVELY$",
        r"^MessageModel: CLUSTERING$",
        r"^ConsumeFromWhere: CONSUME_FROM_FIRST_OFFSET$",
    ],
    f"producerConnection -g {PRODUCER} -t {TOPIC}": [rf"^0001  {CLIENT} +{ADDRESS} +JAVA +V5_3_3$"],
    f"queryMsgById -t {TOPIC} -i {{offset_id}}": [r"^OffsetID:\s+{offset_id}$", *MESSAGE],
    f"queryMsgById -t {TOPIC} -i {{unique_id}}": [r"^OffsetID:\s+{offset_id}$", *MESSAGE],
    f"queryMsgByUniqueKey -t {TOPIC} -i {{unique_id}}": MESSAGE,
    f"queryMsgByOffset -t {TOPIC} -b broker-a -i 0 -o 1": [r"^Queue Offset:\s+1$", *MESSAGE],
    f"queryMsgByKey -t {TOPIC} -k k3": [
        r"^#Message ID +#QID +#Offset$",
        r"^[0-9A-F]{{32,}} +[01] +\d+$",
    ],
    f"printMsg -t {TOPIC} -d true": [
        rf"^minOffset=0, maxOffset=\d+, MessageQueue \[topic={TOPIC}, brokerName=broker-a, queueId=0\]$",
        rf"^MSGID: \S+ MessageExt \[brokerName=broker-a, queueId=\d, storeSize=\d+.*topic='{TOPIC}'.* BODY: m\d$",
    ],
    f"printMsgByQueue -t {TOPIC} -a broker-a -i 0 -p true -d true": [
        rf"^MSGID: \S+ MessageExt \[brokerName=broker-a, queueId=0, .*topic='{TOPIC}'.* BODY: m\d$",
    ],
    f"sendMessage -t {TOPIC} -p hello -k k3 -c A": [
        r"^#Broker Name +#QID +#Send Result +#MsgId$",
        r"^broker-a +[01] +SEND_OK +\S+$",
    ],
    f"checkMsgSendRT -t {TOPIC} -a 3 -s 10": [
        r"^#Broker Name +#QID +#Send Result +#RT$",
        r"^broker-a +[01] +true +\d+$",
        r"^Avg RT: \S+$",
    ],
    "brokerStatus -b {broker}": [
        r"^brokerVersionDesc +: V\d_\d+_\d+$",
        r"^brokerActive +: true$",
        r"^bootTimestamp +: \d{{13}}$",
        r"^runtime +: \[ \d+ days, \d+ hours, \d+ minutes, \d+ seconds \]$",
        r"^commitLogMaxOffset +: \d+$",
        r"^commitLogMinOffset +: \d+$",
        r"^commitLogDiskRatio +: \S+$",
        r"^consumeQueueDiskRatio +: \S+$",
        r"^commitLogDirCapacity +: Total : \S+ \S+, Free : \S+ \S+$",
        r"^msgPutTotalTodayNow +: \d+$",
        r"^msgGetTotalTodayNow +: \d+$",
        r"^putTps +: \S+",
        r"^getTransferredTps +: \S+",
        r"^putMessageTimesTotal +: \d+$",
        r"^putMessageSizeTotal +: \d+$",
        r"^dispatchBehindBytes +: 0$",
        r"^earliestMessageTimeStamp +: \d{{13}}$",
        r"^sendThreadPoolQueueSize +: 0$",
        r"^pullThreadPoolQueueSize +: 0$",
    ],
    "brokerStatus -c DefaultCluster": [rf"^{ADDRESS} +brokerVersionDesc +: V\d_\d+_\d+$"],
    "getBrokerConfig -b {broker}": [
        r"^=+{broker}=+$",
        r"^brokerName +=  broker-a$",
        r"^brokerClusterName +=  DefaultCluster$",
        r"^brokerId +=  0$",
        r"^autoCreateTopicEnable +=  true$",
        r"^maxMessageSize +=  4194304$",
    ],
    "updateBrokerConfig -b {broker} -k longPollingEnable -v true": [
        r"^update broker config success, {broker}$",
    ],
    "getNamesrvConfig": [r"^=+{namesrv}=+$", r"^listenPort +=  \d+$"],
    "statsAll": [
        r"^#Topic +#Consumer Group +#Accumulation +#InTPS +#OutTPS +#InMsg24Hour +#OutMsg24Hour$",
        rf"^{TOPIC} +{GROUP} +0 +{NUMBER} +{NUMBER} +\d+ +\d+$",
        rf"^TBW102 +0 +{NUMBER} +\d+ +NO_CONSUMER$",
    ],
    f"allocateMQ -t {TOPIC} -i 127.0.0.1,127.0.0.2": [
        r'^\{{"result":\{{"127\.0\.0\.\d":\[\{{"brokerName":"broker-a","queueId":\d,"topic":"' + TOPIC + '"',
    ],
    "wipeWritePerm -b broker-a": [
        r"^wipe write perm of broker\[broker-a\] in name server\[{namesrv}\] OK, [1-9]\d*$",
    ],
    "addWritePerm -b broker-a": [
        r"^add write perm of broker\[broker-a\] in name server\[{namesrv}\] OK, [1-9]\d*$",
    ],
    f"setConsumeMode -c DefaultCluster -t {TOPIC} -g mqadmin-pop -m POP -q 8": [
        rf"^set consume mode to {ADDRESS} success\.$",
        rf"^topic\[{TOPIC}\] group\[mqadmin-pop\] consume mode\[POP\] popShareQueueNum\[8\]$",
    ],
    "brokerConsumeStats -b {broker}": [
        r"^#Topic +#Group +#Broker Name +#QID +#Broker Offset +#Consumer Offset +#Diff +#LastTime$",
        rf"^{TOPIC} +{GROUP} +broker-a +0 +\d+ +\d+ +0 +{TIME}$",
        r"^Diff Total: \d+$",
    ],
    f"topicClusterList -t {TOPIC}": [r"^DefaultCluster$"],
    # last: a reset sets the group going again (the Java client drops its queues, waits 10 s, then starts over), and
    # what stands above expects a group at rest
    f"resetOffsetByTime -g {GROUP} -t {TOPIC} -s 0": [
        rf"^start reset consumer offset by specified, group\[{GROUP}\], topic\[{TOPIC}\], force\[true\], "
        r"timestamp\(string\)\[0\], timestamp\(long\)\[0\]$",
        r"^#brokerName +#queueId +#offset\s*$",
        r"^broker-a +0 +0\s*$",
        r"^broker-a +1 +0\s*$",
    ],
    f"skipAccumulatedMessage -g {GROUP} -t {TOPIC}": [
        r"^#brokerName +#queueId +#offset\s*$",
        r"^broker-a +0 +[1-9]\d*\s*$",
        r"^broker-a +1 +[1-9]\d*\s*$",
    ],
    f"cloneGroupOffset -s {GROUP} -d mqadmin-clone -t {TOPIC} -o true": [
        rf"^clone group offset success\. srcGroup\[{GROUP}\], destGroup=\[mqadmin-clone\], topic\[{TOPIC}\]$",
    ],
}

# What these show is of a group that has read all: a command before them sent messages or reset the group, and the Java
# client says only every 5 s how far it is.
OF_A_GROUP_AT_REST = ("consumerProgress -g", "statsAll", "brokerConsumeStats", "skipAccumulatedMessage")


def at_rest(progress: str) -> bool:
    """Both queues of the topic are read to their ends. The total alone is 0 also before their first offset is known."""
    read = re.findall(rf"^{TOPIC} +broker-a +\d +[1-9]\d* +[1-9]\d* +0 ", progress, re.MULTILINE)
    return len(read) == 2 and "Consume Diff Total: 0" in progress


@pytest.fixture(scope="module")
def prepared(server: Server, running: Running) -> Iterator[dict[str, Any]]:
    """A topic with ten consumed messages, a live producer and a live consumer."""
    session = peers.Session(running.get("java"), server.namesrv)

    def admin(*arguments: str) -> str:
        text: str = session.peer.call("admin", 60, args=[arguments[0], "-n", server.namesrv, *arguments[1:]])
        return text

    admin("updateTopic", "-c", "DefaultCluster", "-t", TOPIC, "-r", "2", "-w", "2")
    admin("updateSubGroup", "-c", "DefaultCluster", "-g", "mqadmin-clone")
    sent = session.producer(PRODUCER).send(
        *({"topic": TOPIC, "body": f"m{i}", "tags": "A", "keys": f"k{i}"} for i in range(10))
    )
    session.consumer(GROUP, TOPIC).wait(10)
    wait_until(lambda: at_rest(admin("consumerProgress", "-g", GROUP)), 30, "the group's offsets")
    client = re.search(CLIENT, admin("consumerConnection", "-g", GROUP))
    yield {
        "broker": server.broker,
        "namesrv": server.namesrv,
        "offset_id": sent[0]["offsetMsgId"],
        "unique_id": sent[0]["msgId"],
        "client": client.group() if client else "no client id in consumerConnection",
    }
    session.close_all()


def missing(output: str, patterns: list[str], values: dict[str, Any]) -> list[str]:
    escaped = {key: re.escape(value) for key, value in values.items()}
    wanted = [fill(pattern, escaped) for pattern in patterns]
    return [pattern for pattern in wanted if not re.search(pattern, output, re.MULTILINE)]


def fill(text: str, values: dict[str, Any]) -> str:
    for key, value in values.items():
        text = text.replace(f"{{{key}}}", value)
    return text.replace("{{", "{").replace("}}", "}")


@pytest.mark.parametrize("line", CASES, ids=lambda line: line.replace("mqadmin-", "").replace(" ", "_"))
def test_command(line: str, prepared: dict[str, Any], mqadmin: Callable[..., str]) -> None:
    if line.startswith(OF_A_GROUP_AT_REST):
        wait_until(
            lambda: at_rest(mqadmin("consumerProgress", "-g", GROUP)),
            30,
            "the group at rest",
        )
    command, *arguments = fill(line, prepared).split()
    output = mqadmin(command, *arguments)
    tracks = "\n".join(each for each in output.splitlines() if "MessageTrack" not in each)
    assert not TRACE.search(tracks), output
    assert not missing(output, CASES[line], prepared), output


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("topicRoute -t no-such-topic", 17),
        ("consumerProgress -g no-such-group", 17),
        (f"resetOffsetByTime -g no-such-group -t {TOPIC} -s 0", 26),
        (f"cloneGroupOffset -s {GROUP} -d no-such-group -t {TOPIC} -o true", 26),
    ],
)
def test_what_does_not_exist_is_refused_with_the_official_code(
    line: str, code: int, prepared: dict[str, Any], mqadmin: Callable[..., str]
) -> None:
    assert prepared["broker"]
    output = mqadmin(*line.split())
    assert f"CODE: {code} " in output, output


def test_consume_message(prepared: dict[str, Any]) -> None:
    """In a JVM of its own: the command keeps a static consumer that cannot start twice."""
    program = peers.java_program("Remoting", peers.server_class_path())
    peer = peers.Peer("mqadmin-consume", program)
    try:
        output = peer.call(
            "admin", args=["consumeMessage", "-n", prepared["namesrv"], "-t", TOPIC, "-c", "3"]
        )
    finally:
        peer.end()
    assert not TRACE.search(output), output
    assert re.search(r"^The older 3 message of the \d queue will be provided$", output, re.MULTILINE), output
    assert re.search(r"^Consume ok$", output, re.MULTILINE), output
    assert len(re.findall(r"^MSGID: \S+ MessageExt \[brokerName=broker-a", output, re.MULTILINE)) == 3, output
