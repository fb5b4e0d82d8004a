# SPDX-License-Identifier: Apache-2.0
"""A user's program with the blocking client, for type checkers: it is checked, not run. No expression may be Any."""

from __future__ import annotations

import aerobee.blocking as aerobee
from aerobee.testing import TestServer, wait_until
from aerobee.testing.apache import ApacheServer


def handle(message: aerobee.ReceivedMessage) -> None:
    print(message.body.decode(), message.keys, message.attempt)


def main(namesrv: str) -> None:
    with aerobee.Producer(namesrv, group="shop", options=aerobee.ProducerOptions(send_retries=5)) as producer:
        sent = producer.send(aerobee.Message("orders", b"{}", tags="paid", delay_level=3))
        print(sent.message_id, sent.status is aerobee.SendStatus.OK, sent.queue.queue_id)
        print(len(producer.send_batch([aerobee.Message("orders", b"x")])))
        producer.send_oneway(aerobee.Message("orders", b"x"))
        print(producer.request(aerobee.Message("orders", b"x")).body, producer.recall("orders", "handle"))
    topics = {"orders": "*"}
    with aerobee.PushConsumer(namesrv, group="billing", topics=topics, handler=handle, start="first") as push:
        push.pause()
        push.resume()
    with aerobee.PullConsumer(namesrv, group="audit", topics=topics) as pull:
        for message in pull.poll(timeout_ms=1_000):
            handle(message)
        for message in pull:
            pull.commit({message.queue: message.queue_offset + 1})
        with pull.messages() as messages:
            for message in messages:
                handle(message)
    with aerobee.SimpleConsumer(namesrv, group="shipping", topics=topics) as simple:
        for leased in simple.receive(max_messages=8):
            print(leased.body)
            leased.ack()
        with simple.messages(invisible_ms=5_000) as several:
            for leased in several:
                leased.nack(1_000, "no stock")
                leased.extend(1_000)
    with aerobee.Admin(namesrv) as admin:
        print(admin.lag("billing").ready, admin.topics()[0])
        for letter in admin.dead_letters("billing"):
            handle(letter)


async def testing() -> None:
    with TestServer() as server:
        main(server.namesrv)
        wait_until(lambda: server.lag("billing").ready == 0)
        print(server.messages_of("orders")[0].body, server.blocking.wait_for_dead_letter("billing").body)
        print((await server.wait_for_dead_letter("billing")).keys)
    with ApacheServer() as apache:
        main(apache.namesrv)
