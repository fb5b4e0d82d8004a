# SPDX-License-Identifier: Apache-2.0
"""`aerobee topics`, `groups`, `messages`, `cluster`: every command's good path, as a table and as JSON."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from aerobee import Admin, BrokerConfig, Message, Options, Producer, PushConsumer, SimpleConsumer
from aerobee.cli import connect
from aerobee.console.writing import time_of_day
from aerobee.errors import DiskFull, NoPermission
from aerobee.protocol.bodies import GoneBroker
from aerobee.testing import TestServer, eventually

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from conftest import Done

pytestmark = pytest.mark.slow


# -- topics ------------------------------------------------------------------------------------------------


def test_a_topic_without_a_number_has_the_brokers_default(good: Callable[..., Done]) -> None:
    """Of the server of these tests: 2."""
    assert good("topics", "create", "cli-usual").out == "created topic cli-usual with 2 queues on broker-a\n"
    assert len(good("topics", "show", "cli-usual", "--json").json["queues"]) == 2


def test_a_broker_that_was_away_when_a_topic_was_made_gets_it_by_the_same_again(
    server: TestServer, aerobee: Callable[..., Done], good: Callable[..., Done]
) -> None:
    good("topics", "create", "cli-early", "--queues", "3", "--perm", "r", "--retention", "12h")
    config = BrokerConfig(name="broker-b", namesrv=server.namesrv)
    with TestServer(config=config, namesrv_port=-1):
        made = good("topics", "create", "cli-early").out
        assert made == "created topic cli-early with 3 queues on broker-b, as broker-a has it\n"
        shown = good("topics", "show", "cli-early", "--json").json
        first, second = shown["brokers"]
        assert (first.pop("brokerName"), second.pop("brokerName")) == ("broker-a", "broker-b")
        assert first == second
        places = [(each["brokerName"], each["queueId"]) for each in shown["queues"]]
        assert places == sorted(places) and len(places) == 6
        assert aerobee("topics", "create", "cli-early").code == 1
        assert good("topics", "create", "cli-both", "-q", "1").out.endswith(" on broker-a, broker-b\n")


def test_a_topic_lives_from_create_to_delete(aerobee: Callable[..., Done], good: Callable[..., Done]) -> None:
    good("topics", "create", "cli-life", "--queues", "3")
    assert "cli-life" in good("topics").out
    assert aerobee("topics", "create", "cli-life").code == 1
    good("topics", "update", "cli-life", "--queues", "5", "--perm", "r")
    shown = good("topics", "show", "cli-life", "--json").json
    assert [(b["readQueues"], b["perm"]) for b in shown["brokers"]] == [(5, "r")]
    assert len(shown["queues"]) == 5
    assert "READ_QUEUES" in good("topics", "show", "cli-life").out
    good("topics", "delete", "cli-life", "--yes")
    assert good("topics", "list", "cli-life", "--json").json == []


def test_a_topic_keeps_messages_for_so_long_as_its_operator_says(
    aerobee: Callable[..., Done], good: Callable[..., Done]
) -> None:
    told = (
        "the log of broker-a keeps messages for 72 h, so the topic will too; `aerobee cluster set retention"
    )
    assert told in good("topics", "create", "cli-keeps", "--retention", "7d").err

    def kept() -> tuple[str, dict[str, str]]:
        [broker] = good("topics", "show", "cli-keeps", "--json").json["brokers"]
        return broker["retention"], broker["attributes"]

    assert kept() == ("168h", {"reserve.time": "168"})
    assert told in good("topics", "update", "cli-keeps", "--retention", "7d").err
    assert good("topics", "update", "cli-keeps", "--retention", "12h").err == ""
    assert kept() == ("12h", {"reserve.time": "12"})
    assert "12h" in good("topics", "show", "cli-keeps").out
    good("topics", "update", "cli-keeps", "--retention", "log")
    assert kept() == ("log", {"reserve.time": "-1"})
    for wrong, told in (("48", "of what? Write 48h or 48d"), ("90m", "whole hours"), ("0h", "from 1h on")):
        refused = aerobee("topics", "update", "cli-keeps", "--retention", wrong)
        assert (refused.code, told in refused.err) == (2, True), refused


def test_topics_are_counted_and_chosen_by_pattern(good: Callable[..., Done]) -> None:
    good("send", "cli-count-a", "-c", "7")
    good("send", "cli-count-b", "x")
    rows = good("topics", "list", "cli-count-*", "--json").json
    assert {row["topic"]: row["messages"] for row in rows} == {"cli-count-a": 7, "cli-count-b": 1}
    every = {row["topic"] for row in good("topics", "list", "--all", "--json").json}
    assert "SCHEDULE_TOPIC_XXXX" in every
    assert good("topics", "--json", "list", "cli-count-a").json == [rows[0]]


def test_traffic_is_shown_by_topic_and_group(good: Callable[..., Done]) -> None:
    good("send", "cli-traffic", "-c", "3")
    good("consume", "cli-traffic", "-g", "cli-traffic", "-c", "3", "--timeout", "20s")
    [row] = good("topics", "stats", "cli-traffic", "--json").json
    assert (row["group"], row["accumulation"]) == ("cli-traffic", 0)
    assert "IN_24_H" in good("topics", "stats", "cli-traffic").out


# -- groups ------------------------------------------------------------------------------------------------


def test_a_group_lives_from_create_to_delete(good: Callable[..., Done]) -> None:
    good("groups", "create", "cli-group", "--retries", "3")
    assert "cli-group" in good("groups").out
    assert "nobody consumes" in good("groups", "show", "cli-group").out
    good("groups", "delete", "cli-group", "--yes")
    assert "cli-group" not in {row["group"] for row in good("groups", "list", "--json").json}


@pytest.mark.seed("S000-3")
def test_the_mode_of_a_group_is_set_before_its_first_consumer(good: Callable[..., Done]) -> None:
    good("send", "cli-mode", "x")
    good("groups", "mode", "cli-mode", "pop", "-t", "cli-mode", "--share", "8")
    good("consume", "cli-mode", "-g", "cli-mode", "-c", "1", "--timeout", "20s")
    assert good("groups", "mode", "cli-mode", "--json").json == {"cli-mode": "POP"}
    assert "POP" in good("groups", "mode", "cli-mode").out


def test_figures_are_exact_by_group_and_queue(good: Callable[..., Done]) -> None:
    good("topics", "create", "cli-exact", "--queues", "1")
    good("send", "cli-exact", "-c", "10")
    good("consume", "cli-exact", "-g", "cli-exact", "-c", "4", "--mode", "pull", "--timeout", "20s")
    shown = good("groups", "show", "cli-exact", "--json").json
    assert {key: shown[key] for key in ("ready", "inFlight", "retrying", "delayed", "dead", "exact")} == {
        "ready": 6, "inFlight": 0, "retrying": 0, "delayed": 0, "dead": 0, "exact": True,
    }  # fmt: skip
    [queue] = [each for each in shown["queues"] if each["topic"] == "cli-exact"]
    assert (queue["committed"], queue["maxOffset"], queue["ready"]) == (4, 10, 6)
    assert shown["oldestMs"] > 0


def test_a_group_is_moved(good: Callable[..., Done]) -> None:
    good("topics", "create", "cli-reset", "--queues", "1")
    good("send", "cli-reset", "-c", "5")
    good("consume", "cli-reset", "-g", "cli-reset", "-c", "5", "--timeout", "20s")

    def offset(*to: str) -> int:
        [row] = good("groups", "reset", "cli-reset", "-t", "cli-reset", *to, "--yes", "--json").json
        found: int = row["offset"]
        return found

    assert offset("--to", "first") == 0
    assert offset("--to", "last") == 5
    assert offset("--to", "-10m") == 0
    assert offset("--queue", "0", "--to", "first") == 0
    assert offset("--queue", "0", "--offset", "3") == 3
    good("groups", "create", "cli-reset-2")
    good("groups", "clone", "cli-reset", "cli-reset-2", "-t", "cli-reset")
    [queue] = good("groups", "show", "cli-reset-2", "--json").json["queues"][:1]
    assert queue["committed"] == 3


def test_a_move_is_shown_in_messages_before_it_is_made(
    aerobee: Callable[..., Done], good: Callable[..., Done]
) -> None:
    good("topics", "create", "cli-plan", "--queues", "1")
    good("send", "cli-plan", "--count", "5")
    good("consume", "cli-plan", "-g", "cli-plan", "--count", "5", "--timeout", "20s")
    move = ("groups", "reset", "cli-plan", "-t", "cli-plan", "--json")
    [row] = good(*move, "--to", "first", "--dry-run").json
    assert (row["from"], row["offset"], row["again"], row["skipped"]) == (5, 0, 5, 0)
    assert good("groups", "show", "cli-plan", "--json").json["queues"][0]["committed"] == 5, (
        "nothing was moved"
    )
    asked = aerobee(*move, "--queue", "0", "--offset", "2")
    assert (asked.code, asked.out) == (2, "")
    assert "3 messages come again, 0 are skipped? Say so with --yes" in asked.err
    good(*move, "--queue", "0", "--offset", "2", "--yes")
    [row] = good(*move, "--to", "last", "--dry-run").json
    assert (row["from"], row["offset"], row["again"], row["skipped"]) == (2, 5, 0, 3)
    for_people, said = move[:-1], "group cli-plan in cli-plan: 0 messages again, 3 skipped"
    assert good(*for_people, "--to", "last", "--dry-run").out.splitlines()[-1] == f"would move {said}"
    assert good(*for_people, "--to", "last", "--yes").out.splitlines()[-1] == f"moved {said}"


def test_a_profile_after_the_command_is_told_its_place(aerobee: Callable[..., Done]) -> None:
    done = aerobee("topics", "--profile", "prod")
    assert (done.code, "--profile goes before the command" in done.err) == (2, True)


async def test_members_and_conflicting_subscriptions_are_shown(
    server: TestServer, good: Callable[..., Done]
) -> None:
    async def handle(message: object) -> None: ...

    def consumer(tags: str) -> PushConsumer:
        return PushConsumer(
            server.namesrv, group="cli-conflict", topics={"cli-conflict": tags}, handler=handle
        )

    good_in_thread = lambda *arguments: asyncio.to_thread(good, *arguments)  # noqa: E731
    await good_in_thread("topics", "create", "cli-conflict")
    async with consumer("a"), consumer("b"):
        await eventually(lambda: server.lag("cli-conflict").conflicts)
        listed = await good_in_thread("groups", "list")
        assert "conflict: members of cli-conflict subscribe to cli-conflict differently" in listed.err
        shown = (await good_in_thread("groups", "show", "cli-conflict", "--json")).json
    assert sorted(shown["conflicts"]["cli-conflict"]) == ["a", "b"]
    assert len(shown["clients"]) == 2
    assert set(shown["subscriptions"]) >= {"cli-conflict"}


async def test_each_queue_names_its_owner_and_what_it_holds(
    server: TestServer, good: Callable[..., Done]
) -> None:
    release = asyncio.Event()

    async def handle(message: object) -> None:
        await release.wait()

    await asyncio.to_thread(good, "topics", "create", "cli-owned", "--queues", "1")
    await asyncio.to_thread(good, "send", "cli-owned", "-c", "3")
    topics = {"cli-owned": "*"}
    async with PushConsumer(
        server.namesrv, group="cli-owned", topics=topics, handler=handle, start="first"
    ) as consumer:
        await eventually(lambda: server.lag("cli-owned").in_flight == 3)
        done = await asyncio.to_thread(good, "groups", "show", "cli-owned")
        shown = (await asyncio.to_thread(good, "groups", "show", "cli-owned", "--json")).json
        release.set()
    [queue] = [each for each in shown["queues"] if each["topic"] == "cli-owned"]
    assert (queue["owner"], queue["held"], queue["inFlight"]) == (consumer.session.client_id, 3, 3)
    [client] = shown["clients"]
    assert (client["held"], client["failedRate"]) == (3, 0.0)
    assert "OWNER" in done.out and done.out.count(consumer.session.client_id) >= 2


async def test_dead_letters_are_listed_and_sent_again(
    server: TestServer, good: Callable[..., Done], aerobee: Callable[..., Done]
) -> None:
    async def fail(message: object) -> None:
        raise RuntimeError("never")

    await asyncio.to_thread(good, "groups", "create", "cli-dead", "--retries", "0")
    await asyncio.to_thread(good, "send", "cli-dead", "doomed", "--keys", "d-1")
    async with PushConsumer(
        server.namesrv,
        group="cli-dead",
        topics={"cli-dead": "*"},
        handler=fail,
        start="first",
        options=Options(max_reconsume=0),  # a pulling client's own limit goes before the group's
    ):
        await eventually(lambda: server.lag("cli-dead").dead == 1, timeout_ms=20_000)
    [letter] = (await asyncio.to_thread(good, "groups", "dead", "cli-dead", "--json")).json
    assert (letter["body"], letter["originTopic"], letter["keys"]) == ("doomed", "cli-dead", ["d-1"])
    assert letter["attempts"] == 1
    assert letter["reason"] == "RuntimeError: never"
    listed = (await asyncio.to_thread(good, "groups", "dead", "cli-dead")).out
    assert "doomed" in listed
    assert "RuntimeError: never" in listed
    gone = (
        await asyncio.to_thread(good, "messages", "get", letter["msgId"], "-t", "cli-dead", "--json")
    ).json
    assert gone["groups"]["cli-dead"].startswith("dead: ")
    dry = await asyncio.to_thread(good, "groups", "resend", "cli-dead", "--dry-run", "--key", "d-*")
    assert "1 dead letter of cli-dead would be sent again" in dry.out
    assert letter["msgId"] in dry.out
    assert "d-1" in dry.out
    none = await asyncio.to_thread(good, "groups", "resend", "cli-dead", "--dry-run", "--key", "x*", "--json")
    assert none.json == []
    await asyncio.to_thread(good, "consume", "cli-dead", "-g", "cli-other", "-c", "1", "--mode", "pull")
    wrong = await asyncio.to_thread(aerobee, "groups", "resend", "cli-dead", "--yes", "--id", "nosuch")
    assert (wrong.code, wrong.out) == (1, "")
    assert (
        "no dead letter of 'cli-dead' has id 'nosuch'; `aerobee groups dead cli-dead` lists them" in wrong.err
    )
    asked = await asyncio.to_thread(aerobee, "groups", "resend", "cli-dead")
    assert asked.code == 2, "nobody is there to answer"
    assert "1 other group reads cli-dead and will get them too (cli-other)." in " ".join(asked.err.split())
    [sent] = (await asyncio.to_thread(good, "groups", "resend", "cli-dead", "--yes", "--json")).json
    again = (await asyncio.to_thread(good, "messages", "by-key", "cli-dead", "d-1", "--json")).json
    [new] = [row for row in again if row["msgId"] == sent["newMsgId"]]
    assert "AEROBEE_LAST_ERROR" not in new["properties"], "a new message has not failed yet"
    told = await asyncio.to_thread(good, "groups", "resend", "cli-dead", "--yes", "--id", letter["msgId"])
    heading, row, last = told.out.splitlines()
    assert (heading.split()[:3], last) == (
        ["MESSAGE", "SENT_AS", "TO_TOPIC"],
        "sent 1 dead letter of cli-dead again",
    )
    assert row.split()[0] == letter["msgId"] and row.split()[1] not in (letter["msgId"], sent["newMsgId"])


# -- messages ----------------------------------------------------------------------------------------------


def test_a_message_is_found_by_each_of_its_names(good: Callable[..., Done]) -> None:
    good("topics", "create", "cli-find", "--queues", "1")
    [sent] = good("send", "cli-find", "needle", "--keys", "f-1", "--json").lines
    by_id = good("messages", "get", sent["msgId"], "-t", "cli-find", "--json").json
    assert good("messages", "get", sent["msgId"], "--json").json == by_id, "its topic is found"
    by_offset_id = good("messages", "get", sent["offsetMsgId"], "--json").json
    by_offset = good("messages", "at", "cli-find", "-q", "0", "-o", "0", "--json").json
    [by_key] = good("messages", "by-key", "cli-find", "f-1", "--json").json
    assert {each["msgId"] for each in (by_id, by_offset_id, by_offset, by_key)} == {sent["msgId"]}
    assert good("messages", "get", sent["msgId"], "-t", "cli-find", "--raw").out == "needle"
    assert "needle" in good("messages", "get", sent["msgId"], "-t", "cli-find").out
    assert "needle" in good("messages", "by-key", "cli-find", "f-1").out


def test_what_groups_made_of_a_message_is_told(good: Callable[..., Done]) -> None:
    good("topics", "create", "cli-track", "--queues", "1")
    good("send", "cli-track", stdin=b"first\nsecond")
    good("consume", "cli-track", "-g", "cli-track", "--mode", "pull", "-c", "1", "--timeout", "20s")
    states = [
        good("messages", "at", "cli-track", "-q", "0", "-o", str(n), "--json").json["groups"] for n in (0, 1)
    ]
    assert states == [{"cli-track": "consumed"}, {"cli-track": "waiting, nobody consumes"}]


async def test_a_message_that_failed_waits_for_its_next_attempt(
    server: TestServer, good: Callable[..., Done]
) -> None:
    def fail(message: object) -> None:
        raise RuntimeError("not yet")

    await asyncio.to_thread(good, "topics", "create", "cli-failed", "--queues", "1")
    sent = (await asyncio.to_thread(good, "send", "cli-failed", "late", "--json")).json
    async with PushConsumer(
        server.namesrv, group="cli-failed", topics={"cli-failed": "*"}, handler=fail, start="first"
    ):
        await eventually(lambda: server.lag("cli-failed").delayed == 1, timeout_ms=20_000)
        shown = (await asyncio.to_thread(good, "messages", "get", sent["msgId"], "--json")).json
    assert shown["groups"]["cli-failed"].startswith("failed, "), "its group's offset is past it"


async def test_a_message_that_is_leased_says_until_when(
    server: TestServer, good: Callable[..., Done]
) -> None:
    await asyncio.to_thread(good, "topics", "create", "cli-leased", "--queues", "1")
    sent = (await asyncio.to_thread(good, "send", "cli-leased", "held", "--json")).json
    async with SimpleConsumer(
        server.namesrv, group="cli-leased", topics={"cli-leased": "*"}, start="first"
    ) as consumer:
        (message,) = await consumer.receive(max_messages=1, invisible_ms=60_000)
        shown = (await asyncio.to_thread(good, "messages", "get", sent["msgId"], "--json")).json
        await message.ack()
    assert shown["groups"]["cli-leased"].startswith("in flight until 20")


async def test_what_happened_to_a_message_is_told_by_those_who_trace(
    server: TestServer, good: Callable[..., Done], aerobee: Callable[..., Done]
) -> None:
    attempts = 0

    async def fail_once(message: object) -> None:
        nonlocal attempts
        attempts += 1
        if attempts == 1:
            raise RuntimeError("at first")

    options = Options(trace=True)
    async with Producer(server.namesrv, group="cli-traced", options=options) as producer:
        sent = await producer.send(Message("cli-traced", b"x"))
    async with PushConsumer(
        server.namesrv, group="cli-tracing", topics={"cli-traced": "*"}, handler=fail_once, start="first",
        options=options,
    ):  # fmt: skip
        await eventually(lambda: attempts == 2, timeout_ms=20_000)
    rows = (await asyncio.to_thread(good, "messages", "trace", sent.message_id, "--json")).json
    told = [(row["what"], row["group"], row["attempt"], row["result"]) for row in rows]
    assert [each for each in told if each[0] in ("sent", "given", "handled")] == [
        ("sent", "cli-traced", None, "ok"),
        ("given", "cli-tracing", 1, None),
        ("handled", "cli-tracing", 1, "failed"),
        ("given", "cli-tracing", 2, None),
        ("handled", "cli-tracing", 2, "ok"),
    ]
    assert ("stored", None, None, None) in told
    [failed] = [row for row in rows if row["what"] == "returned"]
    assert (failed["group"], failed["why"]) == ("cli-tracing", "RuntimeError: at first")
    assert [row["at"] for row in rows] == sorted(row["at"] for row in rows)
    assert "TOOK_MS" in (await asyncio.to_thread(good, "messages", "trace", sent.message_id)).out
    [untraced] = (await asyncio.to_thread(good, "send", "cli-traced", "x", "--json")).lines
    kept = await asyncio.to_thread(good, "messages", "trace", untraced["msgId"], "--json")
    assert [row["what"] for row in kept.json] == ["sent", "stored"]
    assert "its clients must trace, ProducerOptions(trace=True)" in kept.err
    unknown = untraced["msgId"][:-8] + "FFFFFFFF"
    missed = await asyncio.to_thread(aerobee, "messages", "trace", unknown)
    assert missed.code == 1
    assert "no message of that id" in missed.err


def test_a_topic_is_browsed_by_time_tag_and_queue(good: Callable[..., Done]) -> None:
    good("topics", "create", "cli-browse", "--queues", "1")
    for tag in ("a", "b", "a"):
        good("send", "cli-browse", tag, "--tags", tag)
    browse = ("messages", "browse", "cli-browse")
    assert [row["body"] for row in good(*browse, "--json").lines] == ["a", "b", "a"]
    assert [row["body"] for row in good(*browse, "--tags", "b", "--json").lines] == ["b"]
    assert [row["queueOffset"] for row in good(*browse, "--from", "last", "-l", "2", "--json").lines] == [
        1,
        2,
    ]
    assert len(good(*browse, "--from", "-1h", "--until", "now", "-q", "0", "--json").lines) == 3
    assert good(*browse, "--from", "+1h", "--json").lines == []
    assert "BODY" in good(*browse, "--limit", "1").out


# -- cluster -----------------------------------------------------------------------------------------------


def test_the_cluster_and_its_settings(server: TestServer, good: Callable[..., Done]) -> None:
    [broker] = good("cluster", "--json").json
    assert (broker["brokerName"], broker["address"]) == ("broker-a", server.broker_address)
    assert good("cluster", "list", "--json").json[0]["address"] == server.broker_address
    assert "BROKER" in good("cluster").out
    assert "putTps" in good("cluster", "status", "*Tps").out
    assert good("cluster", "config", "maxMessage*", "--json").json == {
        "broker-a": {"maxMessageSize": "4194304"}
    }
    good("cluster", "set", "longPollingEnable=true", "-b", "broker-a")
    assert good("cluster", "stop-writes", "broker-a").out == "writes to broker-a are off\n"
    assert good("cluster", "allow-writes", "broker-a").out == "writes to broker-a are on\n"


def test_the_cluster_says_which_brokers_are_gone(
    good: Callable[..., Done], monkeypatch: pytest.MonkeyPatch
) -> None:
    since = connect.clock.wall() - 65_000
    away = GoneBroker(
        cluster="DefaultCluster",
        broker_name="broker-b",
        broker_addr="127.0.0.1:21231",
        since=since,
        why="silent",
    )

    async def gone_brokers(self: Admin) -> list[GoneBroker]:
        return [away]

    monkeypatch.setattr(Admin, "gone_brokers", gone_brokers)
    sentence = good("cluster").out.splitlines()[-1]
    assert sentence.startswith(
        f"Broker broker-b at 127.0.0.1:21231 has been gone since {time_of_day(since)} (1 m 5 s)."
    )
    assert sentence in good("top").out
    listed = good("topics", "list", "--json")
    assert listed.json and listed.err == f"{sentence}\n", "their queues and messages are not counted"
    row = good("cluster", "--json").json[-1]
    assert (row["brokerName"], row["goneSince"], row["up"]) == ("broker-b", since, "gone")

    async def refused(self: Admin) -> list[GoneBroker]:
        raise NoPermission("not for you")

    monkeypatch.setattr(Admin, "gone_brokers", refused)
    assert "gone" not in good("cluster").out + good("top").out


def test_the_cluster_says_which_brokers_refuse_messages(
    server: TestServer, good: Callable[..., Done], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "refuses" not in good("cluster").out
    full = DiskFull("9 bytes free, sends stop below 10 (min_free_bytes)")
    monkeypatch.setattr(type(server.server.broker.store), "refusal", full)
    sentence = f"Broker broker-a refuses messages. It says: {full}. Consumers go on."
    assert good("cluster", "--json").json[0]["refuses"] == str(full)
    assert good("cluster").out.splitlines()[-1] == sentence
    assert sentence in good("top").out


# -- settings ----------------------------------------------------------------------------------------------


def test_settings_are_listed_with_value_source_range_and_whether_they_may_change(
    good: Callable[..., Done], tmp_path: Path
) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text("fileReservedTime=48\nsendMessageThreadPoolNums=4\n")
    [row] = good("settings", "filereserved*", "--config", str(conf), "--json").json
    assert row == {
        "setting": "store.retention_hours", "value": 48, "from": f"file {conf}", "default": 72, "unit": "hours",
        "range": "0.01 to 876000 hours", "live": True, "official": "fileReservedTime",
        "about": "age at which commit-log files are deleted",
    }  # fmt: skip
    shown = good("settings", "--set", "longPollingEnable=false").out.splitlines()
    assert shown[0].split() == ["SETTING", "VALUE", "FROM", "RANGE", "LIVE", "OFFICIAL"]
    line = next(line for line in shown if line.startswith("broker.long_polling"))
    assert line.split() == ["broker.long_polling", "false", "flag", "--set", "-", "yes", "longPollingEnable"]


def test_settings_of_a_running_broker(server: TestServer, good: Callable[..., Done]) -> None:
    done = good("cluster", "set", "popPollingSize=77")
    assert done.out == "changed popPollingSize: 1024 -> 77 of broker-a, until its next start\n"
    for secret in ("init_user", "inner_credentials", "otlp_headers"):
        [row] = good("settings", secret, "-b", "broker-a", "--json").json
        assert (row["value"], row["from"]) == ("(hidden)", "not told")
    rows = {row["setting"]: row for row in good("settings", "-b", "broker-a", "--json").json}
    assert (rows["broker.pop_polling_per_key"]["value"], rows["broker.pop_polling_per_key"]["from"]) == (
        77, "live",
    )  # fmt: skip
    assert rows["broker.default_queues"]["from"] == "broker broker-a"
    assert rows["broker.pop_polling_total"]["from"] == "default"
    good("cluster", "set", "popPollingSize=1024")
    [back] = good("settings", "pop_polling_per_key", "-b", "broker-a", "--json").json
    assert back["from"] == "default"


def test_a_changed_setting_is_told_by_the_name_and_in_the_unit_that_was_typed(
    good: Callable[..., Done],
) -> None:
    def answer(pair: str) -> str:
        return good("cluster", "set", pair).out.removesuffix("\n")

    assert answer("disk_full_ratio=0.9") == "disk_full_ratio of broker-a is 0.9 already"
    assert answer("diskSpaceWarningLevelRatio=90") == "diskSpaceWarningLevelRatio of broker-a is 90 already"
    until = "of broker-a, until its next start"
    assert answer("disk_full_ratio=0.95") == f"changed disk_full_ratio: 0.9 -> 0.95 {until}"
    assert answer("diskSpaceWarningLevelRatio=90") == f"changed diskSpaceWarningLevelRatio: 95 -> 90 {until}"
    assert answer("long_polling=true") == "long_polling of broker-a is true already"
    both = good("cluster", "set", "min_free_bytes=1", "long_polling=true").out.splitlines()
    assert both == [f"changed min_free_bytes: 0 -> 1 {until}", "long_polling of broker-a is true already"]
    assert answer("minFreeBytes=0") == f"changed minFreeBytes: 1 -> 0 {until}"


def test_only_what_is_not_the_default_may_be_listed(
    good: Callable[..., Done], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for ratio in ("CLEAN", "FULL"):  # of all tests
        monkeypatch.delenv(f"AEROBEE_STORE__DISK_{ratio}_RATIO")
    conf = tmp_path / "broker.conf"
    conf.write_text("fileReservedTime=48\n")
    rows = good("settings", "--changed", "--config", str(conf), "--json").json
    assert [(row["setting"], row["value"]) for row in rows] == [("store.retention_hours", 48)]
    running = {row["setting"] for row in good("settings", "--changed", "-b", "broker-a", "--json").json}
    assert {"broker.default_queues", "store.delay_levels"} <= running
    assert "broker.init_user" not in running and "broker.pop_polling_total" not in running
    assert "everything is the default" in good("settings", "--changed", "pop*").err


# -- on a terminal -----------------------------------------------------------------------------------------


def test_tables_on_a_terminal_are_drawn_and_never_read_as_markup(
    good: Callable[..., Done], monkeypatch: pytest.MonkeyPatch
) -> None:
    good("send", "cli-drawn", "[bold]not markup[/bold]")
    monkeypatch.setattr("aerobee.cli.output.on_terminal", lambda: True)
    monkeypatch.setenv("COLUMNS", "160")
    drawn = good("messages", "browse", "cli-drawn").out
    assert "[bold]not markup[/bold]" in drawn
    assert "─" in drawn
    for command in (("topics",), ("groups",), ("cluster",), ("topics", "show", "cli-drawn")):
        assert "─" in good(*command).out
