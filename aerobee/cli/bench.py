# SPDX-License-Identifier: Apache-2.0
"""`aerobee bench`: the programs of RocketMQ's `example/benchmark`, with their options and their printed lines.

A Java thread is a task here: `-w 64` keeps 64 sends under way. `-q` ends a run; without it, Ctrl-C does.
"""

from __future__ import annotations

import asyncio
import random
import string
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from aerobee.cli import connect, output, profiles
from aerobee.cli.bench_figures import BatchFigures, ConsumeFigures, SendFigures, report_forever
from aerobee.cli.mqadmin.common import truth
from aerobee.errors import AerobeeError, BrokerError

if TYPE_CHECKING:
    from aerobee.client.admin import Admin
    from aerobee.client.consume.subscriptions import Expression
    from aerobee.client.message import Message, ReceivedMessage
    from aerobee.client.options import Options
    from aerobee.client.produce.producer import Producer

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    help="RocketMQ's own benchmark: same options, same printed lines. Example: aerobee bench send -w 64 -q 100000",
)

FAILED_MS = 3_000  # a task rests so long after a failure, as a Java thread does

Topic = Annotated[str, typer.Option("-t", "--topic", help="topic; it is created when it is new")]
Threads = Annotated[int, typer.Option("-w", "--threadCount", help="sends under way at once", min=1)]
Size = Annotated[int, typer.Option("-s", "--messageSize", help="bytes of a body", min=1)]
Keys = Annotated[str, typer.Option("-k", "--keyEnable", help="true: each message has a key")]
Properties = Annotated[int, typer.Option("-p", "--propertySize", help="bytes of properties", min=0)]
TagCount = Annotated[int, typer.Option("-l", "--tagCount", help="different tags, 0 = none", min=0)]
Trace = Annotated[str, typer.Option("-m", "--msgTraceEnable", help="true: write trace messages")]
Acl = Annotated[str, typer.Option("-a", "--aclEnable", help="true: sign requests")]
AccessKey = Annotated[str, typer.Option("-ak", "--accessKey", help="ACL access key")]
SecretKey = Annotated[str, typer.Option("-sk", "--secretKey", help="ACL secret key")]
Quantity = Annotated[
    int, typer.Option("-q", "--messageQuantity", help="messages in all, 0 = for ever", min=0)
]
Interval = Annotated[int, typer.Option("-ri", "--reportInterval", help="ms between lines", min=100)]
Workers = Annotated[int, typer.Option("-w", "--threadCount", help="handlers at once", min=1)]
GroupName = Annotated[str, typer.Option("-g", "--group", help="consumer group")]
Suffix = Annotated[
    str, typer.Option("-p", "--groupSuffixEnable", help="true: a number is added to the group")
]
FilterType = Annotated[str | None, typer.Option("-f", "--filterType", help="TAG or SQL92")]
ExpressionFile = Annotated[Path | None, typer.Option("-e", "--expression", help="file with the expression")]
FailRate = Annotated[
    float, typer.Option("-r", "--failRate", help="share of messages that fail", min=0, max=1)
]


@app.command()
def send(
    topic: Topic = "BenchmarkTest",
    threads: Threads = 64,
    size: Size = 128,
    keys: Keys = "false",
    properties: Properties = 0,
    tag_count: TagCount = 0,
    trace: Trace = "false",
    acl: Acl = "false",
    access_key: AccessKey = "rocketmq2",
    secret_key: SecretKey = "12345678",
    quantity: Quantity = 0,
    delay: Annotated[str, typer.Option("-d", "--delayEnable", help="true: delayed")] = "false",
    level: Annotated[int, typer.Option("-e", "--delayLevel", help="delay level", min=1, max=18)] = 1,
    asynchronous: Annotated[
        str, typer.Option("-y", "--asyncEnable", help="true: up to 10000 at once")
    ] = "false",
    interval: Interval = 10_000,
    namesrv: connect.Namesrv = None,
    json: output.Json = False,
) -> None:
    """Producer: single messages.

    aerobee bench send -t BenchmarkTest -w 64 -s 128 -q 100000
    """
    flags = {name: truth(text, flag) for name, text, flag in (
        ("key", keys, "-k"), ("trace", trace, "-m"), ("acl", acl, "-a"), ("delay", delay, "-d"),
        ("async", asynchronous, "-y"))}  # fmt: skip
    say = output.note if json else output.line
    say(
        f"topic: {topic}, threadCount: {threads}, messageSize: {size}, keyEnable: {keys}, propertySize: {properties}, "
        f"tagCount: {tag_count}, traceEnable: {trace}, aclEnable: {acl}, messageQuantity: {quantity}, "
        f"delayEnable: {delay}, delayLevel: {level}, asyncEnable: {asynchronous}"
    )
    figures = SendFigures()
    made = Made(topic, size, properties, tag_count, level if flags["delay"] else 0, keyed=flags["key"])
    settings = _options(trace=flags["trace"], account=(access_key, secret_key) if flags["acl"] else None)
    tasks = 10_000 if flags["async"] else threads
    work = _produce(
        connect.address_of(namesrv), settings, figures, interval, _send_some(made, figures, tasks, quantity)
    )
    connect.run(work)
    output.line(output.to_json(figures.row())) if json else output.line(figures.complete())


