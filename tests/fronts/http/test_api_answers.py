# SPDX-License-Identifier: Apache-2.0
"""/api field by field: what the gates are asked, what is answered, and where numbers and texts end."""

from __future__ import annotations

import base64
import json
import re
from types import SimpleNamespace as Thing
from typing import TYPE_CHECKING, Any

import pytest

from aerobee import __version__
from aerobee.broker.operations.send import PlainOrigin, send
from aerobee.errors import (
    AccessDenied,
    AclDenied,
    DiskFull,
    GroupNotFound,
    InvalidParameter,
    QueryNotFound,
    StoreError,
    TopicNotFound,
)
from aerobee.fronts.http import shown
from aerobee.fronts.http.api import ENTRIES, Entry
from aerobee.fronts.http.call import credentials, refusal
from aerobee.fronts.http.given import MAX_BODY, Given
from aerobee.fronts.http.openapi import described
from aerobee.protocol import bodies, message
from aerobee.protocol.command import header_fields
from aerobee.protocol.message import Record
from aerobee.settings.declare import fields
from tests.fronts.http.asking import act, ask

if TYPE_CHECKING:
    from aerobee.server import Server

# -- what the gates are asked ------------------------------------------------------------------------------

TOLD = {
    "topic": "t", "group": "g", "key": "k", "id": "7F00000100002A9F0000000000001267", "mode": "POP", "share": 2,
    "queues": 3, "perm": 4, "attributes": {"message.type": "FIFO", "a": "b"}, "retryMaxTimes": 5,
    "consumeEnable": False, "timestamp": 7,
}  # fmt: skip
CREATED = {
    "topic": "t", "defaultTopic": "TBW102", "readQueueNums": "3", "writeQueueNums": "3", "perm": "4",
    "topicFilterType": "SINGLE_TAG", "order": "false",
    "attributes": "+message.type=FIFO,+a=b",
}  # fmt: skip
GATES: dict[tuple[str, str], tuple[int, dict[str, str]]] = {
    ("GET", "/cluster"): (28, {}),
    ("GET", "/topics"): (21, {}),
    ("GET", "/topics/{topic}"): (202, {"topic": "t"}),
    ("POST", "/topics/{topic}"): (17, CREATED),
    ("POST", "/topics/{topic}/delete"): (215, {"topic": "t"}),
    ("GET", "/groups"): (201, {}),
    ("GET", "/groups/{group}"): (0, {"group": "g", "topic": "t"}),
    ("GET", "/groups/{group}/members"): (203, {"consumerGroup": "g"}),
    ("GET", "/groups/{group}/message"): (20006, {"consumerGroup": "g", "topic": "t"}),
    ("POST", "/groups/{group}"): (200, {}),
    ("POST", "/groups/{group}/delete"): (207, {"groupName": "g"}),
    ("POST", "/groups/{group}/reset"): (222, {"group": "g", "topic": "t"}),
    ("POST", "/groups/{group}/mode"): (401, {}),
    ("GET", "/messages"): (12, {"topic": "t", "key": "k"}),
    ("GET", "/messages/{id}"): (33, {"offset": "4711"}),
    ("GET", "/clients"): (328, {}),
    ("GET", "/settings"): (26, {}),
    ("POST", "/settings"): (25, {}),
}


def test_every_entry_is_known_here() -> None:
    assert {(entry.method, entry.path) for entry in ENTRIES} == set(GATES)


