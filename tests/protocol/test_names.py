# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from aerobee.protocol import names, receipt


@pytest.mark.parametrize(
    "name", ["T", "a-b_c", "%RETRY%g", "ns%topic", "a|b", "9", "t" * 127, "%RETRY%" + "g" * 248]
)
def test_good_topics(name: str) -> None:
    names.check_topic(name)


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("", "blank"),
        ("  ", "blank"),
        ("a b", "characters"),
        ("a+b", "characters"),
        ("ü", "characters"),
        ("a\n", "characters"),
        ("t" * 128, "128 characters, at most 127"),
        ("%DLQ%" + "g" * 251, "at most 255"),
        ("a/b", "characters"),
    ],
)
def test_bad_topics_are_refused_with_the_reason(name: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        names.check_topic(name)


def test_groups_may_have_120_characters() -> None:
    names.check_group("g" * 120)
    with pytest.raises(ValueError, match="121 characters, at most 120"):
        names.check_group("g" * 121)
    with pytest.raises(ValueError, match=r"group name 'a\.b'"):
        names.check_group("a.b")


@pytest.mark.seed("S004-52")
def test_derived_names() -> None:
    assert names.retry_topic("g") == "%RETRY%g"
    assert names.dead_letter_topic("g") == "%DLQ%g"
    assert names.pop_retry_topic("T", "g") == "%RETRY%g_T"
    assert names.pop_retry_topic_v2("T", "g") == "%RETRY%g+T"
    assert names.reply_topic("C") == "C_REPLY_TOPIC"
    assert names.revive_topic("C") == "rmq_sys_REVIVE_LOG_C"
    assert names.broker_member_topic("b") == "rmq_sys_SYNC_BROKER_MEMBER_b"


@pytest.mark.parametrize("flag", ["0", "1", "2"])
def test_a_receipts_flag_and_its_topic_say_the_same(flag: str) -> None:
    real = receipt.real_topic("T", "g", flag)
    assert receipt.retry_flag(real) == flag
    assert names.normal_topic(real, "g") == "T"


def test_the_normal_topic_of_others_is_their_own() -> None:
    assert names.normal_topic("%RETRY%g", "g") == "%RETRY%g"
    assert names.normal_topic("%RETRY%g_", "g") == "%RETRY%g_"
    assert names.normal_topic("T", "g") == "T"


def test_classes_of_names() -> None:
    assert names.is_system_topic("TBW102")
    assert names.is_system_topic("rmq_sys_anything")
    assert not names.is_system_topic("T")
    assert not names.may_send("SCHEDULE_TOPIC_XXXX")
    assert names.may_send("TBW102")
    assert names.is_retry("%RETRY%g")
    assert names.is_dead_letter("%DLQ%g")
    assert names.is_light_queue("%LMQ%q")
    assert names.is_system_group("CID_RMQ_SYS_TRANS")
    assert names.is_system_group("CID_RMQ_SYS_x")
    assert not names.is_system_group("g")
    assert [names.retry_group(topic) for topic in ("%RETRY%g", "%DLQ%g", "T")] == ["g", "g", ""]


@pytest.mark.parametrize(
    ("topic", "may"),
    [
        ("T", True),
        ("t" * 255, True),
        ("t" * 256, False),
        ("%RETRY%g+T", True),
        ("%RETRY%" + "g" * 248, True),
        ("%RETRY%" + "g" * 249, False),
        ("g+T", False),
        ("a b", False),
        ("SCHEDULE_TOPIC_XXXX", False),
        ("rmq_sys_wheel_timer", False),
        ("rmq_sys_TRACE_DATA_eu", True),
        ("rmq_sys_REVIVE_LOG_my cluster", True),
        ("rmq_sys_REVIVE_LOG_../../etc", False),
    ],
)
def test_a_message_that_waits_may_name_only_what_clients_send_to_and_revive_logs(
    topic: str, may: bool
) -> None:
    assert names.may_deliver(topic) is may


@pytest.mark.parametrize(
    ("topic", "may"),
    [
        ("", False),
        (".", False),
        ("..", False),
        ("...", True),
        ("a/b", False),
        ("a\0b", False),
        ("ü" * 127, True),
        ("ü" * 128, False),
        ("t" * 255, True),
        ("\ud800", False),
    ],
)
def test_a_topic_is_the_name_of_one_directory(topic: str, may: bool) -> None:
    assert names.may_exist(topic) is may


def test_a_name_in_a_namespace_is_written_as_older_clients_do() -> None:
    assert names.in_namespace("shop", "orders") == "shop%orders"
    assert names.in_namespace("", "orders") == "orders"
