# SPDX-License-Identifier: Apache-2.0
"""`aerobee pipeline consume|lake|ledger|report|replay`: the Spark pipelines from the command line."""

from __future__ import annotations

import atexit
import importlib
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from aerobee.cli import connect, times
from aerobee.cli.pairs import pairs_of
from aerobee.cli.pipeline_output import Bar, Batches, console, print_rows, say, show, watch
from aerobee.errors import AerobeeError

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession


class _Explaining(TyperGroup):
    """Spark's errors are pages of two languages; a command ends with the sentence that matters."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
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
    no_args_is_help=True,
    help="Spark jobs over topics: local by default, on a cluster by --master.",
)

Namesrv = Annotated[
    str | None,
    typer.Option(
        "--namesrv", "-n", envvar="AEROBEE_NAMESRV", help="name servers, ';' between them [127.0.0.1:9876]"
    ),
]
Store = Annotated[str | None, typer.Option("--store", help="read a store directory instead of brokers")]
Master = Annotated[
    str | None,
    typer.Option("--master", help="Spark master URL [local[*]], or sc://host:port of a Connect server"),
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
    namesrv: Namesrv = None,
    store: Store = None,
    json_bodies: Annotated[
        bool, typer.Option("--json-bodies", help="JSON bodies become columns, schema inferred")
    ] = False,
    schema: Annotated[
        str | None, typer.Option("--schema", help="schema of JSON bodies, as DDL: 'id INT, name STRING'")
    ] = None,
    evolve: Annotated[
        bool,
        typer.Option(
            "--evolve/--no-evolve", help="new keys become columns of the table, else go to _rescued"
        ),
    ] = True,
    once: Once = False,
    every: Every = None,
    format: Annotated[
        str, typer.Option("--format", help="parquet, delta or iceberg (aerobee[delta], aerobee[iceberg])")
    ] = "parquet",
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

    Example: aerobee pipeline lake orders ./lake --json-bodies --once
    """
    from aerobee.spark.pipelines import lake as pipeline
    from aerobee.spark.pipelines.tables import table_of

    often = _trigger(every, "10 seconds", once=once)
    spark = _session("lake", master, conf, py_files)
    settings = {**_source(namesrv, store), **pairs_of(option, "--option")}
    batches = Batches()
    query = pipeline.lake(
        spark, topics, out, checkpoint=checkpoint, schema=schema, json=json_bodies, evolve=evolve, once=once,
        format=format, options=settings, every=often, told=batches.take,
    )  # fmt: skip
    watch(query, "lake", batches)
    if compact and once:
        gone = table_of(spark, out, format).compact()
        say(f"compacted away {gone:,} small files")
    say(f"{batches.rows:,} messages into {out}")
    if bad := batches.total("bad"):
        say(f"{bad:,} of them are no JSON object: their bodies are in badBody")
    if rescued := batches.total("rescued"):
        say(f"{rescued:,} of them have keys or values without a fitting column: these are in _rescued")
    if grown := batches.names("grown"):
        say(f"new or wider columns: {', '.join(grown)}")