def test_what_an_entry_takes_is_described_by_the_names_it_reads() -> None:
    """And an entry whose description names nothing reads nothing but its path."""

    class Reads(Given):
        def __init__(self) -> None:
            super().__init__(TOLD)
            self.seen: set[str] = set()

        def text(self, name: str, default: str | None = None) -> str:
            self.seen.add(name)
            return super().text(name, default)

        def number(self, name: str, default: int, low: int = 0, high: int = 2**63 - 1) -> int:
            self.seen.add(name)
            return super().number(name, default, low, high)

        def table(self, name: str) -> dict[str, str]:
            self.seen.add(name)
            return super().table(name)

    described_ = {(entry.method, entry.path): set(entry.takes) for entry in ENTRIES}
    page = {"contains", "start", "limit"}
    assert described_ == {
        **{key: set() for key in GATES},
        ("GET", "/topics"): page,
        ("GET", "/groups"): page,
        ("POST", "/topics/{topic}"): {"queues", "perm", "attributes"},
        ("GET", "/groups/{group}"): {"topic"},
        ("GET", "/groups/{group}/message"): {"topic", "queueId", "offset"},
        ("POST", "/groups/{group}"): {"retryMaxTimes", "consumeEnable"},
        ("POST", "/groups/{group}/reset"): {"topic", "timestamp"},
        ("POST", "/groups/{group}/mode"): {"topic", "mode", "share"},
        ("GET", "/messages"): {"topic", "key", "limit"},
        ("POST", "/settings"): {"any setting"},
    }
    for entry in ENTRIES:
        given = Reads()
        entry.asks(given)
        in_path = {part.strip("{}") for part in entry.path.split("/") if part.startswith("{")}
        assert given.seen <= set(entry.takes) | in_path, entry.path


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: f"{entry.method} {entry.path}")
def test_gates_are_asked_as_mqadmin_would_ask(entry: Entry) -> None:
    """The same rights decide, and of the same topic and group."""
    code, wanted = GATES[entry.method, entry.path]
    asked = entry.asks(Given(TOLD))
    if code:
        assert asked.header.code == code
    said = header_fields(asked.header)
    assert wanted.items() <= said.items()
    assert not [name for name, text in said.items() if text in ("t", "g", "k") and name not in wanted]


def test_bodies_for_the_gates_say_what_is_asked_for() -> None:
    by = {(entry.method, entry.path): entry.asks for entry in ENTRIES}
    config = bodies.decode(by["POST", "/groups/{group}"](Given(TOLD)).body, bodies.GroupConfig)
    assert (config.group_name, config.retry_max_times, config.consume_enable) == ("g", 5, False)
    usual = bodies.decode(by["POST", "/groups/{group}"](Given({"group": "g"})).body, bodies.GroupConfig)
    assert (usual.retry_max_times, usual.consume_enable) == (16, True)
    mode = bodies.decode(by["POST", "/groups/{group}/mode"](Given(TOLD)).body, bodies.RequestMode)
    assert (mode.consumer_group, mode.topic, mode.mode, mode.pop_share_queue_num) == (
        "g",
        "t",
        bodies.Mode.POP,
        2,
    )
    alone = {"group": "g", "topic": "t", "mode": "PULL"}
    mode = bodies.decode(by["POST", "/groups/{group}/mode"](Given(alone)).body, bodies.RequestMode)
    assert (mode.mode, mode.pop_share_queue_num) == (bodies.Mode.PULL, 0)
    change = Given({"pull_messages": 7, "long_polling": False, "name": "x"})
    assert by["POST", "/settings"](change).body == b"pull_messages=7\nlong_polling=false\nname=x"
    plain = header_fields(by["POST", "/topics/{topic}"](Given({"topic": "t"})).header)
    assert (plain["readQueueNums"], plain["writeQueueNums"], plain["perm"]) == ("8", "8", "6")
    assert "attributes" not in plain


@pytest.mark.parametrize(
    ("path", "given", "said"),
    [
        ("/topics/{topic}", {"queues": 0}, "'queues' is 0; a whole number from 1 to 65536 is wanted"),
        (
            "/topics/{topic}",
            {"queues": 65_537},
            "'queues' is 65537; a whole number from 1 to 65536 is wanted",
        ),
        ("/topics/{topic}", {"perm": 8}, "'perm' is 8; a whole number from 0 to 7 is wanted"),
        ("/topics/{topic}", {"perm": -1}, "'perm' is -1; a whole number from 0 to 7 is wanted"),
        (
            "/groups/{group}",
            {"retryMaxTimes": -2},
            "'retryMaxTimes' is -2; a whole number from -1 to 1000000",
        ),
        (
            "/groups/{group}",
            {"retryMaxTimes": 1_000_001},
            "'retryMaxTimes' is 1000001; a whole number from -1",
        ),
        ("/groups/{group}/mode", {"mode": "PUSH"}, "'mode' is neither PULL nor POP"),
        ("/groups/{group}/mode", {"share": -2}, "'share' is -2; a whole number from -1 to 65536 is wanted"),
        ("/groups/{group}/mode", {"share": 65_537}, "'share' is 65537; a whole number from -1 to 65536"),
        ("/messages/{id}", {"id": "xyz"}, "'id' is 'xyz': an offset id is wanted, as `offsetId` tells it"),
        ("/settings", {}, None),
    ],
)
def test_numbers_and_words_have_ends(path: str, given: dict[str, Any], said: str | None) -> None:
    (asks,) = [e.asks for e in ENTRIES if e.path == path and (e.method == "POST" or path == "/messages/{id}")]
    if said is None:
        for wrong in ({}, {"a\nb": 1}, {"a": "1\r\nb=2"}):
            with pytest.raises(InvalidParameter, match="send an object of settings and their values"):
                asks(Given(wrong))
        return
    with pytest.raises(InvalidParameter) as refused:
        asks(Given({**TOLD, **given}))
    assert refused.value.remark.startswith(said)


