# SPDX-License-Identifier: Apache-2.0
"""What a setting may be, whichever name it is given under; and that the declarations agree with each other."""

from __future__ import annotations

from typing import Any

import pytest

from aerobee.settings import BrokerConfig, NamesrvConfig, StoreConfig
from aerobee.settings.declare import Declared, Field, fields
from aerobee.settings.names import TABLES, all_fields
from aerobee.settings.official import OFFICIAL, REFUSED

NAN = float("nan")


def field(kind: type[Declared], name: str) -> Field:
    return fields(kind)[name]


@pytest.mark.parametrize(
    ("kind", "values", "words"),
    [
        (StoreConfig, {"retention_hours": -1}, "'retention_hours': -1 is not a number from 0.01 to 876000 hours"),
        (StoreConfig, {"retention_hours": NAN}, "nan is not a number"),
        (StoreConfig, {"retention_hours": float("inf")}, "inf is not a number"),
        (StoreConfig, {"disk_full_ratio": 0}, "'disk_full_ratio': 0 is not a number from 0.01 to 1"),
        (StoreConfig, {"flush_interval_ms": -1}, "-1 is not a whole number, at least 1 ms"),
        (StoreConfig, {"flush_interval_ms": 1.5}, "1.5 is not a whole number"),
        (StoreConfig, {"flush": "never"}, "'never' is not async or sync"),
        (StoreConfig, {"open_files": True}, "True is not a whole number"),
        (StoreConfig, {"record_check": 1}, "1 is not true or false"),
        (StoreConfig, {"data": 3}, "3 is not text"),
        (BrokerConfig, {"port": 65536}, "'port': 65536 is not a whole number from -1 to 65535"),
        (BrokerConfig, {"register_ms": 0}, "0 is not a whole number, at least 1 ms"),
        (NamesrvConfig, {"broker_expiry_ms": -5}, "'broker_expiry_ms': -5"),
        (StoreConfig, {"disk_clean_ratio": 0.95}, "disk_clean_ratio': 0.95 is above disk_full_ratio 0.9"),
        (BrokerConfig, {"tls_cert": "c.pem"}, "'tls_key' is empty"),
        (BrokerConfig, {"tls_key": "k.pem"}, "'tls_cert' is empty"),
        (BrokerConfig, {"tls_required": True}, "'tls_required' needs a certificate"),
    ],
)  # fmt: skip
def test_an_argument_out_of_range_is_refused_with_setting_value_and_range(
    kind: type[Declared], values: dict[str, Any], words: str
) -> None:
    with pytest.raises(ValueError, match=r".") as refused:
        kind(**values)
    assert words in str(refused.value)


@pytest.mark.parametrize(
    ("kind", "name", "called", "text", "value"),
    [
        (StoreConfig, "retention_hours", "fileReservedTime", "48", 48),
        (StoreConfig, "retention_hours", "fileReservedTime", "48.5", 48.5),
        (StoreConfig, "disk_full_ratio", "diskSpaceWarningLevelRatio", "29", 0.29),
        (StoreConfig, "disk_full_ratio", "disk_full_ratio", "0.29", 0.29),
        (StoreConfig, "consume_queue_units", "mappedFileSizeConsumeQueue", "6000000", 300_000),
        (StoreConfig, "timer_max_delay_ms", "timerMaxDelaySec", "3600", 3_600_000),
        (StoreConfig, "flush", "flushDiskType", "SYNC_FLUSH", "sync"),
        (BrokerConfig, "long_polling", "longPollingEnable", "False", False),
        (BrokerConfig, "tls_required", "tls.server.mode", "enforcing", True),
        (BrokerConfig, "tls_required", "tls_required", "true", True),
        (BrokerConfig, "idle_close_ms", "serverChannelMaxIdleTimeSeconds", "60", 60_000),
    ],
)
def test_official_names_carry_official_words_and_units_both_ways(
    kind: type[Declared], name: str, called: str, text: str, value: object
) -> None:
    about = field(kind, name)
    read = about.read(text, called)
    assert (read, type(read)) == (value, type(value))
    assert (about.text(read) if called == name else about.show(read)) == text.replace("False", "false")


@pytest.mark.parametrize(
    ("name", "called", "given", "words"),
    [
        (
            "retention_hours",
            "fileReservedTime",
            "-1",
            "'fileReservedTime' (retention_hours): '-1' is not a number",
        ),
        ("retention_hours", "fileReservedTime", "nan", "'nan' is not a number"),
        ("disk_full_ratio", "diskSpaceWarningLevelRatio", "0", "'0' is not a number from 1 to 100"),
        ("disk_full_ratio", "diskSpaceWarningLevelRatio", [90], "[90] is not a number"),
        ("timer_max_delay_ms", "timerMaxDelaySec", "nan", "'nan' is not a whole number, at least 1"),
        ("flush", "flushDiskType", "NEVER", "'NEVER' is not ASYNC_FLUSH or SYNC_FLUSH"),
        ("flush_interval_ms", "flushIntervalCommitLog", "soon", "'soon' is not a whole number"),
        ("flush_interval_ms", "flushIntervalCommitLog", "inf", "'inf' is not a whole number"),
    ],
)
def test_text_that_is_no_value_is_refused_in_the_words_of_the_name_it_came_under(
    name: str, called: str, given: object, words: str
) -> None:
    with pytest.raises(ValueError, match=r".") as refused:
        field(StoreConfig, name).read(given, called)
    assert words in str(refused.value)


@pytest.mark.parametrize("each", list(all_fields()), ids=lambda each: f"{each.table}.{each.name}")
def test_every_setting_says_what_it_is_and_reads_back_what_it_shows(each: Field) -> None:
    assert each.about.text
    assert each.read(each.show(each.default), each.official) == each.default
    assert each.read(each.text(each.default), each.name) == each.default
    if each.kind in (int, float):
        assert each.about.low is not None, "a number has a range"
        assert each.about.high is not None, "a number has a range"


@pytest.mark.parametrize("table", TABLES)
def test_no_two_settings_share_a_name(table: str) -> None:
    names = [name for each in fields(TABLES[table]).values() for name in each.names]
    if table == "store":  # a broker.conf has both
        names += [name for each in fields(BrokerConfig).values() for name in each.names]
    assert len(names) == len(set(names))


def test_an_alias_that_looks_like_rocketmqs_is_one_of_rocketmqs() -> None:
    given = {each.about.official for each in all_fields() if each.about.official}
    unknown = {name for name in given - OFFICIAL if not name.startswith("tls.")}
    assert unknown == set()
    assert set(REFUSED) <= OFFICIAL
