# SPDX-License-Identifier: Apache-2.0
"""The API: one table of what it answers and does. GET looks, POST acts; each is a request of the remoting protocol to
the gates, and an operation of the broker behind them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from starlette.responses import JSONResponse, Response
from starlette.routing import Mount, Route

from aerobee.broker.operations import query
from aerobee.broker.operations.admin import figures, message_state, settings
from aerobee.broker.operations.admin import groups as group_operations
from aerobee.broker.operations.admin import topics as topic_operations
from aerobee.broker.operations.assignment import set_mode
from aerobee.broker.operations.reset_offset import Reset, reset_offset
from aerobee.broker.turns import in_turns
from aerobee.errors import AerobeeError, InvalidParameter
from aerobee.fronts.http import given as reading
from aerobee.fronts.http import openapi, shown
from aerobee.fronts.http.call import HttpCall, refusal
from aerobee.protocol import bodies
from aerobee.protocol.headers import cluster as hc
from aerobee.protocol.headers import groups as hg
from aerobee.protocol.headers import offsets as ho
from aerobee.protocol.headers import topics as ht
from aerobee.protocol.headers.consume import SetRequestMode
from aerobee.protocol.message import parse_offset_message_id
from aerobee.settings.declare import fields

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.requests import Request
    from starlette.routing import BaseRoute

    from aerobee.broker.broker import Broker
    from aerobee.fronts.http.call import HttpPath
    from aerobee.fronts.http.given import Given
    from aerobee.protocol.command import Header

_PAGE = {"contains": "part of the name", "start": "how many to leave out", "limit": "how many to tell, 100"}
_OK = {"done": True}


class Asked(NamedTuple):
    """What the gates see, as mqadmin would have sent it."""

    header: Header
    body: bytes = b""


class Entry(NamedTuple):
    method: str
    path: str
    about: str
    asks: Callable[[Given], Asked]
    does: Callable[[Given, Broker], Any]  # the answer, or a coroutine that has it
    takes: dict[str, str]


def _config(given: Given) -> bodies.GroupConfig:
    name, retries = given.text("group"), given.number("retryMaxTimes", 16, -1, 1_000_000)
    return bodies.GroupConfig(
        group_name=name,
        retry_max_times=retries,
        consume_enable=given.values.get("consumeEnable", True) is True,
    )


def _mode(given: Given) -> bodies.RequestMode:
    try:
        mode = bodies.Mode(given.text("mode"))
    except ValueError:
        raise InvalidParameter("'mode' is neither PULL nor POP") from None
    return bodies.RequestMode(
        consumer_group=given.text("group"),
        topic=given.text("topic"),
        mode=mode,
        pop_share_queue_num=given.number("share", 0, -1, 65_536),
    )


def _create(given: Given) -> ht.CreateTopic:
    queues = given.number("queues", 8, 1, 65_536)
    changes = ",".join(f"+{key}={value}" for key, value in given.table("attributes").items())
    return ht.CreateTopic(
        topic=given.text("topic"),
        read_queue_nums=queues,
        write_queue_nums=queues,
        perm=given.number("perm", 6, 0, 7),
        attributes=changes or None,
    )


async def _put_topic(given: Given, broker: Broker) -> Any:
    header = _create(given)
    config = bodies.TopicConfig(
        topic_name=header.topic,
        read_queue_nums=header.read_queue_nums,
        write_queue_nums=header.write_queue_nums,
        perm=header.perm,
    )
    await topic_operations.put_topic(config, header.attributes or "", broker)
    return _OK


async def _delete_topic(given: Given, broker: Broker) -> Any:
    await topic_operations.delete_topic(given.text("topic"), broker)
    return _OK


async def _put_group(given: Given, broker: Broker) -> Any:
    wanted = _config(given)
    known = broker.groups.get(wanted.group_name)
    if known is not None:  # an ordered group stays one
        told = {"retry_max_times": wanted.retry_max_times, "consume_enable": wanted.consume_enable}
        wanted = msgspec.structs.replace(known, **told)
    await group_operations.put_groups([wanted], broker)
    return _OK


async def _delete_group(given: Given, broker: Broker) -> Any:
    await group_operations.delete_group(given.text("group"), broker, clean_offsets=True)
    return _OK


def _move(given: Given) -> ho.ResetOffset:
    return ho.ResetOffset(
        group=given.text("group"), topic=given.text("topic"), timestamp=given.number("timestamp", -1, -1)
    )


async def _reset(given: Given, broker: Broker) -> Any:
    asked = _move(given)
    moved = await reset_offset(Reset(asked.group, asked.topic, asked.timestamp), broker)
    return {"offsets": {str(queue.queue_id): offset for queue, offset in moved.items()}}


async def _set_mode(given: Given, broker: Broker) -> Any:
    await set_mode(_mode(given), broker)
    return _OK


async def _figures(given: Given, broker: Broker) -> Any:
    counting = figures.counting(given.text("group"), given.values.get("topic"), broker)
    return shown.plain(await in_turns(counting))


def _find(given: Given) -> hg.FindMessage:
    return hg.FindMessage(
        consumer_group=given.text("group"),
        topic=given.text("topic"),
        queue_id=given.number("queueId", 0),
        offset=given.number("offset", 0),
    )


async def _found(given: Given, broker: Broker) -> Any:
    asked = _find(given)
    where = message_state.Where(asked.consumer_group, asked.topic, asked.queue_id, asked.offset)
    return shown.plain(await in_turns(message_state.finding(where, broker)))


def _place(given: Given) -> int:
    try:
        return parse_offset_message_id(given.text("id"))[1]
    except ValueError:
        raise InvalidParameter(
            f"'id' is {given.text('id')!r}: an offset id is wanted, as `offsetId` tells it"
        ) from None


def _messages(given: Given, broker: Broker) -> Any:
    wanted = query.KeyQuery(given.text("topic"), given.text("key"), given.number("limit", 32, 1, 64))
    found = query.query_by_key(wanted, broker).messages
    return {"messages": [shown.message(raw) for raw in found]}


def _settings(given: Given, broker: Broker) -> Any:
    table = {**fields(type(broker.config)), **fields(type(broker.store.config))}
    values = {
        name: field.told(getattr(broker.config, name, getattr(broker.store.config, name, None)))
        for name, field in table.items()
    }
    return {"settings": values, "live": sorted(name for name, field in table.items() if field.about.live)}


def _change_text(given: Given) -> str:
    pairs = given.values
    if not pairs or any(len(str(each).splitlines()) > 1 for pair in pairs.items() for each in pair):
        raise InvalidParameter("send an object of settings and their values")
    return "\n".join(
        f"{name}={str(value).lower() if isinstance(value, bool) else value}" for name, value in pairs.items()
    )


def _change_settings(given: Given, broker: Broker) -> Any:
    settings.change_settings(_change_text(given), broker)
    return _OK


_TOPIC, _GROUP = "/topics/{topic}", "/groups/{group}"
ENTRIES = (
    Entry("GET", "/cluster", "This broker, and what it is doing.",
          lambda given: Asked(hc.BrokerRuntime()), lambda given, broker: shown.cluster(broker), {}),
    Entry("GET", "/topics", "Topics with their settings and figures.",
          lambda given: Asked(ht.AllTopicConfigs()), shown.topics, _PAGE),
    Entry("GET", _TOPIC, "One topic, its queues and who reads it.",
          lambda given: Asked(ht.TopicStatsQuery(topic=given.text("topic"))),
          lambda given, broker: shown.topic(given.text("topic"), broker), {}),
    Entry("POST", _TOPIC, "Create a topic, or change it.",
          lambda given: Asked(_create(given)), _put_topic,
          {"queues": "8", "perm": "2 write, 4 read, 6 both", "attributes": "an object, such as message.type: FIFO"}),
    Entry("POST", f"{_TOPIC}/delete", "Delete a topic and its messages.",
          lambda given: Asked(ht.DeleteTopic(topic=given.text("topic"))), _delete_topic, {}),
    Entry("GET", "/groups", "Groups of consumers, and how many are connected.",
          lambda given: Asked(hg.AllGroupConfigs()), shown.groups, _PAGE),
    Entry("GET", _GROUP, "Exact figures of a group: ready, in flight, retrying, delayed, dead, by queue.",
          lambda given: Asked(hg.GroupFigures(group=given.text("group"), topic=given.values.get("topic"))),
          _figures,
          {"topic": "only this one and its retries"}),
    Entry("GET", f"{_GROUP}/members", "Who is connected, and what they subscribe to.",
          lambda given: Asked(hg.ConsumerConnections(consumer_group=given.text("group"))),
          lambda given, broker: shown.plain(
              group_operations.consumer_connection(given.text("group"), broker)), {}),
    Entry("GET", f"{_GROUP}/message", "Where a message is for a group: waiting, leased until when, handed out, done.",
          lambda given: Asked(_find(given)), _found,
          {"topic": "where it is kept, maybe a retry topic", "queueId": "0", "offset": "in its queue"}),
    Entry("POST", _GROUP, "Create a group, or change it.",
          lambda given: Asked(hg.CreateGroup(), bodies.encode(_config(given))), _put_group,
          {"retryMaxTimes": "16", "consumeEnable": "false stops it"}),
    Entry("POST", f"{_GROUP}/delete", "Delete a group and its offsets.",
          lambda given: Asked(hg.DeleteGroup(group_name=given.text("group"))), _delete_group, {}),
    Entry("POST", f"{_GROUP}/reset", "Move a group on a topic to a time, or to the end.",
          lambda given: Asked(_move(given)), _reset,
          {"topic": "which", "timestamp": "milliseconds since 1970; -1 is the end"}),
    Entry("POST", f"{_GROUP}/mode", "Have a group's push consumers pull or pop a topic.",
          lambda given: Asked(SetRequestMode(), bodies.encode(_mode(given))), _set_mode,
          {"topic": "which", "mode": "PULL or POP", "share": "consumers that share a queue beside one; 0 all"}),
    Entry("GET", "/messages", "Messages of a topic with a key.",
          lambda given: Asked(ho.QueryMessage(topic=given.text("topic"), key=given.text("key"))), _messages,
          {"topic": "which", "key": "one of its keys, or its message id", "limit": "32"}),
    Entry("GET", "/messages/{id}", "A message by its offset id.",
          lambda given: Asked(ho.ViewMessage(offset=_place(given))),
          lambda given, broker: shown.message(query.view_message(_place(given), broker)), {}),
    Entry("GET", "/clients", "Producers and consumers that are connected.",
          lambda given: Asked(hg.AllProducers()), lambda given, broker: shown.clients(broker), {}),
    Entry("GET", "/settings", "Settings of the broker, and which may change while it runs.",
          lambda given: Asked(hc.GetBrokerConfig()), _settings, {}),
    Entry("POST", "/settings", "Change settings, all or none, until the next start.",
          lambda given: Asked(hc.UpdateBrokerConfig(), _change_text(given).encode()), _change_settings,
          {"any setting": "its value"}),
)  # fmt: skip


def routes(broker: Broker, path: HttpPath) -> list[BaseRoute]:
    entries: list[BaseRoute] = [_route(entry, broker, path) for entry in ENTRIES]
    entries.append(Route("/openapi.json", openapi.document(ENTRIES), name="openapi"))
    # All below /api is the API's: what it does not have is not asked of the console, which has everything else.
    return [Route("/api", openapi.page(ENTRIES), name="api"), Mount("/api", routes=entries)]


def _route(entry: Entry, broker: Broker, path: HttpPath) -> Route:
    async def serve(request: Request) -> Response:
        call = None
        try:
            _same_origin(request)
            given = await reading.read(request)
            header, body = entry.asks(given)
            call = HttpCall(request, header, body)
            answer = await path.through(call, lambda: entry.does(given, broker))
        except (AerobeeError, ValueError) as error:
            return refusal(error, call)
        return JSONResponse(answer, headers={"cache-control": "no-store"})

    return Route(entry.path, serve, methods=[entry.method], name=f"{entry.method} {entry.path}")


def _same_origin(request: Request) -> None:
    """A browser says whose page sends it here."""
    origin, host = request.headers.get("origin"), request.headers.get("host", "")
    if request.method == "POST" and origin is not None and origin.partition("://")[2] != host:
        raise InvalidParameter(f"a page of {origin[:100]!r} may not act here")