@pytest.mark.parametrize(
    ("path", "name", "ends"),
    [
        ("/topics/{topic}", "queues", (1, 65_536)),
        ("/topics/{topic}", "perm", (0, 7)),
        ("/groups/{group}", "retryMaxTimes", (-1, 1_000_000)),
        ("/groups/{group}/mode", "share", (-1, 65_536)),
    ],
)
def test_the_ends_themselves_are_taken(path: str, name: str, ends: tuple[int, int]) -> None:
    (asks,) = [entry.asks for entry in ENTRIES if entry.path == path and entry.method == "POST"]
    for end in ends:
        asks(Given({**TOLD, name: end}))
        asks(Given({**TOLD, name: str(end)}))


def test_what_is_given_is_read_by_its_kind() -> None:
    given = Given({"a": "x", "empty": "", "n": 5, "t": "6", "f": 1.5, "b": True, "o": {"k": "v"}, "z": None})
    assert given.text("a") == "x"
    assert given.text("empty", "") == ""
    assert given.text("none", "y") == "y"
    for name in ("empty", "n", "z", "none"):
        with pytest.raises(InvalidParameter, match=f"'{name}' is .*; a text is wanted"):
            given.text(name)
    assert (given.number("n", 1), given.number("t", 1), given.number("none", 1)) == (5, 6, 1)
    assert (given.number("n", 1, 5), given.number("n", 1, 0, 5)) == (5, 5)
    for name, low, high in (("n", 6, 9), ("n", 0, 4), ("a", 0, 9), ("f", 0, 9), ("b", 0, 9), ("z", 0, 9)):
        with pytest.raises(InvalidParameter, match=f"a whole number from {low} to {high} is wanted"):
            given.number(name, 1, low, high)
    with pytest.raises(InvalidParameter, match="'m' is -1; a whole number from 0 to 9223372036854775807"):
        Given({"m": -1}).number("m", 0)
    assert (given.table("o"), given.table("none"), given.table("z")) == ({"k": "v"}, {}, {})
    for wrong in ("x", {"k": 1}, ["k"]):
        with pytest.raises(InvalidParameter, match="an object of texts is wanted"):
            Given({"w": wrong}).table("w")


# -- what is answered --------------------------------------------------------------------------------------


def stored(server: Server, body: bytes = b"x", **more: Any) -> Record:
    record = Record(more.pop("topic", "orders"), body, more.pop("text", ""), more.pop("queue_id", 0), **more)
    send(record, PlainOrigin(), server.broker)
    return record


async def test_a_topic_is_told_whole(server: Server) -> None:
    at = server.http_address
    await act(at, "/api/topics/orders", {"queues": 2, "perm": 6, "attributes": {"message.type": "FIFO"}})
    for queue in (0, 1, 1):
        last = stored(server, queue_id=queue)
    row = {
        "topic": "orders", "readQueues": 2, "writeQueues": 2, "perm": 6, "order": False,
        "attributes": {"message.type": "FIFO"}, "isSystem": False, "messages": 3, "sentPerSecond": 0.0,
    }  # fmt: skip
    answer = await ask(at, "/api/topics?contains=orders")
    assert answer.headers["cache-control"] == "no-store"
    assert answer.json == {"total": 1, "start": 0, "topics": [row]}
    server.broker.offsets.set("billing", "orders", 0, 1)
    told = (await ask(at, "/api/topics/orders")).json
    queues = told.pop("queues")
    assert told == {**row, "groups": ["billing"]}
    assert [(queue["queueId"], queue["minOffset"], queue["maxOffset"]) for queue in queues] == [
        (0, 0, 1),
        (1, 0, 2),
    ]
    assert queues[1]["lastUpdateTimestamp"] == last.store_timestamp
    system = (await ask(at, "/api/topics/SCHEDULE_TOPIC_XXXX")).json
    assert system["isSystem"] is True
    # The same again changes what is said, and only that.
    assert (await act(at, "/api/topics/orders", {"queues": 4, "perm": 4})).json == {"done": True}
    config = server.broker.topics.require("orders")
    assert (config.read_queue_nums, config.write_queue_nums, config.perm) == (4, 4, 4)