@app.command()
def ledger(
    topics: Annotated[str, typer.Argument(help="topics, ',' between them")],
    group: Annotated[
        list[str] | None, typer.Option("--group", "-g", help="groups [all with offsets]")
    ] = None,
    namesrv: Namesrv = None,
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

    Exit code 1 when a message is lost. Example: aerobee pipeline ledger orders -g billing
    """
    from aerobee.spark.pipelines import totals
    from aerobee.spark.pipelines.ledger import of_key, summary

    source = {**_source(namesrv, store), **pairs_of(option, "--option")}
    book = _book(topics, group, source, _session("ledger", master, conf, py_files))
    if out:
        book.write.mode("overwrite").parquet(out)
        book = book.sparkSession.read.parquet(out)
    if message or key:
        if message:
            book = book.where((book["msgId"] == message) | (book["replayOf"] == message))
        if key:
            book = of_key(book, key)
        show(book, as_json=json)
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
    namesrv: Namesrv = None,
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

    source = {**_source(namesrv, store), **pairs_of(option, "--option")}
    book = _book(topics, group, source, _session("report", master, conf, py_files))
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
    namesrv: Namesrv = None,
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
    spark = _session("replay", master, conf, py_files)
    source = {**_source(namesrv, None), **pairs_of(option, "--option")}
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
    say(
        f"{outcome.chosen:,} chosen, {outcome.already:,} sent before, {said} {count:,} (audit: {audit}/{name})"
    )


@app.command()
def consume(
    topics: Annotated[str, typer.Argument(help="topics, ',' between them")],
    handler: Annotated[
        str, typer.Option("--handler", help="the function to run, as module:name; on the Python path")
    ],
    group: Annotated[str, typer.Option("--group", "-g", help="consumer group")],
    namesrv: Namesrv = None,
    per: Annotated[
        str, typer.Option("--per", help="what the function gets: message, batch or arrow")
    ] = "message",
    tasks: Annotated[
        int | None, typer.Option("--tasks", help="tasks per batch [the cluster's cores]")
    ] = None,
    max_reconsume: Annotated[
        int, typer.Option("--max-reconsume", help="retries before the dead letters")
    ] = 16,
    once: Once = False,
    every: Every = None,
    out: Annotated[
        str | None, typer.Option("--out", help="append the results as Parquet to this directory")
    ] = None,
    master: Master = None,
    conf: Conf = None,
    py_files: PyFiles = None,
    checkpoint: Checkpoint = None,
    option: Opt = None,
) -> None:
    """Run a function on every message, on Spark's executors; failures are retried and dead-lettered.

    Example: aerobee pipeline consume orders -g billing --handler billing:charge --once
    """
    from aerobee.spark.pipelines.consume import consume as pipeline

    often = _trigger(every, "0 seconds", once=once)
    sys.path.insert(0, "")
    function = _function(handler)
    spark = _session("consume", master, conf, py_files)
    _send_along(spark, function)

    def sink(frame: DataFrame, _: int) -> None:
        if out:
            frame.write.mode("append").parquet(out)

    batches = Batches()
    query = pipeline(
        spark, topics, group, function, namesrv=_source(namesrv, None)["namesrv"],
        checkpoint=checkpoint or f"aerobee-checkpoints/consume-{group}", per=per, tasks=tasks, once=once, sink=sink,
        max_reconsume=max_reconsume, options=pairs_of(option, "--option"), every=often, told=batches.take,
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

    files = [path for given in py_files or [] for path in given.split(",") if path]
    where = {"remote": master} if master and master.startswith("sc://") else {"master": master}
    try:
        spark = session(f"aerobee {name}", config=pairs_of(conf, "--conf"), py_files=files, **where)
    except (NoJava, NoSpark) as error:
        raise AerobeeError(str(error)) from None
    if not is_remote(spark) and not os.environ.get("AEROBEE_DEBUG"):
        spark.sparkContext.setLogLevel("FATAL")  # a failed query is told in one line, not in a page of Java
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


def _source(namesrv: str | None, store: str | None) -> dict[str, str]:
    if store and namesrv:
        raise typer.BadParameter("give --namesrv or --store, not both")
    return {"storePath": store} if store else {"namesrv": connect.address_of(namesrv)}


def _book(topics: str, groups: list[str] | None, source: dict[str, str], spark: SparkSession) -> DataFrame:
    from aerobee.spark.pipelines.ledger import ledger as pipeline

    names = [name.strip() for name in topics.split(",") if name.strip()]
    try:
        with console.status("reading"):
            return pipeline(spark, names, groups or None, **source)
    except ValueError as error:
        raise AerobeeError(str(error)) from None


def _replay_rows(spark: SparkSession, topic: str, source: dict[str, str]) -> DataFrame:
    if Path(topic).is_dir():
        from aerobee.spark.pipelines.tables import found_table

        return found_table(spark, topic).read()
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
