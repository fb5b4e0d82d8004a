# SPDX-License-Identifier: Apache-2.0
"""Store one message of a producer, or a batch of them.

Most messages are plain: known topic, nothing in the properties that changes their way. For those a few substring
tests replace parsing the properties; everything else takes `_send_special`. Checks are in
RocketMQ's order, so that a message that breaks two rules is refused for the same one.
"""

from __future__ import annotations

import os
from functools import lru_cache
from random import random
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, Protocol, cast

import msgspec

from aerobee.broker import checks
from aerobee.broker.delivery.destination import delay_level, route_delay, to_half
from aerobee.broker.delivery.keeping import Unkept, unkept
from aerobee.errors import InvalidParameter, MessageIllegal, NoPermission, SystemFailure
from aerobee.protocol import names
from aerobee.protocol import properties as props
from aerobee.protocol.codes import SysFlag
from aerobee.protocol.ids import UniqueIds
from aerobee.protocol.message import MAX_PROPERTIES, RECORD_CHECK_SIZE
from aerobee.protocol.routing import place_of_key
from aerobee.store.record_keys import looked_at

if TYPE_CHECKING:
    from collections.abc import Hashable

    from aerobee.broker.broker import Broker
    from aerobee.protocol.batch import Batch
    from aerobee.protocol.bodies import TopicConfig
    from aerobee.protocol.message import Record
    from aerobee.store.batch_columns import Places

_TRANSACTIONAL = int(SysFlag.TRANSACTION_MASK)
# Of a batch, which is all or none and so is stored in one turn of the loop.
MAX_BATCH = 10_000  # messages
MAX_BATCH_KEYS = 40_000  # an index entry each
PAIR_END = props.PAIR_END  # some clients leave out the last one
MAX_WAITING_PROPERTIES = MAX_PROPERTIES - RECORD_CHECK_SIZE - 256  # the stamps take less than 200


class Origin(Protocol):
    """What a producer says besides the message; the wire's send headers have these fields."""

    @property
    def producer_group(self) -> str: ...
    @property
    def default_topic(self) -> str: ...
    @property
    def default_topic_queue_nums(self) -> int: ...
    @property
    def max_reconsume_times(self) -> int | None: ...


class PlainOrigin(msgspec.Struct, frozen=True):
    producer_group: str = ""
    default_topic: str = names.DEFAULT_TOPIC
    default_topic_queue_nums: int = 4
    max_reconsume_times: int | None = None


class Sent(msgspec.Struct, gc=False):
    """Where a message was stored. For a delayed one the queue is the real one, the offset its waiting place's."""

    queue_id: int
    queue_offset: int
    physical_offset: int
    end: int  # physical offset after the record
    unique_key: str
    timer_out: int = 0  # of a message in the timer
    unkept: Unkept | None = None  # what its answer waits for


class SentBatch(NamedTuple):
    places: Places
    unkept: Unkept | None  # what its answer waits for


def send(record: Record, origin: Origin, broker: Broker) -> Sent:
    """Store the message. `record` is given its place; raises BrokerError or StoreError."""
    text = record.properties_text
    topic = broker.topics.plain(record.topic)
    if topic is None or _is_special(text):
        return _send_special(record, _writable_topic(record.topic, origin, broker), origin, broker)
    config = broker.settings.value
    if topic.order:
        checks.broker_writable(config)
    queue_id = record.queue_id = choose_queue(record.queue_id, topic, text)
    if text and text[-1] != PAIR_END:
        text += PAIR_END
    text += stamps(config.region, config.cluster)
    unique_key = looked_at(text)[1]
    if not unique_key:
        unique_key = new_key(broker)
        text = f"UNIQ_KEY\x01{unique_key}\x02{text}"
    record.properties_text = text
    if not record.body:
        _refuse_empty()
    broker.store.append(record)  # refuses what is too long
    broker.stats.sent(record.topic, 1, record.size)
    end = record.physical_offset + record.size
    sent = Sent(queue_id, record.queue_offset, record.physical_offset, end, unique_key)
    if record.topic in broker.topics.unsaved or broker.store.settings.value.flush == "sync":
        sent.unkept = unkept(record.topic, end, broker, text)
    return sent


def send_reply(record: Record, origin: Origin, broker: Broker) -> Sent:
    """As `send`, and the only way into the cluster's reply topic."""
    if record.topic == names.reply_topic(broker.settings.value.cluster):
        return _send_special(record, broker.topics.ensure(record.topic), origin, broker)
    return send(record, origin, broker)