async def test_lists_come_in_pages(server: Server) -> None:
    at = server.http_address
    for name in ("ccc", "aaa", "Abb", "bbb"):
        server.broker.topics.ensure(name)
        await act(at, f"/api/groups/g-{name}", {})
    for path, kind, name in (("/api/topics", "topics", "topic"), ("/api/groups", "groups", "group")):
        whole = (await ask(at, path)).json
        names = [row[name] for row in whole[kind]]
        assert names == sorted(names)
        assert (whole["total"], whole["start"]) == (len(names), 0)
        assert len(names) == len(getattr(server.broker, kind).all())
        part = (await ask(at, f"{path}?start=1&limit=2")).json
        assert ([row[name] for row in part[kind]], part["total"], part["start"]) == (
            names[1:3],
            len(names),
            1,
        )
        some = (await ask(at, f"{path}?contains=A")).json
        assert [row[name] for row in some[kind]] == [each for each in names if "a" in each.lower()]
        assert some["total"] == len(some[kind])
        assert (await ask(at, f"{path}?start={len(names)}")).json[kind] == []
        for limit, status in ((0, 400), (1, 200), (1_000, 200), (1_001, 400)):
            assert (await ask(at, f"{path}?limit={limit}")).status == status, limit


def test_a_page_has_a_hundred_unless_told_otherwise() -> None:
    found = [f"t{n:03}" for n in range(150)]
    assert shown.page(found, Given({})) == (found[:100], {"total": 150, "start": 0})
    assert shown.page(found[::-1], Given({"start": "100"})) == (found[100:], {"total": 150, "start": 100})


async def test_the_cluster_says_who_and_what_it_is(server: Server) -> None:
    server.broker.topics.ensure("orders")
    told = (await ask(server.http_address, "/api/cluster")).json
    runtime = told.pop("runtime")
    assert told == {
        "cluster": "DefaultCluster", "broker": server.broker.config.name, "address": server.broker_address,
        "version": __version__, "topics": len(server.broker.topics.all()),
        "groups": len(server.broker.groups.all()),
    }  # fmt: skip
    assert runtime["brokerVersionDesc"]
    assert int(runtime["msgPutTotalTodayNow"]) == 0


def test_a_message_is_told_whole() -> None:
    text = "KEYS\x01k1 k2\x02TAGS\x01paid\x02UNIQ_KEY\x01AB\x02own\x01x\x02"
    record = Record(
        "%RETRY%g", b"text", text, 3, 4, 5, born_timestamp=6, store_timestamp=7, reconsume_times=8,
        store_host=message.pack_host("10.0.0.1", 10911),
    )  # fmt: skip
    told = shown.message(message.encode(record))
    assert told == {
        "messageId": "AB", "offsetId": message.offset_message_id(record.store_host, 5), "topic": "%RETRY%g",
        "queueId": 3, "queueOffset": 4, "bornTimestamp": 6, "storeTimestamp": 7, "reconsumeTimes": 8,
        "tags": "paid", "keys": ["k1", "k2"],
        "properties": {"KEYS": "k1 k2", "TAGS": "paid", "UNIQ_KEY": "AB", "own": "x"},
        "bodyBase64": base64.b64encode(b"text").decode(), "bodyText": "text", "isRetry": True,
    }  # fmt: skip
    plain = shown.message(message.encode(Record("t", b"\xff")))
    assert (plain["bodyText"], plain["keys"], plain["tags"], plain["isRetry"]) == (None, [], None, False)
    broken = shown.message(message.encode(Record("t", b"not compressed", sys_flag=1)))
    assert broken["bodyText"] == "not compressed", "as it is, where it cannot be unpacked"


async def test_messages_are_found_as_many_as_wanted(server: Server) -> None:
    for _ in range(40):
        stored(server, text="KEYS\x01k\x02")
    server.broker.store.flush()
    at = server.http_address
    for asked, count in (("", 32), ("&limit=1", 1), ("&limit=40", 40), ("&limit=64", 40)):
        found = (await ask(at, f"/api/messages?topic=orders&key=k{asked}")).json["messages"]
        assert len(found) == count, asked
    for wrong in ("0", "65", "many"):
        assert (await ask(at, f"/api/messages?topic=orders&key=k&limit={wrong}")).status == 400


