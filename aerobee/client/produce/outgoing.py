# SPDX-License-Identifier: Apache-2.0
"""A user's message made ready for the wire: id, properties, compression; and batches cut to size. Pure."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from aerobee import native
from aerobee.protocol import batch, compression, names
from aerobee.protocol import properties as props
from aerobee.protocol.batch import BatchItem
from aerobee.protocol.fast_frames import Sending
from aerobee.protocol.message import MAX_PROPERTIES

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from aerobee.client.message import Message
    from aerobee.client.options import ProducerOptions

if native.is_on:
    from aerobee.native.client_batches import merged

_may_send = lru_cache(maxsize=4096)(names.may_send)
_KINDS = {kind.name.lower(): kind for kind in compression.Compression}


def properties_text(message: Message) -> str:
    """The message's own properties; the id first, so that it is found fastest."""
    text = f"UNIQ_KEY\x01{message.message_id}\x02WAIT\x01true\x02"
    if message.tags:
        text += f"TAGS\x01{message.tags}\x02"
    if message.keys:
        text += f"KEYS\x01{' '.join(message.keys)}\x02"
    if message.sharding_key:
        text += f"{props.SHARDING_KEY}\x01{message.sharding_key}\x02"
    if message.delay_level:
        text += f"DELAY\x01{message.delay_level}\x02"
    elif message.deliver_at is not None:
        text += f"TIMER_DELIVER_MS\x01{message.deliver_at}\x02"
    elif message.delay_ms is not None:
        text += f"TIMER_DELAY_MS\x01{message.delay_ms}\x02"
    if message.properties:
        text += props.render(message.properties)
    return text


def prepare(message: Message, options: ProducerOptions, now: int, extra: str = "") -> Sending:
    """Raises ValueError for what a broker would refuse. `message.message_id` must be set."""
    body, sys_flag = message.body, 0
    if len(body) > options.max_message_bytes:
        raise ValueError(
            f"the body of a message to {message.topic!r} has {len(body)} bytes,"
            f" max_message_bytes is {options.max_message_bytes}"
        )
    if not _may_send(message.topic):
        raise ValueError(f"topic {message.topic!r} belongs to the broker; nobody may send to it")
    if len(body) >= options.compress_over_bytes and options.compression != "none":
        kind = _KINDS[options.compression]
        packed = compression.compress(body, kind, options.compression_level)
        if len(packed) < len(body):
            body, sys_flag = packed, compression.compressed_flag(0, kind)
    text = properties_text(message) + extra
    if len(text) > MAX_PROPERTIES // 4 and len(text.encode()) > MAX_PROPERTIES:
        raise ValueError(
            f"the properties of a message to {message.topic!r} have {len(text.encode())} bytes, limit {MAX_PROPERTIES}"
        )
    sending = Sending(message.topic, body, text, message.message_id or "", now, sys_flag, message.flag)
    alone = sys_flag or extra or is_delayed(message) or message.topic[0] == "%"  # what a batch may not hold
    sending.may_merge = options.merge_sends and not alone
    return sending


def is_delayed(message: Message) -> bool:
    return bool(message.delay_level or message.deliver_at is not None or message.delay_ms is not None)


def check_batch(messages: Sequence[Message]) -> str:
    """The topic of a batch; ValueError when the messages do not go together."""
    if not messages:
        raise ValueError("the batch is empty")
    topic = messages[0].topic
    for message in messages:
        if message.topic != topic:
            raise ValueError(f"a batch goes to one topic; this one names {topic!r} and {message.topic!r}")
        if is_delayed(message):
            raise ValueError(
                f"messages of a batch cannot be delayed; {message.message_id or message.topic!r} is"
            )
    if names.is_retry(topic):
        raise ValueError(f"a batch cannot go to the retry topic {topic!r}")
    return topic


def split(messages: Iterable[Message], limit_bytes: int) -> list[list[Message]]:
    """Batches whose encoded size stays within the limit; order is kept."""
    batches: list[list[Message]] = []
    size = limit_bytes + 1
    for message in messages:
        own = batch.OVERHEAD + len(message.body) + len(properties_text(message).encode())
        if size + own > limit_bytes:
            batches.append([])
            size = 0
        batches[-1].append(message)
        size += own
    return batches


def prepare_batch(messages: Sequence[Message], now: int) -> Sending:
    body = batch.encode([BatchItem(m.flag, m.body, properties_text(m)) for m in messages])
    ids = ",".join(message.message_id or "" for message in messages)
    text = f"UNIQ_KEY\x01{messages[0].message_id}\x02WAIT\x01true\x02"
    return Sending(messages[0].topic, body, text, ids, now)


def merge(sendings: list[Sending]) -> Sending:
    """Messages of one queue, made ready each by itself and at the same time, as one batch. It has no id of its own: the
    Java broker would make one record of it in a batch topic."""
    body = merged(sendings, MAX_PROPERTIES) if native.is_on else None
    if body is None:
        body = batch.encode([BatchItem(each.flag, each.body, each.properties_text) for each in sendings])
    return Sending(sendings[0].topic, body, "WAIT\x01true\x02", "", sendings[0].born)