def send_batch(batch: Batch, origin: Origin, broker: Broker) -> SentBatch:
    """Store the messages of one batch, one after the other in one queue, all or none."""
    bodies = batch.members.bodies
    if not bodies:
        raise MessageIllegal("the batch is empty")
    topic = _writable_topic(batch.topic, origin, broker)
    if names.is_retry(batch.topic):
        raise MessageIllegal(f"a batch may not go to the retry topic '{batch.topic}'")
    batch.queue_id = choose_queue(batch.queue_id, topic)
    if sum(map(len, bodies)) > broker.store.config.max_message_bytes:
        raise SystemFailure(
            f"batch of more than {broker.store.config.max_message_bytes} bytes, the broker's max_message_bytes; "
            "send smaller ones"
        )
    _check_batch(batch)
    places = broker.store.append_columns(batch)
    broker.stats.sent(batch.topic, len(bodies), places.size_bytes)
    return SentBatch(places, unkept(batch.topic, places.end, broker))


# -- the way of everything that is not plain -----------------------------------------------------------


# Words in the properties that may change a message's way, or are a stamp of the broker.
SPECIAL = ("DELAY\x01", "TIMER_", "TRAN_MSG\x01", "POP_CK\x01", "MSG_REGION\x01", "INNER_NUM\x01")
_DELAY, _TIMER, _TRANSACTION, _POPPED, _STAMPED, _INNER = SPECIAL


def _is_special(text: str) -> bool:
    # Written out: a loop would cost more than all the tests.
    return (
        _DELAY in text
        or _TIMER in text
        or _TRANSACTION in text
        or _POPPED in text
        or _STAMPED in text
        or _INNER in text
    )


def _send_special(record: Record, topic: TopicConfig, origin: Origin, broker: Broker) -> Sent:
    config, now = broker.settings.value, broker.clock.wall()
    properties = props.parse(record.properties_text)
    properties.pop(props.POP_CK, None)
    properties[props.MSG_REGION] = config.region
    properties[props.TRACE_ON] = "true"
    queue_id = record.queue_id = choose_queue(record.queue_id, topic, record.properties_text)
    if props.INNER_NUM in properties and not record.sys_flag & SysFlag.INNER_BATCH:
        raise MessageIllegal("property INNER_NUM on a message that is no inner batch")
    if names.is_retry(record.topic) and _is_dead(record, origin, broker):
        _to_dead_letters(record, properties, broker)
        queue_id = 0
    unique_key = properties.get(props.UNIQ_KEY) or new_key(broker)
    properties[props.UNIQ_KEY] = unique_key
    properties[props.CLUSTER] = config.cluster
    real_topic = record.topic
    if _is_half(record, properties):
        to_half(record, properties)
    else:
        limits = broker.store.config
        route_delay(record, properties, now, len(broker.store.delays), limits.timer_max_delay_ms)
    text = record.properties_text = props.render(properties)
    _check(record)
    if record.topic != real_topic:
        _check_room(text)
    broker.store.append(record)
    end = record.physical_offset + record.size
    timer_out = int(properties[props.TIMER_OUT_MS]) if record.topic == names.TIMER_TOPIC else 0
    _count(real_topic, record, timer_out - now, broker)
    waits = unkept(real_topic, end, broker, text)
    return Sent(queue_id, record.queue_offset, record.physical_offset, end, unique_key, timer_out, waits)


def _count(topic: str, record: Record, timer_ms: int, broker: Broker) -> None:
    if record.topic == topic:
        broker.stats.stored(topic, 1, record.size)
        return
    broker.stats.waits(topic, record.topic, record.size)
    if record.topic != names.HALF_TOPIC:
        waits_ms = broker.store.delays[record.queue_id] if record.topic == names.SCHEDULE_TOPIC else timer_ms
        broker.stats.counted.delay_s.add(topic, max(0, waits_ms) / 1000)


def _writable_topic(name: str, origin: Origin, broker: Broker) -> TopicConfig:
    """The topic to send to, created when unknown: refusals in the order of RocketMQ."""
    topic = broker.topics.get(name)
    if topic is not None and topic.order:
        checks.broker_writable(broker.settings.value)
    checks.topic_name(name)
    if not names.may_send(name) or name == names.reply_topic(broker.settings.value.cluster):
        raise NoPermission(f"topic '{name}' is the broker's own; messages may not be sent to it")
    if topic is None:
        topic = broker.topics.create_for_send(
            name, origin.default_topic, origin.default_topic_queue_nums, origin.producer_group
        )
    return topic