async def test_a_group_that_is_changed_keeps_what_the_api_does_not_name(server: Server) -> None:
    groups = server.broker.groups
    groups.put(
        bodies.GroupConfig(
            group_name="g", consume_message_orderly=True, retry_queue_nums=3, retry_max_times=5
        )
    )
    assert (await act(server.http_address, "/api/groups/g", {"consumeEnable": False})).status == 200
    assert groups.get("g") == bodies.GroupConfig(
        group_name="g",
        consume_message_orderly=True,
        retry_queue_nums=3,
        retry_max_times=16,
        consume_enable=False,
    )


async def test_a_group_is_reset_to_a_time_or_to_the_end(server: Server) -> None:
    at = server.http_address
    server.broker.topics.ensure("orders", 2)
    for _ in range(3):
        stored(server, queue_id=1)
    await act(at, "/api/groups/g", {"retryMaxTimes": "7", "consumeEnable": False})
    config = server.broker.groups.require("g")
    assert (config.retry_max_times, config.consume_enable) == (7, False)
    for given, offsets in (
        ({"timestamp": 0}, {"0": 0, "1": 0}),
        ({}, {"0": 0, "1": 3}),
        ({"timestamp": -1}, None),
    ):
        moved = await act(at, "/api/groups/g/reset", {"topic": "orders", **given})
        assert moved.json == {"offsets": offsets or {"0": 0, "1": 3}}
    assert (await act(at, "/api/groups/g/reset", {"topic": "orders", "timestamp": -2})).status == 400
    assert (await act(at, "/api/groups/g/mode", {"topic": "orders", "mode": "POP", "share": 3})).status == 200
    mode = server.broker.pops.modes.get("orders", "g")
    assert (mode.mode, mode.pop_share_queue_num) == (bodies.Mode.POP, 3)
    server.broker.offsets.set("g", "orders", 0, 1)
    assert (await act(at, "/api/groups/g/delete", {})).json == {"done": True}
    assert server.broker.offsets.get("g", "orders", 0) == -1


async def test_settings_are_all_told_and_which_may_change(server: Server) -> None:
    told = (await ask(server.http_address, "/api/settings")).json
    broker = server.broker
    table = {**fields(type(broker.config)), **fields(type(broker.store.config))}
    assert told["settings"].keys() == table.keys()
    assert told["live"] == sorted(name for name, field in table.items() if field.about.live)
    assert (told["settings"]["perm"], told["settings"]["memory_percent"]) == (6, 40)


def test_clients_are_told_by_group() -> None:
    def member(name: str) -> Thing:
        link = Thing(remote_text="10.0.0.1:5")
        return Thing(client_id=name, link=link, language="JAVA", version=479, last_seen=7)

    clients = Thing(
        groups=lambda: {"g": Thing(members={1: member("c1"), 2: member("c2")})},
        producer_groups=lambda: {"p": {n: member(f"p{n}") for n in range(1_001)}},
    )
    told = shown.clients(Thing(clients=clients))  # type: ignore[arg-type]
    row = {"group": "g", "address": "10.0.0.1:5", "language": "JAVA", "version": 479, "lastSeen": 7}
    assert told["consumers"] == [{**row, "clientId": "c1"}, {**row, "clientId": "c2"}]
    assert len(told["producers"]) == 1_000
    assert told["producers"][0] == {**row, "group": "p", "clientId": "p0"}


# -- the way in --------------------------------------------------------------------------------------------


async def test_a_body_may_be_as_long_as_the_limit(server: Server) -> None:
    at, said = server.http_address, {"content-type": "Application/JSON; charset=utf-8"}
    for extra, status in ((0, 200), (1, 400)):
        body = b'{"x":"' + b"y" * (MAX_BODY - 8 + extra) + b'"}'
        answer = await ask(at, "/api/groups/g", method="POST", headers=said, body=body)
        assert answer.status == status
    assert MAX_BODY == 262_144
    assert (await ask(at, "/api/groups/h", method="POST", headers=said)).status == 200, (
        "no body is an empty object"
    )


async def test_the_path_wins_over_the_body_and_the_body_over_the_query(server: Server) -> None:
    at = server.http_address
    await act(at, "/api/groups/real?retryMaxTimes=4", {"group": "other", "retryMaxTimes": 5})
    assert server.broker.groups.get("other") is None
    assert server.broker.groups.require("real").retry_max_times == 5
    await act(at, "/api/groups/asked?retryMaxTimes=4", {})
    assert server.broker.groups.require("asked").retry_max_times == 4


