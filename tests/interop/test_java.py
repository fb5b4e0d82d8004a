# SPDX-License-Identifier: Apache-2.0
"""Java DefaultMQProducer, DefaultMQPushConsumer, DefaultLitePullConsumer, TransactionMQProducer."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from peers import Session


def test_send_and_push(java: Session, topic: str, group: str) -> None:
    consumer = java.consumer(group, topic)
    producer = java.producer()
    sent = producer.send({"topic": topic, "body": "one", "tags": "A", "keys": "k1"})
    rows = consumer.wait(1)
    assert sent[0]["status"] == "SEND_OK"
    assert rows[0]["body"] == "one"
    assert rows[0]["msgId"] == sent[0]["msgId"]
