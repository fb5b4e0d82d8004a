# SPDX-License-Identifier: Apache-2.0
"""What somebody sees who tries it for the first time, and gets something wrong."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")

from pyspark.sql.types import StructType

from aerobee.cli.main import run
from aerobee.errors import NetworkError
from aerobee.spark import dataframes, reasons, save_mode, sessions, starting
from aerobee.spark.options import OptionError, for_batch
from aerobee.spark.source import RocketMQSource
from aerobee.testing.server import TestServer
from tests.spark.patient import PATIENT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

NOBODY: Any = None  # no session: a wrong option is told before one is asked


def test_a_read_without_an_address_goes_where_a_client_without_one_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("AEROBEE_NAMESRV", raising=False)
    monkeypatch.setenv("NAMESRV_ADDR", "10.0.0.1:9876")
    assert dataframes._named("orders", {}) == {"subscribe": "orders", "namesrv": "10.0.0.1:9876"}
    monkeypatch.setenv("AEROBEE_NAMESRV", "10.0.0.2:9876")
    assert dataframes._named("orders", {})["namesrv"] == "10.0.0.2:9876"
    assert dataframes._named("orders", {"namesrv": "a:1"})["namesrv"] == "a:1"
    assert "namesrv" not in dataframes._named("orders", {"storePath": "/data"})


# -- wrong options -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("option", "told"),
    [
        ("kafka.bootstrap.servers", "that is Kafka's, here it is 'namesrv'"),
        ("kafka.group.id", "that is Kafka's, here it is 'group'"),
        ("includeHeaders", "that is Kafka's, here it is 'includeProperties'"),
        ("kafka.security.protocol", "options of Kafka's client have no meaning here"),
        ("subscrbe", "did you mean 'subscribe'?"),
    ],
)
def test_what_kafkas_users_write_gets_a_hint(option: str, told: str) -> None:
    with pytest.raises(OptionError) as caught:
        for_batch({"namesrv": "a:1", "subscribe": "orders", option: "1"})
    assert str(caught.value).startswith(f"unknown option {option!r}; {told}")


def test_who_overwrites_a_topic_is_told_the_mode_of_a_batch_or_of_a_stream() -> None:
    source, rows = RocketMQSource({"namesrv": "a:1", "topic": "orders"}), StructType()
    with pytest.raises(OptionError, match=r"write with \.mode\(\"append\"\)"):
        source.writer(rows, overwrite=True)
    with pytest.raises(OptionError, match='use "append", or foreachBatch'):
        source.streamWriter(rows, overwrite=True)


def test_a_sink_that_nobody_answers_is_told_before_there_are_tasks() -> None:
    rows = StructType().add("body", "string")
    given = {"namesrv": "127.0.0.1:1", "topic": "orders", "numRetries": "0"}
    with pytest.raises(
        NetworkError, match=r"no name server answers \(127.0.0.1:1\).* Is one running there\?"
    ):
        RocketMQSource(given).writer(rows, overwrite=False)


def test_a_tables_options_come_with_a_prefix_and_a_query_goes_before_them() -> None:
    of_table = {"option.namesrv": "a:1", "OPTION.subscribe": "orders", "provider": "rocketmq", "owner": "me"}
    assert for_batch(of_table).topics == ("orders",)
    assert for_batch({**of_table, "Subscribe": "others"}).topics == ("others",)
    with pytest.raises(OptionError, match="unknown option 'tagz'"):
        for_batch({**of_table, "option.tagz": "x"})


def test_wrong_options_are_told_before_spark_is_asked() -> None:
    with pytest.raises(OptionError, match="unknown option 'tagz'; did you mean 'tags'"):
        dataframes.read(NOBODY, "orders", tagz="a")
    with pytest.raises(OptionError, match="option 'endingOffsets' is for batch reads"):
        dataframes.read_stream(NOBODY, "orders", endingOffsets="latest")
    with pytest.raises(OptionError, match="option 'window' is '0': expected at least 1"):
        dataframes.write(NOBODY, "orders", window=0)


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("paid", "paid"),
        (["paid"], "paid"),
        (("paid", "void"), "paid||void"),
        ({"void", "paid"}, "paid||void"),
        ("paid,void", "paid,void"),  # one tag: RocketMQ allows it
    ],
)
def test_tags_may_be_a_list_which_means_any_of_them(given: Any, meant: str) -> None:
    told = dataframes._named("orders", {"namesrv": "a:1", "tags": given})
    assert told["tags"] == meant
    assert for_batch(told).tags == meant


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (7, "option 'tags' is 7: expected a text or a list of texts"),
        (None, "option 'tags' is None: expected a text or a list of texts"),
        (["paid", 7], "option 'tags' is ['paid', 7]: 7 is no tag"),
        (["paid", " "], "option 'tags' is ['paid', ' ']: ' ' is no tag"),
        ([], "option 'tags' is []: names no tag"),
    ],
)
def test_tags_that_no_message_can_have_are_refused_before_spark_is_asked(given: Any, said: str) -> None:
    for reads in (dataframes.read, dataframes.read_stream):
        with pytest.raises(OptionError) as caught:
            reads(NOBODY, "orders", tags=given)
        assert str(caught.value) == said


@pytest.mark.parametrize("zone", ["Asia/Tokyo", "UTC"])
def test_a_time_may_be_a_datetime_or_written_as_the_commands_take_it(
    monkeypatch: pytest.MonkeyPatch, zone: str
) -> None:
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    local = datetime(2026, 11, 19, 21, 49)
    aware = datetime(2026, 11, 19, 21, 49, tzinfo=UTC)
    here = round(local.timestamp() * 1000)
    try:
        for given, meant in [
            (local, here),
            ("2026-11-19 21:49", here),
            ("20261119214900", here),
            (aware, 1_795_124_940_000),
            ("2026-11-19 21:49+00:00", 1_795_124_940_000),
            (1_795_124_940_000, 1_795_124_940_000),
        ]:
            told = dataframes._named(
                "orders", {"namesrv": "a:1", "startingTimestamp": given, "endingTimestamp": given}
            )
            read = for_batch(told)
            assert (read.start.timestamp, read.end.timestamp) == (meant, meant), given
    finally:
        monkeypatch.undo()
        time.tzset()


def test_a_datetime_is_a_moment_before_it_leaves_for_a_server_with_another_time_zone() -> None:
    told = dataframes._named("orders", {"startingTimestamp": datetime(2026, 11, 19, 21, 49, tzinfo=UTC)})
    assert told["startingTimestamp"] == "1795124940000"
    assert dataframes._named("orders", {"startingTimestamp": "-1h"})["startingTimestamp"] == "-1h"


@pytest.mark.parametrize("place", ["./nolake", "../nolake", "some/lake", ".nolake"])
def test_a_replay_from_a_path_where_nothing_is_says_that_there_is_no_lake(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], place: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sessions, "session", NOBODY)  # it is said before Spark starts
    assert run(["pipeline", "replay", place, "--name", "n"]) == 1
    assert f"aerobee: there is no lake in '{place}': no such directory" in capfd.readouterr().err


def test_a_planning_process_tells_our_errors_without_their_tracebacks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SPARK_PYTHON_RUNTIME", "PYTHON_WORKER")
    monkeypatch.delenv("AEROBEE_DEBUG", raising=False)
    for error, hidden in ((OptionError("x"), "1"), (KeyError("x"), None)):
        monkeypatch.delenv("SPARK_HIDE_TRACEBACK", raising=False)
        with pytest.raises(type(error)), reasons.plainly():
            raise error
        assert os.environ.get("SPARK_HIDE_TRACEBACK") == hidden


def test_other_processes_keep_theirs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPARK_PYTHON_RUNTIME", raising=False)
    monkeypatch.delenv("SPARK_HIDE_TRACEBACK", raising=False)
    with pytest.raises(OptionError), reasons.plainly():
        raise OptionError("x")
    assert "SPARK_HIDE_TRACEBACK" not in os.environ


def test_the_sentence_is_found_where_there_is_no_traceback() -> None:
    text = (
        "[PYTHON_DATA_SOURCE_ERROR] Failed: aerobee.spark.options.OptionError: unknown 'x'\n SQLSTATE: 38000"
    )
    assert reasons.reason(RuntimeError(text)) == "unknown 'x'"


def test_a_session_that_cannot_start_points_to_the_master() -> None:
    text = "An error occurred while calling None.org.apache.spark.sql.SparkSession.\n: java.lang.X: stopped\n\tat a.b"
    assert reasons.reason(RuntimeError(text)) == (
        "Spark has not started: java.lang.X: stopped. Its log above says why; does the master (--master) answer?"
    )
    assert reasons.reason(RuntimeError("An error occurred while calling o1.x\n: y")).startswith("An error")
    assert reasons.reason(RuntimeError("")) == "RuntimeError"


# -- sessions ----------------------------------------------------------------------------------------


def test_without_pyspark_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", None)
    with pytest.raises(sessions.NoSpark, match=r"pip install 'aerobee\[spark\]'"):
        sessions.session()


def test_a_session_is_local_or_remote() -> None:
    with pytest.raises(ValueError, match=r"give master \(local\) or remote \(sc://a\), not both"):
        sessions.session(master="local", remote="sc://a")


class Terminal:
    def __init__(self) -> None:
        self.text = ""

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> None:
        self.text += text

    def flush(self) -> None: ...


class Timer:
    """Rings when told to."""

    made: Timer

    def __init__(self, seconds: float, ring: Any) -> None:
        Timer.made, self.ring, self.cancelled = self, ring, False

    def start(self) -> None: ...

    def cancel(self) -> None:
        self.cancelled = True


def test_a_wait_is_told_on_a_terminal_and_only_if_it_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setattr("threading.Timer", Timer)
    with starting.said("starting Spark"):
        assert terminal.text == ""
        Timer.made.ring()
    assert terminal.text == "starting Spark ...\n"
    assert Timer.made.cancelled


class Query:
    """Initializes for a while, then runs or has ended with an error."""

    def __init__(self, error: str = "") -> None:
        self._error, self._looks = error, 3

    @property
    def isActive(self) -> bool:
        return self._looks > 0 or not self._error

    @property
    def status(self) -> dict[str, str]:
        return {"message": "Initializing sources" if self._looks else "Waiting for data to arrive"}

    def awaitTermination(self, _: float) -> None:
        self._looks -= 1
        if not self._looks and self._error:
            raise RuntimeError(self._error)

    def exception(self) -> Exception | None:
        return RuntimeError(self._error) if self._error and not self._looks else None


LATE = "terminated with exception: Python worker failed to connect back."


class Streams:
    """What comes of each start: a query, one that dies, or an error at once."""

    def __init__(self, *outcomes: Query | Exception) -> None:
        self._outcomes = list(outcomes)

    def start(self) -> Query:
        outcome = self._outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    @property
    def left(self) -> int:
        return len(self._outcomes)


def test_a_python_process_that_was_not_in_time_is_started_again() -> None:
    running = Query()
    streams: Any = Streams(RuntimeError(LATE), Query(LATE), running, Query())
    assert starting.started(streams) is running
    assert streams.left == 1
    never: Any = Streams(*(RuntimeError(LATE) for _ in range(9)))
    with pytest.raises(RuntimeError, match="connect back"):
        starting.started(never)
    assert never.left == 4


def test_what_fails_for_another_reason_is_not_tried_again() -> None:
    at_once: Any = Streams(RuntimeError("no such table"), Query())
    with pytest.raises(RuntimeError, match="no such table"):
        starting.started(at_once)
    assert at_once.left == 1
    soon = Query("deleted offsets")
    streams: Any = Streams(soon, Query())
    assert starting.started(streams) is soon, "whoever awaits it is told"
    assert streams.left == 1


def test_workers_import_pyspark_compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("SPARK_HOME", raising=False)
    home = starting.spark_home()
    assert home is not None
    lib = home / "python" / "lib"
    code = "import pyspark.version; print(pyspark.version.__file__, pyspark.version.__cached__)"
    command = [sys.executable, "-c", code]
    env = {**os.environ, "PYTHONPATH": str(lib / "pyspark.zip")}
    source, cached = subprocess.check_output(command, env=env, text=True).split()
    assert source.startswith(str(lib / "pyspark.zip"))
    assert cached.endswith(".pyc")
    assert list(lib.glob("py4j-*.zip"))
    assert (home / "bin" / "spark-submit").exists()
    before = home.stat().st_ino
    assert starting.spark_home() == home
    assert home.stat().st_ino == before, "made once"


def test_whoever_has_a_spark_home_keeps_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_HOME", "/opt/spark")
    assert starting.spark_home() is None


def test_where_no_folder_can_be_made_the_start_takes_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/proc/nowhere")
    monkeypatch.delenv("SPARK_HOME", raising=False)
    assert starting.spark_home() is None


def test_planning_needs_no_arrow() -> None:
    """Spark starts a Python process for each step of planning: what is imported there is waited for each time."""
    code = "import pyspark_rocketmq, sys; print('pyarrow' in sys.modules)"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "False"


# -- writes ------------------------------------------------------------------------------------------


def test_the_refusal_of_a_save_without_mode_gets_a_word() -> None:
    class Writer:
        refused = '[UNSUPPORTED_DATA_SOURCE_SAVE_MODE] "rocketmq" cannot be written in "ErrorIfExists" mode'

        def save(self) -> None:
            raise RuntimeError(self.refused)

    for _ in range(2):  # a second session adds no second word
        save_mode.explain(Writer)
    with pytest.raises(RuntimeError) as caught:
        Writer().save()
    assert caught.value.__notes__ == [save_mode.WORD]
    Writer.refused = "another"
    with pytest.raises(RuntimeError) as caught:
        Writer().save()
    assert not hasattr(caught.value, "__notes__")


# -- with Spark --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def server() -> Iterator[TestServer]:
    from aerobee import Message, Producer

    with TestServer() as running:

        async def send() -> None:
            async with Producer(running.namesrv, group="g", options=PATIENT) as producer:
                for n in range(3):
                    body = b'{"status": "paid", "amount": %d, "topic": "t", "a.b": 1}' % n
                    await producer.send(Message("first", body))

        running.run(send())
        yield running


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_json_bodies_become_columns(spark: SparkSession, server: TestServer) -> None:
    frame = dataframes.read(spark, "first", namesrv=server.namesrv, json=True)
    assert [(row.status, row["count"]) for row in frame.groupBy("status").count().collect()] == [("paid", 3)]
    assert frame.columns[-4:] == ["data", "a.b", "amount", "status"]
    row = frame.orderBy("amount").first()
    assert row is not None
    assert (row.topic, row.data.topic, row["a.b"], row.amount) == ("first", "t", 1, 0)
    named = dataframes.read(spark, "first", namesrv=server.namesrv, json="amount LONG")
    assert sorted(row.amount for row in named.select("amount").collect()) == [0, 1, 2]


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_a_read_of_several_tags_has_the_messages_of_each(spark: SparkSession, server: TestServer) -> None:
    from aerobee import Message, Producer

    async def send() -> None:
        async with Producer(server.namesrv, group="g", options=PATIENT) as producer:
            for tag in ("paid", "void", "new"):
                await producer.send(Message("tagged", tag.encode(), tags=tag))

    server.run(send())
    frame = dataframes.read(spark, "tagged", namesrv=server.namesrv, tags=["paid", "void"])
    assert sorted(row.tags for row in frame.select("tags").collect()) == ["paid", "void"]


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_sparks_errors_begin_with_ours(spark: SparkSession, server: TestServer) -> None:
    reader = spark.read.format("rocketmq").option("subscribe", "first")
    with pytest.raises(Exception, match="PYTHON_DATA_SOURCE_ERROR") as caught:
        reader.option("kafka.bootstrap.servers", server.namesrv).load()
    assert "unknown option 'kafka.bootstrap.servers'; that is Kafka's" in str(caught.value)[:220]
    assert "Traceback" not in str(caught.value)
    reader = spark.read.format("rocketmq").option("namesrv", server.namesrv).option("subscribe", "nothing")
    with pytest.raises(Exception, match="nothing") as caught:
        reader.load().count()
    assert "Traceback" not in str(caught.value)
    frame = spark.createDataFrame([("x",)], "body STRING")
    with pytest.raises(Exception, match="no name server answers") as caught:
        dataframes.write(frame, "first", namesrv="127.0.0.1:1", numRetries=0)
    assert "no name server answers (127.0.0.1:1)" in str(caught.value)[:300]
    assert "Traceback" not in str(caught.value)
    stream = (
        spark.readStream.format("rocketmq").option("namesrv", server.namesrv).option("subscribe", "first")
    )
    query = stream.option("endingOffsets", "latest").load().writeStream.format("noop").start()
    with pytest.raises(Exception, match="a stream has no end") as caught:
        query.processAllAvailable()
    assert "Traceback" not in str(caught.value)
    assert "UnboundLocalError" not in str(caught.value)


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_a_write_without_a_mode_is_explained(spark: SparkSession, server: TestServer) -> None:
    rows = spark.range(1).selectExpr("string(id) AS body")
    writer = rows.write.format("rocketmq").option("namesrv", server.namesrv).option("topic", "first")
    with pytest.raises(Exception, match="ErrorIfExists") as caught:
        writer.save()
    assert caught.value.__notes__ == [save_mode.WORD]


CUT_OFF = """
import sys
from aerobee.spark import session, read

quick = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC", "spark.driver.memory": "1g"}
spark = session(master="local[2]", config=quick)
frame = read(spark, "large", namesrv=sys.argv[1], batchRows=100)
assert len(frame.take(1)) == 1
frame.limit(2).show()
spark.stop()
"""


@pytest.mark.spark
@pytest.mark.slow
def test_workers_that_are_cut_off_say_nothing(tmp_path: Path) -> None:
    from aerobee import Message, Producer

    with TestServer() as server:

        async def send() -> None:
            async with Producer(server.namesrv, group="g", options=PATIENT) as producer:
                for _ in range(100):
                    await producer.send_batch([Message("large", bytes(1000)) for _ in range(100)])

        server.run(send())
        command = [sys.executable, "-c", CUT_OFF, server.namesrv]
        done = subprocess.run(command, capture_output=True, text=True, timeout=800, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stderr
    assert "only showing" not in done.stderr
    assert "BrokenPipeError" not in done.stderr
