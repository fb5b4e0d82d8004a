# SPDX-License-Identifier: Apache-2.0
"""Record tests/golden: real clients on the real RocketMQ, with a recorder between.

Run by hand when a client or the recorder changes: `.venv/bin/python tests/interop/golden.py`.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).parent))

import peers
import record
from servers import REPO, RocketMQ, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

GOLDEN = REPO / "tests/golden"


class Tapped:
    """The recorders of one client."""

    def __init__(self, server: RocketMQ) -> None:
        self.broker = record.Recorder(server.broker)
        self.namesrv = record.Recorder(server.namesrv, (server.broker, self.broker.address))

    def frames(self) -> list[record.Frame]:
        return [*self.namesrv.frames, *self.broker.frames]

    def close(self) -> None:
        self.namesrv.close()
        self.broker.close()


def basics(session: peers.Session, client: str) -> None:
    """What all of them can: send, consume, filter, fail once, delay."""
    topic, group = f"golden-{client}", f"golden-{client}-group"
    producer = session.producer(f"golden-{client}-producer")
    producer.send(
        {"topic": topic, "body": "plain"},
        {"topic": topic, "body": "tagged", "tags": "A", "keys": "k1 k2"},
        {"topic": topic, "body": "delayed", "delayLevel": 1, "properties": {"colour": "red"}},
    )
    consumer = session.consumer(group, topic, "*", failTimes=1, delayLevel=1)
    consumer.wait(6, 90)
    if client != "cpp":  # it starts a new broadcast group at the end
        session.consumer(f"{group}-all", topic, kind="broadcast").wait(3)


def java_more(session: peers.Session, client: str) -> None:
    topic = f"golden-{client}"
    producer = session.producer("golden-producer", compressOver=100)
    batch = [{"topic": topic, "body": f"batch{i}", "keys": f"b{i}"} for i in range(3)]
    producer.send(*batch, mode="batch")
    producer.send({"topic": topic, "body": "one way"}, mode="oneway")
    producer.send({"topic": topic, "body": "asynchronous"}, mode="async")
    producer.send({"topic": topic, "size": 600}, {"topic": topic, "body": "timed", "delayMs": 1000})
    transactional = session.producer(f"golden-{client}-tx", check="commit")
    transactional.send(
        *({"topic": topic, "body": f"tx {word}", "local": word} for word in ("commit", "rollback", "unknown"))
    )
    session.consumer(f"golden-{client}-orderly", topic, kind="orderly").wait(9, 60)
    session.consumer(f"golden-{client}-lite", topic, kind="lite").wait(9, 60)
    session.consumer(f"golden-{client}-sql", topic, "colour = 'red'", type="SQL92").wait(1, 60)
    session.pull(f"golden-{client}-pull", topic)


def java_rpc(session: peers.Session, client: str) -> None:
    topic = f"golden-{client}-rpc"
    producer = session.producer("golden-rpc")
    producer.send({"topic": topic, "body": "make the topic"})
    session.consumer("golden-rpc-server", topic, reply=True, producer=producer.name).wait(1)
    wait_until(
        lambda: session.peer.call(
            "request", producer=producer.name, message={"topic": topic, "body": "ask"}, timeoutMs=8000
        ),
        20,
        "a reply",
    )


def java_pop(session: peers.Session, client: str) -> None:
    """Pop, change invisible time on failure, pop again, ack."""
    topic, group = f"golden-{client}-pop", f"golden-{client}-popper"
    session.producer("golden-pop-producer").send(*({"topic": topic, "body": f"pop {i}"} for i in range(2)))
    mode = f"setConsumeMode -n {session.address} -c DefaultCluster -t {topic} -g {group} -m POP -q 8"
    session.peer.call("admin", args=mode.split())
    consumer = session.consumer(group, topic, kind="pop", failTimes=1)
    consumer.wait(4, 90)
    consumer.close()  # its acks are on the wire then


def mqadmin(session: peers.Session, _client: str) -> None:
    topic = "golden-java"
    sent = session.producer("golden-mqadmin").send({"topic": topic, "body": "looked for", "keys": "k9"})
    commands = [
        "clusterList",
        "topicList",
        "topicList -c",
        f"topicRoute -t {topic}",
        f"topicStatus -t {topic}",
        "updateTopic -c DefaultCluster -t golden-new -r 2 -w 2",
        "updateTopicPerm -c DefaultCluster -t golden-new -p 4",
        "updateSubGroup -c DefaultCluster -g golden-new-group -r 3",
        "consumerProgress",
        "consumerProgress -g golden-java-group",
        "consumerStatus -g golden-java-group",
        "consumerConnection -g golden-java-group",
        "producerConnection -g golden-java-producer -t golden-java",
        f"resetOffsetByTime -g golden-java-group -t {topic} -s -1",
        f"skipAccumulatedMessage -g golden-java-group -t {topic}",
        f"cloneGroupOffset -s golden-java-group -d golden-clone -t {topic} -o true",
        f"queryMsgByKey -t {topic} -k k1",
        f"queryMsgByOffset -t {topic} -b broker-a -i 0 -o 0",
        f"printMsg -t {topic}",
        f"printMsg -t {topic} -b 2020-01-01#00:00:00:000",
        f"queryMsgById -t {topic} -i {sent[0]['offsetMsgId']}",
        f"printMsgByQueue -t {topic} -a broker-a -i 0 -p true",
        f"sendMessage -t {topic} -p hello",
        f"consumeMessage -t {topic}",
        "brokerStatus -c DefaultCluster",
        "getBrokerConfig -c DefaultCluster",
        "updateBrokerConfig -c DefaultCluster -k waitTimeMillsInSendQueue -v 1000",
        "getNamesrvConfig",
        "statsAll",
        f"allocateMQ -t {topic} -i 127.0.0.1,127.0.0.2",
        f"checkMsgSendRT -t {topic} -a 3 -s 10",
        "wipeWritePerm -b broker-a",
        "addWritePerm -b broker-a",
        "updateKvConfig -s ns -k key -v value",
        "deleteKvConfig -s ns -k key",
        "deleteSubGroup -c DefaultCluster -g golden-new-group",
        "deleteTopic -c DefaultCluster -t golden-new",
    ]
    for line in commands:
        command, *arguments = line.split()
        session.peer.call("admin", 90, args=[command, "-n", session.address, *arguments])


def java(*flags: str) -> list[str]:
    program, *rest = peers.java_program("Remoting", peers.server_class_path())
    return [program, *flags, *rest]


CLIENTS: dict[str, tuple[Callable[[], list[str]], list[Callable[[peers.Session, str], None]]]] = {
    "java": (java, [basics, java_more, java_rpc, java_pop]),
    "java-binary": (lambda: java("-Drocketmq.serialize.type=ROCKETMQ"), [basics, java_more]),
    "mqadmin": (java, [mqadmin]),
    "go": (lambda: peers.go_program("remoting"), [basics]),
    "ons": (lambda: peers.node_program("ons.js"), [basics]),
    "cpp": (
        lambda: peers.python_program("cpp_peer.py", peers.CPP_PACKAGE, "cpp"),
        [basics],
    ),
}


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="golden-") as scratch:
        server = RocketMQ(Path(scratch) / "data", peers.server_class_path())
        registration = record.Recorder(server.namesrv)
        server.broker_namesrv = registration.address
        index: list[dict[str, object]] = []
        held: list[peers.Peer] = []
        try:
            server.start()
            for client, (command, parts) in CLIENTS.items():
                tapped = Tapped(server)
                peer = peers.Peer(f"golden-{client}", command())
                session = peers.Session(peer, tapped.namesrv.address)
                if held:  # ali-ons cannot create its topic
                    create = [
                        "updateTopic",
                        "-n",
                        server.namesrv,
                        "-b",
                        server.broker,
                        "-t",
                        f"golden-{client}",
                    ]
                    held[0].call("admin", args=create)
                try:
                    for part in parts:
                        part(session, client)
                    if client == "java":
                        held.append(peer)  # mqadmin asks about connected clients
                    else:
                        session.close_all(wait=True)
                    index += record.save(client, tapped.frames(), GOLDEN)
                finally:
                    if peer not in held:
                        peer.end()
                        tapped.close()
            index += record.save("broker", registration.frames, GOLDEN)
        finally:
            for peer in held:
                peer.end()
            server.discard()
            registration.close()
        (GOLDEN / "index.json").write_text(json.dumps(index, indent=1) + "\n")


if __name__ == "__main__":
    main()
