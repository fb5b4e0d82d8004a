# SPDX-License-Identifier: Apache-2.0
"""`aerobee top`, `--watch`, `--json` under admin, and names for the shell's completion."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest

from aerobee.cli import complete, connect
from aerobee.cli.mqadmin.as_json import Record
from aerobee.cli.top import Screen, drawn
from aerobee.cli.top_views import next_sort, ordered
from aerobee.console.history import GroupSeen, History, Sample

if TYPE_CHECKING:
    from collections.abc import Callable

    from aerobee.testing import TestServer

    Run = Callable[..., Any]

# -- top ---------------------------------------------------------------------------------------------------


def screen() -> Screen:
    return Screen("groups", "ready", 2_000, None)


def test_each_look_is_printed_by_itself_where_there_is_no_terminal(good: Run) -> None:
    good("send", "top-orders", "hello")
    good("groups", "create", "top-group")
    done = good("top", "--count", "2", "--every", "0.2")
    assert done.out.count("in flight 0") == 2 and done.out.count("top-group") == 2
    assert good("top").out.count("in flight 0") == 1, "a pipe gets one look, and the end"
    assert len(good("top", "--json").out.splitlines()) == 1
    rows = json.loads(good("top", "--by", "topics", "--count", "1", "--json").out)["topics"]
    assert {row["topic"]: row["messages"] for row in rows}["top-orders"] == 1


def test_a_look_without_a_terminal_says_what_is_wrong_and_ages_in_words(
    good: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aerobee.console.problems.WAITS_MS", -1)
    good("send", "top-waits", "hello")
    good("consume", "top-waits", "-g", "top-waiting", "-c", "1", "--mode", "pull")
    good("send", "top-waits", "and again")
    looked = json.loads(good("top", "--count", "1", "--json").out)
    (row,) = [each for each in looked["groups"] if each["group"] == "top-waiting"]
    assert isinstance(row["oldestMs"], int)
    assert any("top-waiting" in each["text"] for each in looked["wrong"])
    out = good("top", "--count", "1").out
    assert any("top-waiting" in each and not each.startswith("top-waiting") for each in out.splitlines())
    (line,) = [each for each in out.splitlines() if each.startswith("top-waiting")]
    assert line.split()[7] in ("ms", "s", "m"), line


@pytest.mark.parametrize(
    "arguments", [["--by", "queues"], ["--sort", "size"], ["--by", "topics", "--sort", "done"]]
)
def test_a_wrong_view_or_column_names_the_right_ones(aerobee: Run, arguments: list[str]) -> None:
    done = aerobee("top", *arguments)
    assert done.code == 2
    assert "topics" in done.err or "inFlight" in done.err or "inRate" in done.err


def test_names_sort_upwards_and_figures_downwards() -> None:
    rows: list[dict[str, Any]] = [
        {"group": "b", "ready": 1},
        {"group": "a", "ready": 9},
        {"group": "c", "ready": None},
    ]
    assert [row["group"] for row in ordered(rows, "groups", "group")] == ["a", "b", "c"]
    assert [row["group"] for row in ordered(rows, "groups", "ready")] == ["a", "b", "c"]
    assert [row["group"] for row in ordered(rows[::-1], "groups", "ready")] == ["a", "b", "c"]


async def test_keys_change_view_and_order_and_end_it() -> None:
    shown = screen()
    shown.press("s")
    assert shown.sort == next_sort("groups", "ready") == "inFlight"
    shown.press("t")
    assert (shown.view, shown.sort) == ("topics", "inRate")
    assert shown.changed.is_set()
    shown.changed.clear()
    shown.press("x")
    assert not shown.changed.is_set() and not shown.is_over
    shown.press("r")
    rows = [{"topic": "a", "inRate": 1}, {"topic": "b", "inRate": 2}]
    assert [row["topic"] for row in shown.arranged(rows)] == ["a", "b"]
    shown.press("q")
    assert shown.is_over


async def test_the_screen_shows_what_is_wrong_and_no_more_rows_than_fit() -> None:
    from rich.console import Console

    history = History()
    paused = GroupSeen("billing", True, 7, 0, 0, 0, 0, 0)
    history.add(Sample(0, groups={"billing": paused}, switched_off=frozenset({"billing"})))
    rows = [{"group": f"g{n:02d}", "ready": n, "oldestMs": 0, "online": True} for n in range(50)]
    console = Console(width=150, height=20, record=True, file=open("/dev/null", "w"))  # noqa: SIM115, ASYNC230
    console.print(drawn(screen(), history, rows, "127.0.0.1:9876", console.height))
    text = console.export_text()
    assert "billing is paused, and 7 messages wait." in text
    assert "g49" in text and "g00" not in text
    assert text.count("\n") <= 20
    console.file.close()


# -- --watch -----------------------------------------------------------------------------------------------


async def test_a_list_is_shown_again_until_it_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    shown, slept = [], []

    class Clock:
        async def sleep(self, ms: int) -> None:
            slept.append(ms)
            if len(slept) == 3:
                raise asyncio.CancelledError

    async def show() -> None:
        shown.append(1)

    monkeypatch.setattr(connect, "clock", Clock())
    await connect.watched(show, None)
    assert (len(shown), slept) == (1, [])
    with pytest.raises(asyncio.CancelledError):
        await connect.watched(show, 0.5)
    assert (len(shown), slept) == (4, [500] * 3)


# -- --json under admin ------------------------------------------------------------------------------------


def test_tables_of_admin_are_objects_before_and_after_the_command(good: Run, server: TestServer) -> None:
    server.create_topic("json-orders", queues=2)
    expected = [("broker-a", 0), ("broker-a", 1)]
    for arguments in (
        ["topicStatus", "-t", "json-orders", "--json"],
        ["--json", "topicStatus", "-t", "json-orders"],
    ):
        rows = good("admin", *arguments).json
        assert [(row["Broker Name"], row["QID"]) for row in rows] == expected
    assert "json-orders" in good("admin", "topicList", "--json").json
    figures = good("admin", "brokerStatus", "-b", server.broker_address, "--json").json
    assert figures["brokerVersionDesc"] == "V5_3_3"


def test_without_it_admin_prints_as_ever_also_afterwards(good: Run, server: TestServer) -> None:
    server.create_topic("json-plain", queues=1)
    good("admin", "topicList", "--json")
    assert good("admin", "topicStatus", "-t", "json-plain").out.startswith("#Broker Name ")


def test_a_failure_of_admin_is_one_line_and_no_json(aerobee: Run) -> None:
    done = aerobee("admin", "topicStatus", "-t", "nosuch", "--json")
    assert (done.code, done.out) == (1, "")
    assert done.err.count("\n") == 1


def test_what_is_kept_is_told_in_the_plainest_form() -> None:
    both = Record()
    both.row(["#A", "#B"])
    both.row([1, "x"])
    assert both.value() == [{"A": 1, "B": "x"}]
    both.line("\n----\nDiff Total: 3")
    assert both.value() == {"tables": [[{"A": 1, "B": "x"}]], "lines": ["Diff Total: 3"]}
    bare = Record()
    bare.row([1, 2])
    assert bare.value() == [[1, 2]]


# -- completion --------------------------------------------------------------------------------------------


class Given:
    """What a shell has typed so far."""

    def __init__(self, **params: Any) -> None:
        self.params = params


def test_names_are_completed_from_the_cluster(good: Run, server: TestServer) -> None:
    server.create_topic("completed-topic", queues=1)
    good("groups", "create", "completed-group")
    given: Any = Given(namesrv=server.namesrv)
    assert complete.topics(given, "completed-") == ["completed-topic"]
    assert complete.groups(given, "completed-") == ["completed-group"]


def test_without_a_cluster_nothing_is_completed_and_nothing_is_said(
    capsys: pytest.CaptureFixture[str],
) -> None:
    given: Any = Given(namesrv="127.0.0.1:1")
    assert complete.topics(given, "") == []
    assert capsys.readouterr() == ("", "")
