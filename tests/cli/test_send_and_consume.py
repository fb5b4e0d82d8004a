# SPDX-License-Identifier: Apache-2.0
"""`aerobee send` and `aerobee consume`: from stdin to stdout, through every way of fetching."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from aerobee.testing.process import ServerProcess

if TYPE_CHECKING:
    from collections.abc import Callable

    from conftest import Done

    from aerobee.testing import TestServer

pytestmark = pytest.mark.slow


def test_one_message_is_sent_and_its_place_printed(good: Callable[..., Done]) -> None:
    done = good("send", "cli-one", "hello", "--tags", "paid", "--keys", "k1 k2", "-p", "region=EU")
    message_id = done.out.split()[0]
    found = good("messages", "get", message_id, "-t", "cli-one", "--json").json
    assert (found["body"], found["tags"], found["keys"]) == ("hello", "paid", ["k1", "k2"])
    assert found["properties"]["region"] == "EU"


def test_a_send_to_a_topic_that_is_closed_says_how_to_open_it(
    good: Callable[..., Done], aerobee: Callable[..., Done]
) -> None:
    good("topics", "create", "cli-closed")
    good("topics", "update", "cli-closed", "--perm", "r")
    done = aerobee("send", "cli-closed", "x")
    assert done.code == 1
    assert done.err == (
        "aerobee: topic 'cli-closed' has no queue that may be written, its permission is r: `aerobee topics update "
        "cli-closed --perm rw` opens it, `aerobee admin addWritePerm` a broker that was closed by wipeWritePerm\n"
    )
    good("topics", "update", "cli-closed", "--perm", "rw")
    good("send", "cli-closed", "x")


def test_json_of_a_send_is_one_object_a_message(good: Callable[..., Done]) -> None:
    rows = good("send", "cli-many", "--count", "5", "--size", "10", "--json").lines
    assert len(rows) == 5
    assert {row["status"] for row in rows} == {"SEND_OK"}


def test_the_name_server_is_n_and_a_count_under_that_name_still_works_with_a_warning(
    server: TestServer,
    good: Callable[..., Done],
    aerobee: Callable[..., Done],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AEROBEE_NAMESRV", "127.0.0.1:1")
    done = good("send", "cli-old-n", "x", "-n", server.namesrv, "-c", "2", "--json")
    assert (len(done.lines), done.err) == (2, "")
    done = good(
        "consume", "cli-old-n", "-g", "cli-old-n", "-n", "2", "-n", server.namesrv, "--timeout", "20s"
    )
    assert done.out == "x\nx\n"
    assert "-n 2 for a count works until 1.0 only: write -c 2" in done.err
    refused = aerobee("send", "cli-old-n", "x", "-n", "0")
    assert (refused.code, "counts are -c" in refused.err) == (2, True)


def test_of_many_the_first_and_the_last_id_are_printed(good: Callable[..., Done]) -> None:
    done = good("send", "cli-many-ids", "x", "-c", "10")
    first, last = (line.split() for line in done.out.splitlines())
    assert (first[0], last[0]) == ("first", "last")
    for _, message_id, *_ in (first, last):
        assert good("messages", "get", message_id, "--json").json["topic"] == "cli-many-ids"
    assert "sent 10 messages" in done.err


@pytest.mark.parametrize("mode", ["push", "pull", "pop"])
def test_lines_of_stdin_come_out_again(good: Callable[..., Done], mode: str) -> None:
    topic = f"cli-lines-{mode}"
    good("send", topic, stdin=b"one\ntwo\r\n\nthree")
    done = good("consume", topic, "-g", f"cli-{mode}", "--mode", mode, "--count", "3", "--timeout", "20s")
    assert sorted(done.out.splitlines()) == ["one", "three", "two"]


@pytest.mark.parametrize("mode", ["push", "pull", "pop"])
def test_a_group_goes_on_where_the_command_before_stopped(good: Callable[..., Done], mode: str) -> None:
    topic, group = f"cli-on-{mode}", f"cli-on-{mode}"
    good("send", topic, stdin=b"\n".join(b"%d" % n for n in range(6)))
    first = good("consume", topic, "-g", group, "--mode", mode, "-c", "2", "--timeout", "20s")
    rest = good("consume", topic, "-g", group, "--mode", mode, "-c", "4", "--timeout", "20s")
    assert sorted(first.out.split() + rest.out.split()) == [str(n) for n in range(6)]


def test_what_consume_prints_as_json_can_be_sent_again(good: Callable[..., Done]) -> None:
    good("send", "cli-copy-a", "payload", "--tags", "t", "--keys", "k", "-p", "a=b")
    out = good("consume", "cli-copy-a", "-g", "cli-copy", "-c", "1", "--timeout", "20s", "--json").out
    good("send", "cli-copy-b", "--jsonl", stdin=out.encode())
    [copy] = good("messages", "browse", "cli-copy-b", "--json").lines
    assert (copy["body"], copy["tags"], copy["keys"], copy["properties"]["a"]) == ("payload", "t", ["k"], "b")


def test_bodies_that_are_no_text_survive(good: Callable[..., Done]) -> None:
    good("send", "cli-bytes", stdin=b"\xff\x00\xfe\n")
    [row] = good("messages", "browse", "cli-bytes", "--json").lines
    assert row["bodyBase64"] == "/wD+"


def test_tags_and_sql_choose(good: Callable[..., Done]) -> None:
    good("send", "cli-choose", "a", "--tags", "paid", "-p", "amount=5")
    good("send", "cli-choose", "b", "--tags", "void", "-p", "amount=500")
    options = ("-c", "1", "--timeout", "20s")
    assert good("consume", "cli-choose", "-g", "cli-tags", "--tags", "void||x", *options).out == "b\n"
    assert good("consume", "cli-choose", "-g", "cli-sql", "--sql", "amount < 100", *options).out == "a\n"


def test_a_timeout_with_messages_missing_fails_and_without_a_number_does_not(
    aerobee: Callable[..., Done],
) -> None:
    aerobee("send", "cli-idle", "only")
    done = aerobee("consume", "cli-idle", "-g", "cli-idle-1", "-c", "2", "--timeout", "1s")
    assert (done.code, done.out) == (1, "only\n")
    assert "1 of 2" in done.err
    assert aerobee("consume", "cli-idle", "-g", "cli-idle-2", "--timeout", "1s").code == 0


def test_delayed_messages_wait(good: Callable[..., Done]) -> None:
    good("send", "cli-later", "later", "--delay-level", "1")
    good("send", "cli-later", "timed", "--deliver-at", "+1s")
    good("send", "cli-later", "soon", "--delay-ms", "1000")
    done = good("consume", "cli-later", "-g", "cli-later", "-c", "3", "--timeout", "20s")
    assert sorted(done.out.split()) == ["later", "soon", "timed"]


def run_in_shell(server: TestServer, text: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "AEROBEE_NAMESRV": server.namesrv, "PY": sys.executable}
    return subprocess.run(
        ["bash", "-c", f'set -o pipefail; A() {{ "$PY" -m aerobee "$@"; }}; {text}'],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_pipes_end_when_the_reader_has_enough(server: TestServer) -> None:
    """`head` closes the pipe: the command ends quietly and with success, also while it waits for more."""
    done = run_in_shell(server, "seq 50 | A send cli-pipe && A consume cli-pipe -g cli-pipe | head -2")
    assert (done.returncode, len(done.stdout.split())) == (0, 2), done
    assert "Traceback" not in done.stderr
    done = run_in_shell(server, "A topics list --all --json | head -1")
    assert (done.returncode, done.stdout) == (0, "[\n"), done


def test_sigterm_ends_a_consumer_which_says_how_far_it_was(
    server: TestServer, good: Callable[..., Done]
) -> None:
    good("send", "cli-term", stdin=b"1\n2\n3")
    command = [
        sys.executable,
        "-m",
        "aerobee",
        "consume",
        "cli-term",
        "-g",
        "cli-term",
        "--namesrv",
        server.namesrv,
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as consumer:
        assert consumer.stdout is not None
        assert sorted(consumer.stdout.readline() for _ in range(3)) == ["1\n", "2\n", "3\n"]
        consumer.terminate()
        assert consumer.wait(60) == 0
    assert good("groups", "show", "cli-term", "--json").json["ready"] == 0


def test_a_send_whose_broker_dies_says_how_many_it_has_and_names_its_own_option() -> None:
    with ServerProcess() as server:
        command = [sys.executable, "-m", "aerobee", "send", "cli-dies", "-c", "10000000", "--json"]
        command += ["--timeout", "1s", "-n", server.namesrv]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as sender:
            assert sender.stdout is not None and sender.stderr is not None
            told = [sender.stdout.readline() for _ in range(300)]
            server.kill()
            told += sender.stdout.readlines()  # communicate() would not see what is buffered behind the 300th
            err = sender.stderr.read()
            sender.wait(60)
    acknowledged = len(told)
    *_, counted, said = err.splitlines()
    assert sender.returncode == 1
    assert (
        said.startswith("aerobee: ")
        and "A longer --timeout gives a" in said
        and "send_timeout_ms" not in said
    )
    assert (
        counted == f"{acknowledged:,} of 10,000,000 messages were acknowledged; others may have arrived, too"
    )
