# SPDX-License-Identifier: Apache-2.0
"""`aerobee pipeline consume|lake|ledger|report|replay`: the Spark pipelines from the command line."""

from __future__ import annotations

import atexit
import importlib
import logging
import os
import signal
import sys
import traceback
from pathlib import Path
from subprocess import Popen
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from aerobee.cli import connect, profiles, times
from aerobee.cli.pairs import pairs_of
from aerobee.cli.pipeline_output import Bar, Batches, Reasons, console, print_rows, say, show, watch
from aerobee.errors import AerobeeError

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession

    from aerobee.spark.pipelines.consume import Handled


class _Explaining(TyperGroup):
    """Spark's errors are pages of two languages; a command ends with the sentence that matters."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as error:
            _end_jvm(error)
            say("interrupted")
            raise
        except Exception as error:
            from aerobee.spark.options import OptionError
            from aerobee.spark.reasons import is_of_spark, reason

            if isinstance(error, OptionError):
                raise AerobeeError(str(error)) from None
            if not is_of_spark(error):
                raise
            raise AerobeeError(reason(error)) from error


app = typer.Typer(
    cls=_Explaining,
    add_completion=False,
    no_args_is_help=True,
    help="Spark jobs over topics: local by default, on a cluster by --master.",
)

Store = Annotated[str | None, typer.Option("--store", help="read a store directory instead of brokers")]
Master = Annotated[
    str | None,
    typer.Option("--master", help="Spark master URL [local[*,4]], or sc://host:port of a Connect server"),
]
Conf = Annotated[
    list[str] | None, typer.Option("--conf", help="Spark setting, as name=value; repeatable (spark-submit's)")
]
PyFiles = Annotated[
    list[str] | None,
    typer.Option(
        "--py-files", help="modules or zips for the executors, ',' between them; aerobee goes by itself"
    ),
]
Once = Annotated[bool, typer.Option("--once", help="stop when all that is there now is done")]
Every = Annotated[
    str | None,
    typer.Option(
        "--every",
        help="make a batch this often, as 500ms, 10s or 1m [lake: 10s, consume: at once]; not with --once",
    ),
]
Checkpoint = Annotated[
    str | None,
    typer.Option(
        "--checkpoint",
        help="checkpoint directory of the stream [lake: in the lake, consume: aerobee-checkpoints/consume-GROUP]",
    ),
]
Opt = Annotated[
    list[str] | None, typer.Option("--option", "-o", help="data source option, as name=value; repeatable")
]
Json = Annotated[bool, typer.Option("--json", help="machine-readable output")]


@app.command()
def lake(
    topics: Annotated[str, typer.Argument(help="topics, ',' between them, or a pattern such as 'order*'")],
    out: Annotated[str, typer.Argument(help="directory of the lake")],
    namesrv: connect.Namesrv = None,
    store: Store = None,
    json_bodies: Annotated[
        bool, typer.Option("--json-bodies", help="JSON bodies become columns, one for each key that comes")
    ] = False,
    schema: Annotated[
        str | None,
        typer.Option(
            "--schema",
            help="columns of JSON bodies, as DDL: 'id INT, name STRING' (with --json-bodies other keys, too)",
        ),
    ] = None,
    evolve: Annotated[
        bool | None,
        typer.Option(
            "--evolve/--no-evolve", help="new keys become columns of the table, else go to _rescued [evolve]"
        ),
    ] = None,
    once: Once = False,
    every: Every = None,
    format: Annotated[
        str | None,
        typer.Option(
            "--format",
            help="parquet, delta or iceberg (aerobee[delta], aerobee[iceberg]) [the lake's; parquet]",
        ),
    ] = None,
    compact: Annotated[
        bool, typer.Option("--compact", help="join small files afterwards (with --once)")
    ] = False,
    master: Master = None,
    conf: Conf = None,
    py_files: PyFiles = None,
    checkpoint: Checkpoint = None,
    option: Opt = None,
) -> None:
    """Copy topics into a table by topic and day, exactly once.

    A lake remembers its --format, --schema, --json-bodies and --no-evolve: they need not be said again.

    Example: aerobee pipeline lake orders ./lake --json-bodies --once
    """
    from aerobee.spark.pipelines import lake as pipeline
    from aerobee.spark.pipelines.tables import found_table

    often = _trigger(every, "10 seconds", once=once)
    spark = _session("lake", master, conf, py_files)
    settings = _source(namesrv, store, option)
    batches = Batches()
    query = pipeline.lake(
        spark, topics, out, checkpoint=checkpoint, schema=schema, json=json_bodies, evolve=evolve, once=once,
        format=format, options=settings, every=often, told=batches.take, said=say,
    )  # fmt: skip
    watch(query, "lake", batches)
    if compact and once:
        gone = found_table(spark, out).compact()
        say(f"compacted away {gone:,} small files")
    say(f"{batches.rows:,} messages into {out}")
    if bad := batches.total("bad"):
        say(f"{bad:,} of them {'is' if bad == 1 else 'are'} no JSON object, see badBody")
    if rescued := batches.total("rescued"):
        have = "has" if rescued == 1 else "have"
        say(f"{rescued:,} of them {have} keys or values without a fitting column: these are in _rescued")
    if made := batches.names("made"):
        say(f"columns in data: {', '.join(made)}")
    if grown := batches.names("grown"):
        say(f"new or wider columns: {', '.join(grown)}")


@app.command()
def ledger(
    topics: Annotated[str, typer.Argument(help="topics, ',' between them")],
    group: Annotated[
        list[str] | None, typer.Option("--group", "-g", help="groups [all with offsets]")
    ] = None,
    namesrv: connect.Namesrv = None,
    store: Store = None,
    out: Annotated[
        str | None, typer.Option("--out", help="write the ledger as Parquet to this directory")
    ] = None,
    message: Annotated[
        str | None, typer.Option("--message", help="show what happened to this message id")
    ] = None,
    key: Annotated[
        str | None, typer.Option("--key", help="show what happened to messages with this key")
    ] = None,
    master: Master = None,
    conf: Conf = None,
    py_files: PyFiles = None,
    option: Opt = None,
    json: Json = False,
) -> None:
    """What became of every message: one row per message and group.

    Exit code 1 when a message is lost, or none has the --key or --message.

    Example: aerobee pipeline ledger orders -g billing
    """
    from aerobee.spark.pipelines import totals
    from aerobee.spark.pipelines.ledger import of_key, summary

    source = _source(namesrv, store, option)
    spark = _session("ledger", master, conf, py_files)
    names, groups = _looked_at(topics, group, source, spark)
    book = _book(names, groups, source, spark)
    if out:
        book.write.mode("overwrite").parquet(out)
        book = book.sparkSession.read.parquet(out)
    if message or key:
        if message:
            book = book.where((book["msgId"] == message) | (book["replayOf"] == message))
        if key:
            book = of_key(book, key)
        if not show(book, as_json=json):
            wanted = [f"{name} {value!r}" for name, value in (("id", message), ("key", key)) if value]
            say(
                f"no message with {' and '.join(wanted)} in {', '.join(names)} (groups: {', '.join(groups)});"
                " it is compared whole, and only what is still stored is found"
            )
            raise typer.Exit(1)
        return
    if not out:
        book = book.persist()
    rows = [row.asDict() for row in summary(book).collect()]
    messages = totals.per_message(book)
    print_rows(rows, "Ledger", as_json=json)
    for line in [totals.told(messages, rows), *totals.missing(rows)]:
        say(line)
    if messages["lost"]:
        raise typer.Exit(1)


@app.command()
def report(
    topics: Annotated[str, typer.Argument(help="topics, ',' between them")],
    out: Annotated[Path, typer.Argument(help="HTML file to write")] = Path("aerobee-report.html"),
    group: Annotated[
        list[str] | None, typer.Option("--group", "-g", help="groups [all with offsets]")
    ] = None,
    namesrv: connect.Namesrv = None,
    store: Store = None,
    master: Master = None,
    conf: Conf = None,
    py_files: PyFiles = None,
    option: Opt = None,
    json: Json = False,
) -> None:
    """Throughput, latency, lag, retries, dead letters, skew: one HTML page and the same numbers here.

    Example: aerobee pipeline report orders orders.html -g billing
    """
    from aerobee.spark.pipelines import totals
    from aerobee.spark.pipelines.report import report as pipeline

    source = _source(namesrv, store, option)
    spark = _session("report", master, conf, py_files)
    book = _book(*_looked_at(topics, group, source, spark), source, spark)
    figures = pipeline(book, out, title=f"Aerobee: {topics}")
    print_rows(figures.groups, "Groups", as_json=json)
    for line in [totals.told(figures.messages, figures.groups), *figures.missing, f"report: {out.resolve()}"]:
        say(line)


@app.command()
def replay(
    topic: Annotated[
        str, typer.Argument(help="where to take messages from: a topic, '%DLQ%group', or a lake directory")
    ],
    name: Annotated[
        str, typer.Option("--name", help="name of this replay; the same name never sends a message twice")
    ],
    namesrv: connect.Namesrv = None,
    target: Annotated[
        str | None, typer.Option("--target", help="topic to send to [each message's original topic]")
    ] = None,
    where: Annotated[
        str | None, typer.Option("--where", help="Spark SQL condition on the rows, e.g. \"tags = 'paid'\"")
    ] = None,
    since: Annotated[
        str | None, typer.Option("--since", help=f"only messages stored from then on: {times.EXAMPLES}")
    ] = None,
    until: Annotated[
        str | None, typer.Option("--until", help="only messages stored before; written as --since")
    ] = None,
    rate: Annotated[int, typer.Option("--rate", help="messages a second, 0 = no limit")] = 0,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="count, send nothing")] = False,
    audit: Annotated[str, typer.Option("--audit", help="directory of the audit tables")] = "aerobee-replays",
    master: Master = None,
    conf: Conf = None,
    py_files: PyFiles = None,
    option: Opt = None,
) -> None:
    """Publish chosen messages again, once, at a given rate.

    Example: aerobee pipeline replay '%DLQ%billing' --name fix-42 --dry-run

    Example: aerobee pipeline replay orders --since -2h --until -1h --target orders-again --name hour-1
    """
    from aerobee.spark.options import connection
    from aerobee.spark.pipelines.replay import replay as pipeline

    now = connect.clock.wall()
    begin, end = (None if text is None else times.parse_time(text, now) for text in (since, until))
    _check_place(topic)
    spark = _session("replay", master, conf, py_files)
    source = _source(namesrv, None, option)
    rows = _replay_rows(spark, topic, source)
    for condition in (
        where,
        begin is not None and f"storeTimestamp >= timestamp_millis({begin})",
        end is not None and f"storeTimestamp < timestamp_millis({end})",
    ):
        if condition:
            rows = rows.where(condition)
    with Bar("replay") as advance:
        outcome = pipeline(
            rows,
            name=name,
            namesrv=source["namesrv"],
            audit=audit,
            target=target,
            rate=rate,
            dry_run=dry_run,
            progress=advance,
            options=connection(source),
        )
    said = "would send" if dry_run else "sent"
    count = outcome.chosen - outcome.already if dry_run else outcome.sent
    written = not dry_run and (Path(audit) / name).exists()
    where = f" (audit: {audit}/{name})" if written else ""
    say(f"{outcome.chosen:,} chosen, {outcome.already:,} sent before, {said} {count:,}{where}")
    if outcome.targets:
        say(f"to {', '.join(f'{topic} ({share:,})' for topic, share in outcome.targets)}")
    if outcome.new_topics and count:
        made = "would be made" if dry_run else "was made"
        say(f"{', '.join(outcome.new_topics)}: not there before, {made} by the first message")


@app.command()
def consume(
    topics: Annotated[str, typer.Argument(help="topics, ',' between them")],
    handler: Annotated[
        str, typer.Option("--handler", help="the function to run, as module:name; on the Python path")
    ],
    group: Annotated[str, typer.Option("--group", "-g", help="consumer group")],
    namesrv: connect.Namesrv = None,
    per: Annotated[
        str, typer.Option("--per", help="what the function gets: message, batch or arrow")
    ] = "message",
    tasks: Annotated[
        int | None, typer.Option("--tasks", help="tasks per batch [the cluster's cores]")
    ] = None,
    start: Annotated[
        str | None,
        typer.Option("--from", help=f"where a new group begins: first, last, or {times.EXAMPLES} [first]"),
    ] = None,
    max_reconsume: Annotated[
        int, typer.Option("--max-reconsume", help="retries before the dead letters")
    ] = 16,
    failure_text_length: Annotated[
        int,
        typer.Option(
            "--failure-text-length", help="characters of an error kept with its message", min=0, max=1_000
        ),
    ] = 200,
    once: Annotated[
        bool, typer.Option("--once", help="stop when all that is there now was tried; retries come later")
    ] = False,
    every: Every = None,
    out: Annotated[
        str | None,
        typer.Option(
            "--out", help="append topic, msgId, ok, result and error of each try as Parquet to this directory"
        ),
    ] = None,
    master: Master = None,
    conf: Conf = None,
    py_files: PyFiles = None,
    checkpoint: Checkpoint = None,
    option: Opt = None,
) -> None:
    """Run a function on every message, on Spark's executors; failures are retried and dead-lettered.

    A group that has no offsets yet begins with the first message there is, unless --from says otherwise.

    The function gets a row: topic, tags, keys, body (bytes), properties (dict), reconsumeTimes, msgId and more;
    help(aerobee.spark.pipelines.consume.consume) has all.

    Example: aerobee pipeline consume orders -g billing --handler billing:charge --once
    """
    from aerobee.spark.pipelines.consume import consume as pipeline

    often = _trigger(every, "0 seconds", once=once)
    begin = None if start is None else times.parse_start(start, connect.clock.wall())
    sys.path.insert(0, "")
    function = _function(handler)
    spark = _session("consume", master, conf, py_files)
    _send_along(spark, function)

    def sink(frame: DataFrame, _: int) -> None:
        if out:
            frame.write.mode("append").parquet(out)

    batches, reasons = Batches(), Reasons()

    def take(handled: Handled) -> None:
        reasons.take(handled.reasons)
        batches.take(handled._replace(reasons=()))

    source = _source(namesrv, None, option)
    query = pipeline(
        spark, topics, group, function, namesrv=source.pop("namesrv"),
        checkpoint=checkpoint or f"aerobee-checkpoints/consume-{group}", per=per, tasks=tasks, once=once, sink=sink,
        max_reconsume=max_reconsume, options=source, every=often, told=take, start=begin,
        failure_text_length=failure_text_length,
    )  # fmt: skip
    watch(query, f"consume {group}", batches)
    if not batches.are_known:
        say(f"{batches.rows:,} messages through {handler}; aerobee pipeline ledger tells what became of them")
        return
    done, retried, dead, repeated = map(batches.total, ("done", "retried", "dead", "repeated"))
    say(
        f"{batches.rows:,} messages through {handler}: {done:,} done, {retried:,} to be retried,"
        f" {dead:,} dead (%DLQ%{group})"
    )
    for reason, count in reasons.most(3):
        say(f"{count:,} failed with {reason}")
    if repeated:
        say(
            f"{repeated:,} of them were given again after a lost worker or driver:"
            f" {handler} may have seen them before"
        )


# -- shared ----------------------------------------------------------------------------------------


def _session(
    name: str, master: str | None, conf: list[str] | None, py_files: list[str] | None
) -> SparkSession:
    from aerobee.spark.sessions import NoJava, NoSpark, is_remote, session

    # py4j logs Ctrl-C with its trace, by the root logger
    logging.getLogger().addFilter(lambda record: not record.getMessage().startswith("KeyboardInterrupt"))
    files = [path for given in py_files or [] for path in given.split(",") if path]
    where = {"remote": master} if master and master.startswith("sc://") else {"master": master}
    try:
        spark = session(f"aerobee {name}", config=pairs_of(conf, "--conf"), py_files=files, **where)
    except (NoJava, NoSpark) as error:
        raise AerobeeError(str(error)) from None
    if not is_remote(spark) and not os.environ.get("AEROBEE_DEBUG"):
        spark.sparkContext.setLogLevel("FATAL")  # a failed query is told in one line, not in a page of Java
    if name not in ("lake", "consume"):  # which stop their stream first
        # Spark's own handler asks the JVM on a line that waits for another answer: pages of traces, or no end at all.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    atexit.register(_stop, spark)  # or Spark's Python workers complain of broken pipes at the end
    return spark


def _trigger(every: str | None, usual: str, *, once: bool) -> str:
    """How often a batch is made, as Spark says it."""
    from aerobee.spark.option_values import duration_ms

    if every is None:
        return usual
    if once:
        raise typer.BadParameter("--every has no meaning with --once")
    try:
        return f"{duration_ms(every)} milliseconds"
    except ValueError as error:
        raise typer.BadParameter(f"--every {every!r}: {error}") from None


def _stop(spark: SparkSession) -> None:
    from aerobee.spark.reasons import jvm_exit

    if jvm_exit(0) is None:  # a dead one has been told of
        spark.stop()


def _end_jvm(error: KeyboardInterrupt) -> None:
    """After Ctrl-C, which leaves its line in the middle of an answer: nothing can be asked of it any more. One that is
    still starting would stay for ever; only the function that waits for it knows it."""
    pyspark = sys.modules.get("pyspark")
    process = pyspark and getattr(pyspark.SparkContext._gateway, "proc", None)
    for frame, _ in traceback.walk_tb(error.__traceback__):
        if isinstance(starting := frame.f_locals.get("proc"), Popen):
            process = starting
    if process:
        logging.getLogger("py4j").setLevel(logging.CRITICAL + 1)
        process.terminate()
        process.wait(10)


def _source(namesrv: str | None, store: str | None, option: list[str] | None) -> dict[str, str]:
    """The options of the source: of --option first, then, where brokers are asked, who and where every command is."""
    from aerobee.spark.options import of_client

    if store and namesrv:
        raise typer.BadParameter("give --namesrv or --store, not both")
    own = pairs_of(option, "--option")
    if store:
        return {"storePath": store, **own}
    return {"namesrv": connect.address_of(namesrv), **of_client(profiles.account(), own), **own}


def _looked_at(
    topics: str, groups: list[str] | None, source: dict[str, str], spark: SparkSession
) -> tuple[list[str], list[str]]:
    """The topics and groups that a ledger is asked for."""
    from aerobee.spark.pipelines.evidence import Evidence
    from aerobee.spark.pipelines.ledger import groups_on

    names = [name.strip() for name in topics.split(",") if name.strip()]
    return names, groups or groups_on(Evidence(spark, source), names)


def _book(topics: list[str], groups: list[str], source: dict[str, str], spark: SparkSession) -> DataFrame:
    from aerobee.spark.pipelines.ledger import ledger as pipeline

    try:
        with console.status("reading"):
            return pipeline(spark, topics, groups, **source)
    except ValueError as error:
        raise AerobeeError(str(error)) from None


def _check_place(topic: str) -> None:
    """No topic has a name like a path: it was meant to be a lake."""
    is_path = topic.startswith((".", "~")) or os.sep in topic
    if is_path and not Path(topic).is_dir():
        raise AerobeeError(f"there is no lake in {topic!r}: no such directory")


def _replay_rows(spark: SparkSession, topic: str, source: dict[str, str]) -> DataFrame:
    if Path(topic).is_dir():
        from aerobee.spark.pipelines.replay import check
        from aerobee.spark.pipelines.tables import found_table

        try:
            rows = found_table(spark, topic).read()
        except FileNotFoundError as error:  # a directory, and no lake, or nothing in it yet
            raise AerobeeError(str(error)) from None
        check(rows, f"the rows of the lake {topic}")
        return rows
    reader = spark.read.format("rocketmq").option("subscribe", topic).option("includeProperties", "true")
    return reader.option("checkBodies", "true").options(**source).load()


def _send_along(spark: SparkSession, function: Callable[[Any], Any]) -> None:
    """A Connect server runs batches in a process that is not given the files sent along: the function travels whole."""
    from aerobee.spark.sessions import is_remote

    if is_remote(spark):
        from pyspark import cloudpickle

        cloudpickle.register_pickle_by_value(sys.modules[function.__module__])  # type: ignore[no-untyped-call]


def _function(handler: str) -> Callable[[Any], Any]:
    module, sign, name = handler.partition(":")
    if not sign:
        raise typer.BadParameter(f"--handler {handler!r} is not module:function")
    try:
        found = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise typer.BadParameter(f"--handler {handler!r}: {error}") from None
    if not callable(found):
        raise typer.BadParameter(f"--handler {handler!r} is no function")
    return found  # type: ignore[no-any-return]