@lru_cache(maxsize=16)  # one per broker of the process
def stamps(region: str, cluster: str) -> str:
    """What the broker adds to the properties of a plain message."""
    return f"MSG_REGION\x01{region}\x02TRACE_ON\x01true\x02CLUSTER\x01{cluster}\x02"


def choose_queue(queue_id: int, topic: TopicConfig, text: str = "") -> int:
    """The queue the producer names; else that of the sharding key, as every producer counts it; else any."""
    if queue_id < 0:
        key = props.get(text, props.SHARDING_KEY)
        if key is not None:
            return place_of_key(key, max(1, topic.write_queue_nums))
        return int(random() * topic.write_queue_nums)
    if queue_id >= topic.write_queue_nums and queue_id >= topic.read_queue_nums:
        raise InvalidParameter(
            f"topic '{topic.topic_name}' has {topic.write_queue_nums} queues; asked for queue {queue_id}"
        )
    return queue_id


def _is_dead(record: Record, origin: Origin, broker: Broker) -> bool:
    """A retry past its limit, or any retry of a group that consumes in order, goes to the dead letters."""
    name = names.retry_group(record.topic)
    group = broker.groups.require(name)
    limit = origin.max_reconsume_times
    if limit is None:
        limit = group.retry_max_times
    return record.reconsume_times > limit or broker.locks.holds_any(name, broker.clock.now())


def _to_dead_letters(record: Record, properties: dict[str, str], broker: Broker) -> None:
    group = names.retry_group(record.topic)
    record.topic = names.dead_letter_topic(group)
    record.queue_id = 0
    broker.topics.ensure(record.topic)
    properties[props.DELAY] = "-1"
    origin = properties.get(props.RETRY_TOPIC, "")
    # Anybody may write the property: a topic that is none is told by an empty name.
    broker.stats.counted.dead[group, origin if broker.topics.get(origin) else ""] += 1


def _is_half(record: Record, properties: dict[str, str]) -> bool:
    if properties.get(props.TRAN_MSG, "").lower() != "true":
        return False
    # A transactional message that comes back as a delayed retry is an ordinary one.
    return not (record.reconsume_times > 0 and delay_level(properties) > 0)


# -- storing -------------------------------------------------------------------------------------------


def _check(record: Record) -> None:
    """What the store would not refuse by itself."""
    if not record.body:
        _refuse_empty()
    _check_name(record.topic)


def _check_room(text: str) -> None:
    """What waits in a system topic is stored again, with more stamps: it must not get too long then."""
    size = len(text.encode())
    if size > MAX_WAITING_PROPERTIES:
        raise MessageIllegal(
            f"properties of {size} bytes; of a delayed or transactional message at most "
            f"{MAX_WAITING_PROPERTIES} can be stored"
        )


def _check_name(topic: str) -> None:
    if len(topic) > names.MAX_TOPIC and not names.is_retry(topic):
        raise MessageIllegal(
            f"topic name of {len(topic)} characters; at most {names.MAX_TOPIC} can be stored"
        )


def _refuse_empty() -> NoReturn:
    # Code 1, as the Java broker answers: it falls over the missing body before it gets to its own check.
    raise SystemFailure("the message has an empty body")


def _check_batch(batch: Batch) -> None:
    if not all(batch.members.bodies):
        _refuse_empty()
    _check_name(batch.topic)
    if batch.sys_flag & _TRANSACTIONAL:
        raise MessageIllegal("a batch may not be transactional")
    texts = batch.members.texts
    all_texts = "".join(texts)  # most have neither, and one look tells
    if "KEYS\x01" in all_texts:
        keys = sum([text.count(" ") for text in texts if "KEYS\x01" in text])
        if keys > MAX_BATCH_KEYS:
            raise MessageIllegal(f"a batch with {keys} keys, limit {MAX_BATCH_KEYS}; send smaller ones")
    if "DELAY\x01" in all_texts:
        for text in texts:
            if "DELAY\x01" in text and delay_level(props.parse(text)) > 0:
                raise MessageIllegal("a batch may not be delayed")


def new_key(broker: Broker) -> str:
    return _unique_ids(broker.store.store_host, cast("Hashable", broker.clock)).next()


@lru_cache(maxsize=16)  # one per broker of the process; clients bring their keys, so it is rarely used
def _unique_ids(store_host: bytes, clock: Any) -> UniqueIds:
    return UniqueIds(store_host[:-4], os.getpid(), clock)
