# SPDX-License-Identifier: Apache-2.0
"""mqadmin's commands that send messages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from aerobee.cli import connect, output
from aerobee.cli.messages import queues_of
from aerobee.cli.mqadmin import common
from aerobee.errors import AerobeeError

if TYPE_CHECKING:
    from aerobee.client.admin import Admin

GROUP = "aerobee-admin"


def send_message(
    topic: common.Topic,
    body: Annotated[str, typer.Option("-p", "--body", help="the message")],
    key: Annotated[str | None, typer.Option("-k", "--key", help="keys, blanks between them")] = None,
    tags: Annotated[str | None, typer.Option("-c", "--tags", help="tag")] = None,
    broker: Annotated[str | None, typer.Option("-b", "--broker", help="broker name")] = None,
    queue: Annotated[int | None, typer.Option("-i", "--qid", help="queue id", min=0)] = None,
    namesrv: connect.Namesrv = None,
) -> None:
    """Send one message.

    aerobee admin sendMessage -t orders -p hello -k o-7 -c paid
    """
    if queue is not None and broker is None:
        raise typer.BadParameter("-i needs -b: queue ids are a broker's")

    async def work(admin: Admin) -> None:
        from aerobee.client.message import Message
        from aerobee.client.produce.producer import Producer

        message = Message(topic, body.encode(), tags=tags, keys=(key or "").split())
        await admin.cluster()
        place = (await queues_of(admin, topic, broker, queue))[0] if broker else None
        async with Producer(admin.session, group=GROUP) as producer:
            sent = await producer.send(message, queue=place)
        common.row(("#Broker Name", 32), ("#QID", 4), ("#Send Result", 20), ("#MsgId", 0))
        common.row((sent.queue.broker_name, 32), (sent.queue.queue_id, 4), (sent.status.value, 20),
                   (sent.message_id, 0))  # fmt: skip

    common.ask(namesrv, work)


def check_send_rt(
    topic: common.Topic,
    amount: Annotated[int, typer.Option("-a", "--amount", help="messages", min=1)] = 100,
    size: Annotated[int, typer.Option("-s", "--size", help="bytes each", min=1)] = 128,
    namesrv: connect.Namesrv = None,
) -> None:
    """How long sends take, queue after queue.

    aerobee admin checkMsgSendRT -t orders -a 100 -s 128
    """

    async def work(admin: Admin) -> None:
        from aerobee.client.message import Message
        from aerobee.client.produce.producer import Producer

        queues = await queues_of(admin, topic, None, None)
        common.row(("#Broker Name", 32), ("#QID", 4), ("#Send Result", 20), ("#RT", 0))
        total_ms = 0
        async with Producer(admin.session, group=GROUP) as producer:
            for number in range(amount):
                queue, began, ok = queues[number % len(queues)], connect.clock.now(), True
                try:
                    await producer.send(Message(topic, b"a" * size), queue=queue)
                except AerobeeError:
                    ok = False
                took_ms = connect.clock.now() - began
                total_ms += took_ms if number else 0  # the first one connects
                common.row((queue.broker_name, 32), (queue.queue_id, 4), (common.java(ok), 20), (took_ms, 0))
        output.line(f"Avg RT: {total_ms / max(1, amount - 1):.2f}")

    common.ask(namesrv, work)


COMMANDS: common.Command = {"sendMessage": send_message, "checkMsgSendRT": check_send_rt}
