# SPDX-License-Identifier: Apache-2.0
"""What the pipelines' commands print: every number whole, in a terminal of 80 columns and in a pipe."""

from __future__ import annotations

import json
from typing import NamedTuple

import pytest

pytest.importorskip("rich")

from aerobee.cli.pipeline_output import SHOWN, Batches, Reasons, print_rows, say, show, turned

ROW = {
    "group": "billing", "topic": "orders", "sent": 1_234_567, "acked": 1_234_500, "waiting": 12, "retrying": 0,
    "in_flight": 0, "dead": 55, "lost": 0, "retried": 1_000_123, "replayed": 7, "traced": 0, "delivered": None,
    "duplicates": None,
}  # fmt: skip


def test_a_wide_table_is_turned_and_cuts_no_digit(capsys: pytest.CaptureFixture[str]) -> None:
    print_rows([{**ROW, "group": name} for name in ("billing", "audit", "shipping")], "Ledger", as_json=False)
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= 80
    found = dict(line.split(None, 1) for line in out.splitlines())
    assert found["group"].split() == ["billing", "audit", "shipping"]
    assert found["sent"].split() == ["1234567"] * 3
    assert found["retried"].split() == ["1000123"] * 3
    assert found["duplicates"].split() == ["-"] * 3


def test_more_rows_than_fit_beside_each_other_go_below() -> None:
    blocks = list(turned([{**ROW, "group": f"group-{i}"} for i in range(20)], 80))
    assert max(len(line) for block in blocks for line in block.splitlines()) <= 80
    assert [word for block in blocks for word in block.splitlines()[0].split()[1:]] == [
        f"group-{i}" for i in range(20)
    ]


def test_a_value_wider_than_the_screen_stays_whole() -> None:
    (block,) = turned([{"msgId": "A" * 100, "n": 1}], 80)
    assert "A" * 100 in block


def test_a_narrow_table_stays_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    print_rows([{"group": "g", "sent": 1_234_567}], "Groups", as_json=False)
    assert capsys.readouterr().out == "GROUP     SENT\ng      1234567\n"


def test_json_says_null_where_nothing_is_known(capsys: pytest.CaptureFixture[str]) -> None:
    print_rows([ROW], "Ledger", as_json=True)
    assert json.loads(capsys.readouterr().out) == [ROW]


class Row(dict[str, int]):
    def asDict(self) -> dict[str, int]:
        return self


class Frame(NamedTuple):
    """As much of a DataFrame as is asked of it."""

    rows: int

    def limit(self, count: int) -> Frame:
        return Frame(min(count, self.rows))

    def collect(self) -> list[Row]:
        return [Row(number=number) for number in range(self.rows)]


@pytest.mark.parametrize(("there", "shown"), [(0, 0), (SHOWN, SHOWN), (SHOWN + 1, SHOWN), (5_000, SHOWN)])
def test_rows_that_are_left_out_are_said_to_be(
    there: int, shown: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert show(Frame(there), as_json=True) == (there > 0)  # type: ignore[arg-type]
    told = capsys.readouterr()
    assert len(json.loads(told.out)) == shown
    assert ("there are more" in told.err) == (there > shown)


def test_a_long_line_is_not_broken(capsys: pytest.CaptureFixture[str]) -> None:
    say("x" * 70 + " 1,234,567 messages")
    assert capsys.readouterr().err == "x" * 70 + " 1,234,567 messages\n"


def test_brackets_of_an_error_are_no_markup(capsys: pytest.CaptureFixture[str]) -> None:
    say("KeyError: [/red] [card]")
    assert capsys.readouterr().err == "KeyError: [/red] [card]\n"


def test_frequent_reasons_outlive_a_flood_of_rare_ones() -> None:
    reasons = Reasons()
    reasons.take([("often", 3)])
    for number in range(3 * Reasons.MOST):
        reasons.take([("rare " + "".join(chr(97 + int(sign)) for sign in str(number)), 1)])
    reasons.take([("often", 4), ("twice", 2)])
    assert reasons.most(2) == [("often", 7), ("twice", 2)]


def test_reasons_that_differ_by_an_id_are_one_with_an_example() -> None:
    reasons = Reasons()
    reasons.take([(f"ValueError: card refused for o-{1042 + number}", 1) for number in range(60)])
    reasons.take([("ValueError: card refused for o-7", 40), ("KeyError: 'card'", 5), ("IndexError: 3", 1)])
    assert reasons.most(3) == [
        ("ValueError: card refused for o-1042, or the like", 100),
        ("KeyError: 'card'", 5),
        ("IndexError: 3", 1),
    ]


class Told(NamedTuple):
    batch: int
    rows: int


def test_spark_counts_where_the_pipeline_cannot_tell() -> None:
    batches = Batches()
    batches.take(Told(0, 100))
    assert batches.count(0, 200) == 100, "Spark counts what it reads, however often"
    assert (batches.rows, batches.are_known) == (100, True)
    assert batches.count(1, 50) == 50
    assert (batches.rows, batches.are_known) == (150, False)
    batches.take(Told(2, 7))
    assert batches.rows == 157, "told, and not yet in Spark's progress"