class Made:
    """Messages as the Java program makes them."""

    def __init__(
        self, topic: str, size: int, properties: int, tag_count: int, level: int = 0, *, keyed: bool
    ) -> None:
        self._topic = topic
        self._body = "".join(random.choices(string.ascii_letters + string.digits, k=size)).encode()
        self._properties = _properties(properties)
        self._tag_count = tag_count
        self._level = level
        self._keyed = keyed

    def one(self, now: int) -> Message:
        from aerobee.client.message import Message

        return Message(
            self._topic,
            self._body,
            tags=f"tag{now % self._tag_count}" if self._tag_count else None,
            keys=(str(now // 1000),) if self._keyed else (),
            properties=self._properties,
            delay_level=self._level,
        )


def _properties(size: int) -> dict[str, str] | None:
    made: dict[str, str] = {}
    number = 0
    while sum(len(name) + len(value) for name, value in made.items()) < size:
        made[f"prop{number}"] = f"hello{number}"
        number += 1
    return made or None


def _options(*, trace: bool, account: tuple[str, str] | None) -> Options:
    from aerobee.client.options import Options

    given = {} if account is None else {"access_key": account[0], "secret_key": account[1]}
    made: Options = profiles.options(Options, trace=trace, compress_over_bytes=1 << 30, **given)
    return made


class Share:
    """How many are left to do, for all tasks together."""

    def __init__(self, quantity: int) -> None:
        self._left = quantity or None

    def take(self, wanted: int = 1) -> int:
        if self._left is None:
            return wanted
        taken = min(wanted, self._left)
        self._left -= taken
        return taken


def _send_some(made: Made, figures: SendFigures, tasks: int, quantity: int) -> Any:
    share = Share(quantity)

    async def one(producer: Producer) -> None:
        while share.take():
            began = connect.clock.now()
            try:
                await producer.send(made.one(began))
            except BrokerError:
                figures.response_failed += 1
                await connect.clock.sleep(FAILED_MS)
            except AerobeeError:
                figures.send_failed += 1
                await connect.clock.sleep(FAILED_MS)
            else:
                figures.sent(connect.clock.now() - began)

    return lambda producer: [one(producer) for _ in range(min(tasks, quantity or tasks))]


async def _produce(
    address: str, options: Options, figures: SendFigures | BatchFigures, interval_ms: int, tasks: Any
) -> None:
    from aerobee.client.produce.producer import Producer

    async with connect.connected(address) as admin:
        await admin.cluster()  # a wrong address fails here, and says what to do
        async with Producer(address, group=figures.group, options=options) as producer:
            reporting = asyncio.ensure_future(report_forever(figures, interval_ms))
            try:
                async with asyncio.TaskGroup() as group:
                    for work in tasks(producer):
                        group.create_task(work)
            except ExceptionGroup as failures:
                # Not except*: Python 3.11.2 wraps what that raises in a group again
                raise failures.exceptions[0] from None
            finally:
                reporting.cancel()
                figures.snap(connect.clock.now())


@app.command()
def batch(
    topic: Topic = "BenchmarkTest",
    threads: Threads = 64,
    size: Size = 128,
    number: Annotated[int, typer.Option("-b", "--batchSize", help="messages in a request", min=1)] = 16,
    keys: Keys = "false",
    properties: Properties = 0,
    tag_count: TagCount = 0,
    trace: Trace = "false",
    acl: Acl = "false",
    access_key: AccessKey = "rocketmq2",
    secret_key: SecretKey = "12345678",
    quantity: Quantity = 0,
    interval: Interval = 10_000,
    namesrv: connect.Namesrv = None,
    json: output.Json = False,
) -> None:
    """BatchProducer: many messages in a request.

    aerobee bench batch -b 32 -q 100000
    """
    say = output.note if json else output.line
    say(
        f"topic: {topic}, threadCount: {threads}, messageSize: {size}, batchSize: {number}, keyEnable: {keys}, "
        f"propertySize: {properties}, tagCount: {tag_count}, traceEnable: {trace}, aclEnable: {acl}"
    )
    figures = BatchFigures()
    made = Made(topic, size, properties, tag_count, keyed=truth(keys, "-k"))
    account = (access_key, secret_key) if truth(acl, "-a") else None
    settings = _options(trace=truth(trace, "-m"), account=account)
    tasks = _batch_some(made, figures, threads, number, quantity)
    connect.run(_produce(connect.address_of(namesrv), settings, figures, interval, tasks))
    output.line(output.to_json(figures.row())) if json else output.line(figures.complete())


def _batch_some(made: Made, figures: BatchFigures, tasks: int, number: int, quantity: int) -> Any:
    share = Share(quantity)

    async def one(producer: Producer) -> None:
        while count := share.take(number):
            began = connect.clock.now()
            messages = [made.one(began) for _ in range(count)]
            try:
                await producer.send_batch(messages)
            except AerobeeError:
                figures.failed(count)
                await connect.clock.sleep(FAILED_MS)
            else:
                figures.sent(count, connect.clock.now() - began)

    return lambda producer: [one(producer) for _ in range(tasks)]


# -- consumers ---------------------------------------------------------------------------------------------


@app.command()
def pull(
    topic: Topic = "BenchmarkTest",
    workers: Workers = 20,
    group: GroupName = "benchmark_consumer",
    suffix: Suffix = "false",
    filter_type: FilterType = None,
    expression: ExpressionFile = None,
    fail_rate: FailRate = 0.0,
    quantity: Quantity = 0,
    interval: Interval = 10_000,
    namesrv: connect.Namesrv = None,
    json: output.Json = False,
) -> None:
    """Consumer: a push consumer that pulls.

    aerobee bench pull -g benchmark_consumer -q 100000
    """
    wanted = Consuming(topic, _group(group, suffix), workers, fail_rate, quantity, "client")
    wanted.expression = _expression(filter_type, expression)
    _consume(wanted, (filter_type, expression, suffix), interval, connect.address_of(namesrv), json=json)


@app.command()
def pop(
    topic: Topic = "BenchmarkTest",
    workers: Workers = 20,
    group: GroupName = "benchmark_pop_consumer",
    suffix: Suffix = "false",
    filter_type: FilterType = None,
    expression: ExpressionFile = None,
    fail_rate: FailRate = 0.0,
    quantity: Quantity = 0,
    interval: Interval = 10_000,
    namesrv: connect.Namesrv = None,
    json: output.Json = False,
) -> None:
    """Consumer in POP mode, acks included; the group is switched to POP first.

    aerobee bench pop -g benchmark_pop_consumer -q 100000
    """
    wanted = Consuming(topic, _group(group, suffix), workers, fail_rate, quantity, "auto")
    wanted.expression = _expression(filter_type, expression)
    _consume(wanted, (filter_type, expression, suffix), interval, connect.address_of(namesrv), json=json)


class Consuming:
    """What a consumer's run is about, and the run's handler."""

    def __init__(
        self, topic: str, group: str, workers: int, fail_rate: float, quantity: int, rebalance: str
    ) -> None:
        self.topic, self.group, self.workers, self.rebalance = topic, group, workers, rebalance
        self.expression: Expression = "*"
        self.figures = ConsumeFigures()
        self.enough = asyncio.Event()
        self._fail_rate = fail_rate
        self._share = Share(quantity)
        self._quantity = quantity

    async def handle(self, message: ReceivedMessage) -> bool | None:
        if not self._share.take():
            await asyncio.Event().wait()  # beyond the quantity: not ours to finish
        now = connect.clock.now()
        self.figures.received(now - message.born_timestamp, now - message.store_timestamp)
        if self._quantity and self.figures.count >= self._quantity:
            self.enough.set()
        if self._fail_rate and random.random() < self._fail_rate:
            self.figures.fail_count += 1
            return False
        return None


def _group(group: str, suffix: str) -> str:
    return f"{group}_{connect.clock.now() % 100}" if truth(suffix, "-p") else group


def _expression(kind: str | None, file: Path | None) -> Expression:
    if kind is None or file is None:
        return "*"
    text = file.read_text().strip()
    if kind == "TAG":
        return text
    if kind != "SQL92":
        raise typer.BadParameter(f"-f {kind!r}: it is TAG or SQL92")
    from aerobee.client.consume.subscriptions import Sql

    return Sql(text)


def _consume(
    wanted: Consuming,
    told: tuple[str | None, Path | None, str],
    interval_ms: int,
    address: str,
    *,
    json: bool,
) -> None:
    say = output.note if json else output.line
    say(
        f"topic: {wanted.topic}, threadCount: {wanted.workers}, group: {wanted.group}, suffix: {told[2]}, "
        f"filterType: {told[0] or 'null'}, expression: {told[1] or 'null'}, msgTraceEnable: false, aclEnable: false"
    )
    connect.run(_consuming(wanted, interval_ms, address))
    figures = wanted.figures
    output.line(output.to_json(figures.row())) if json else output.line(figures.complete())


async def _consuming(wanted: Consuming, interval_ms: int, address: str) -> None:
    from aerobee.client.consume.push_consumer import PushConsumer
    from aerobee.client.options import Options

    async with connect.connected(address) as admin:
        await connect.existing_topic(admin, wanted.topic)
        if wanted.rebalance == "auto":
            await _to_pop(admin, wanted)
        options = profiles.options(
            Options, concurrency=wanted.workers, rebalance=wanted.rebalance, stop_wait_ms=200
        )
        async with PushConsumer(
            address,
            group=wanted.group,
            topics={wanted.topic: wanted.expression},
            handler=wanted.handle,
            start="first",
            options=options,
        ):
            reporting = asyncio.ensure_future(report_forever(wanted.figures, interval_ms))
            try:
                await wanted.enough.wait()
            finally:
                reporting.cancel()
                wanted.figures.snap(connect.clock.now())


async def _to_pop(admin: Admin, wanted: Consuming) -> None:
    if wanted.group not in await admin.groups():
        await admin.create_group(wanted.group)
    await admin.set_consume_mode(wanted.topic, wanted.group, "POP")
