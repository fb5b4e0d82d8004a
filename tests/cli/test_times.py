# SPDX-License-Identifier: Apache-2.0
"""Times as people write them."""

from __future__ import annotations

import time
from datetime import datetime
from typing import TYPE_CHECKING

import pytest

from aerobee.cli import audit_lines, output
from aerobee.cli.times import parse_duration, parse_start, parse_time
from aerobee.protocol.versions import version_text

if TYPE_CHECKING:
    from collections.abc import Iterator

NOW = 1_800_000_000_000
LOCAL = round(datetime(2026, 8, 1, 12, 30).timestamp() * 1000)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("now", NOW),
        ("-10m", NOW - 600_000),
        ("+30s", NOW + 30_000),
        ("-1.5h", NOW - 5_400_000),
        ("+2d", NOW + 172_800_000),
        ("-99999d", 0),
        ("0", 0),
        ("1700000000", 1_700_000_000_000),
        ("1700000000000", 1_700_000_000_000),
        ("2026-08-01 12:30", LOCAL),
        ("2026-08-01T12:30:00", LOCAL),
        ("20260801123000", LOCAL),
        ("2026-08-01#12:30:00:000", LOCAL),
        ("2026-08-01T12:30:00+00:00", 1_785_587_400_000),
    ],
)
def test_times(text: str, wanted: int) -> None:
    assert parse_time(text, NOW) == wanted


@pytest.fixture
def in_berlin() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TZ", "Europe/Berlin")
        time.tzset()
        yield
    time.tzset()


@pytest.mark.skipif(not hasattr(time, "tzset"), reason="no tzset here")
@pytest.mark.usefixtures("in_berlin")
def test_a_time_is_of_this_machines_zone_unless_it_names_one_and_tables_print_it_so() -> None:
    half_past_twelve_utc = 1_785_587_400_000
    assert parse_time("2026-08-01 14:30", NOW) == half_past_twelve_utc
    assert parse_time("2026-08-01 12:30+00:00", NOW) == half_past_twelve_utc
    assert parse_time("2026-08-01 08:30-04:00", NOW) == half_past_twelve_utc
    assert output.local_time(half_past_twelve_utc) == "2026-08-01 14:30:00.000"
    assert audit_lines.local_time({"time": "2026-08-01T12:30:00.000+00:00"}) == "2026-08-01 14:30:00.000"


@pytest.mark.parametrize("text", ["", "soon", "-10", "+m", "99999999999999999999", "2026-13-01", "12:30 pm"])
def test_what_is_no_time_is_refused_with_examples(text: str) -> None:
    with pytest.raises(ValueError, match="is no time; write it as '2026-08-01 12:30'"):
        parse_time(text, NOW)
    with pytest.raises(ValueError, match="give 'first', 'last', or"):
        parse_start(text, NOW)


def test_where_to_begin() -> None:
    assert [parse_start(text, NOW) for text in ("first", "last", "-1s")] == ["first", "last", NOW - 1000]


@pytest.mark.parametrize(
    ("text", "ms"), [("5", 5_000), ("500ms", 500), ("2m", 120_000), ("0.5s", 500), ("1d", 86_400_000)]
)
def test_lengths_of_time(text: str, ms: int) -> None:
    assert parse_duration(text) == ms


def test_what_is_no_length_of_time_is_refused() -> None:
    with pytest.raises(ValueError, match="is no length of time"):
        parse_duration("a while")


def test_ages_read_well() -> None:
    ages = (0, 350, 12_500, 200_000, 7_500_000, 350_000_000)
    assert [output.age(ms) for ms in ages] == ["-", "350 ms", "12.5 s", "3 m 20 s", "2 h 5 m", "4 d 1 h"]


@pytest.mark.parametrize(
    ("number", "text"), [(479, "V5_3_3"), (401, "V4_9_4"), (478, "V5_3_3_SNAPSHOT"), (7, "7")]
)
def test_versions_by_number(number: int, text: str) -> None:
    assert version_text(number) == text


def test_bodies_fit_a_table() -> None:
    assert output.shown_body(b"a\nb\xff") == "a.b\ufffd"
    assert len(output.shown_body(b"x" * 1000)) == 60