async def test_a_page_of_this_server_may_act_and_any_page_may_look(server: Server) -> None:
    at = server.http_address
    assert (await act(at, "/api/groups/g", {}, origin=f"http://{at}")).status == 200
    refused = await act(at, "/api/groups/g", {}, origin="http://evil.example")
    assert (refused.status, refused.json["error"]) == (
        400,
        "a page of 'http://evil.example' may not act here",
    )
    looked = await ask(at, "/api/groups", headers={"origin": "http://evil.example"})
    assert looked.status == 200


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (AccessDenied("no"), 401, True),
        (AclDenied("no"), 401, True),
        (TopicNotFound("no"), 404, True),
        (GroupNotFound("no"), 404, True),
        (QueryNotFound("no"), 404, True),
        (DiskFull("no"), 503, False),
        (StoreError("no"), 503, False),
        (InvalidParameter("no"), 400, True),
        (ValueError("no"), 400, False),
    ],
)
def test_refusals_have_a_status_a_reason_and_rocketmqs_code(error: Any, status: int, code: bool) -> None:
    answer = refusal(error, None)
    said = json.loads(bytes(answer.body))
    assert (answer.status_code, said["error"]) == (status, "no")
    assert ("HTTP Basic" in said.get("hint", "")) == (status == 401)
    if code:
        assert said["code"] == int(error.code)
    asked = 'Basic realm="aerobee", charset="UTF-8"'
    assert answer.headers.get("www-authenticate") == (asked if status == 401 else None)


@pytest.mark.parametrize("error", [AccessDenied("no"), AclDenied("no")])
def test_who_is_known_and_may_not_is_not_asked_who_it_is(error: Any) -> None:
    for user, status in (("ann", 403), ("", 401), (None, 401)):
        assert refusal(error, Thing(user=user)).status_code == status  # type: ignore[arg-type]


def test_an_account_comes_by_basic_and_by_nothing_else() -> None:
    def basic(text: str) -> str:
        return base64.b64encode(text.encode()).decode()

    assert credentials(f"Basic {basic('ann:s:cret')}") == {"AccessKey": "ann", "SecretKey": "s:cret"}
    assert credentials(f"bAsIc {basic('ann:')}") == {"AccessKey": "ann", "SecretKey": ""}
    for wrong in (
        "",
        "Basic",
        f"Bearer {basic('ann:x')}",
        f"Basic {basic('ann')}",
        "Basic !!!",
        "Basic /w==",
    ):
        assert credentials(wrong) == {}, wrong


def test_the_description_names_paths_parameters_and_bodies() -> None:
    told = described(ENTRIES)
    assert (told["openapi"], told["info"]) == ("3.0.3", {"title": "Aerobee", "version": __version__})
    assert told["components"] == {"securitySchemes": {"account": {"type": "http", "scheme": "basic"}}}
    assert told["security"] == [{}, {"account": []}]
    text = {"type": "string"}
    answers = {
        "200": {"description": "as asked", "content": {"application/json": {"schema": {"type": "object"}}}},
        "default": {"description": "refused: `error` says why"},
    }
    place = {"name": "group", "in": "path", "required": True, "schema": text}
    assert told["paths"]["/api/groups/{group}"] == {
        "get": {
            "summary": "Exact figures of a group: ready, in flight, retrying, delayed, dead, by queue.",
            "parameters": [
                place,
                {
                    "name": "topic",
                    "in": "query",
                    "description": "only this one and its retries",
                    "schema": text,
                },
            ],
            "responses": answers,
        },
        "post": {
            "summary": "Create a group, or change it.",
            "parameters": [place],
            "responses": answers,
            "requestBody": {
                "required": True,
                "content": {
                    "application/json": {
                        "schema": {
                            "type": "object",
                            "properties": {
                                "retryMaxTimes": {"description": "16"},
                                "consumeEnable": {"description": "false stops it"},
                            },
                        }
                    }
                },
            },
        },
    }
    for entry in ENTRIES:
        operation = told["paths"][f"/api{entry.path}"][entry.method.lower()]
        assert operation["summary"] == entry.about
        assert re.fullmatch(r"[A-Z][a-z]* .*\.", entry.about), "a sentence"


async def test_the_page_of_the_api_runs_nothing_and_escapes_what_it_shows(server: Server) -> None:
    page = await ask(server.http_address, "/api")
    assert page.headers["content-security-policy"] == "default-src 'none'; style-src 'unsafe-inline'"
    assert page.headers["content-type"].startswith("text/html")
    for entry in ENTRIES:
        for name in entry.takes:
            assert f"<code>{name}</code>: " in page.text
