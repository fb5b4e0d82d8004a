# SPDX-License-Identifier: Apache-2.0
"""Where a message is for every group that reads its topic, as far as any broker tells.

Theory of operation. A group that fails on a message gets a copy of it: in its retry topic, on the way there in the
delay levels, in the end among its dead letters. All copies have the producer's id, by which brokers find them, so the
newest one says how far the group has come. Where that one is, waiting or leased until when, Aerobee tells exactly; of
Apache's broker only the group's offsets are known.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from aerobee.client.admin.figures import place_of
from aerobee.errors import AclDenied, AerobeeError, NoPermission
from aerobee.protocol import names
from aerobee.protocol import properties as props
from aerobee.protocol.bodies.figures import Place
from aerobee.protocol.delay import parse_levels

if TYPE_CHECKING:
    from aerobee.client.message import ReceivedMessage
    from aerobee.console.cluster_view import ClusterView

SHOWN_GROUPS = 100
ASKED_CLIENTS = 20  # of a group, for whether they hold the message's queue
DEAD, DELAYED, UNKNOWN = "dead", "delayed", "not told"
_LESS_EXACT = {"consumed": Place.DONE, "handed out": Place.HANDED_OUT, "waiting": Place.WAITING}


@dataclass
class Track:
    """One group. `place` is a Place, or one of those above."""

    group: str
    place: str = UNKNOWN
    attempts: int = 0  # deliveries so far
    until: int = 0  # leased, or delayed
    reason: str = ""  # what the last attempt failed with
    copy: ReceivedMessage | None = None  # the newest, where the group has one of its own
    copies: list[ReceivedMessage] = field(default_factory=list)  # all of them, oldest first
    is_exact: bool = True
    pops: bool = False
    is_online: bool = False
    clients: list[str] = field(default_factory=list)
    holders: list[str] = field(default_factory=list)  # clients that have messages of its queue in hand


@dataclass
class Whereabouts:
    tracks: list[Track]
    groups_left_out: int = 0

    @property
    def is_exact(self) -> bool:
        return all(track.is_exact for track in self.tracks)


async def whereabouts(view: ClusterView, message: ReceivedMessage) -> Whereabouts:
    """Of a message as it is kept: `message.topic` may be a group's retry topic or its dead letters."""
    if names.is_dead_letter(message.topic):
        groups = [message.topic.removeprefix(names.DEAD_LETTER_PREFIX)]
    else:
        groups = await view.groups_of(message.topic)
    users = sorted(each for each in groups if not names.is_system_group(each))
    found = await view.each(users[:SHOWN_GROUPS], lambda group: _track(view, message, group))
    tracks = [Track(name) if isinstance(each, AerobeeError) else each for name, each in found.items()]
    return Whereabouts(sorted(tracks, key=lambda track: track.group), max(0, len(users) - SHOWN_GROUPS))


async def _track(view: ClusterView, message: ReceivedMessage, group: str) -> Track:
    lag = await view.lag(group, _read_topic(message, group))
    members = await view.members(group) if lag.online else None
    track = Track(group, is_online=lag.online, pops="POP" in lag.modes.values(), is_exact=lag.exact)
    track.clients = [each.client_id for each in members.connection_set] if members else []
    # First the message itself, then its copies: by the time a broker is done with the one, the other is there.
    await _place(view, track, message)
    try:
        track.copies = await _copies(view, message, group)
    except (NoPermission, AclDenied):  # this account may not look: what is done with may wait for a retry
        track.place = UNKNOWN if track.place == Place.DONE else track.place
    if track.copies and _place_in_log(track.copies[-1]) != _place_in_log(message):
        track.copy = track.copies[-1]
        await _place(view, track, track.copy)
    return track


def _place_in_log(message: ReceivedMessage) -> tuple[str, int]:
    return message.broker_name, message.physical_offset


def _read_topic(message: ReceivedMessage, group: str) -> str | None:
    """Whose figures have the queue it is in; of dead letters nobody's."""
    return None if names.is_dead_letter(message.topic) else names.normal_topic(message.topic, group)


def _topics_of_copies(message: ReceivedMessage, group: str) -> list[str]:
    origin = names.normal_topic(message.topic, group)
    found = [names.retry_topic(group), names.dead_letter_topic(group)]
    if not names.is_retry(origin) and not names.is_dead_letter(origin):
        found += [names.pop_retry_topic(origin, group), names.pop_retry_topic_v2(origin, group)]
    return found


async def _copies(view: ClusterView, message: ReceivedMessage, group: str) -> list[ReceivedMessage]:
    """Of every attempt, oldest first, wherever they wait; none of a message without a producer's id."""
    unique, found = message.unique_key, []
    if not unique:
        return []
    for topic in _topics_of_copies(message, group):
        found += await view.admin.copies(topic, unique)
    retry_topic = names.retry_topic(group)
    for copy in await view.admin.copies(names.SCHEDULE_TOPIC, unique):
        if copy.property(props.REAL_TOPIC) == retry_topic:
            found.append(copy)
    return sorted(found, key=lambda copy: (copy.reconsume_times, copy.store_timestamp))


async def _place(view: ClusterView, track: Track, newest: ReceivedMessage) -> None:
    track.reason = newest.property(props.LAST_ERROR) or ""
    track.attempts, track.until, track.holders = newest.reconsume_times, 0, []
    if names.is_dead_letter(newest.topic):
        track.place = DEAD
    elif newest.topic == names.SCHEDULE_TOPIC:
        track.place, track.until = DELAYED, await _due(view, newest)
    else:
        await _place_in_queue(view, track, newest)


async def _place_in_queue(view: ClusterView, track: Track, newest: ReceivedMessage) -> None:
    state = await view.admin.message_state(track.group, newest.queue, newest.queue_offset)
    if state is None:
        track.is_exact = False
        place = place_of(newest, await view.lag(track.group, newest.topic))
        track.place = _LESS_EXACT.get(place or "", UNKNOWN)
    else:
        track.place, track.until = state.place, state.leased_until
        track.reason = state.reason or track.reason
    if track.place in (Place.LEASED, Place.HANDED_OUT, Place.DONE):
        track.attempts += 1
    if track.place in (Place.LEASED, Place.HANDED_OUT):
        track.holders = await _holders(view, track, newest)


async def _due(view: ClusterView, delayed: ReceivedMessage) -> int:
    """By the level it was given; 0 where the broker does not tell its levels."""
    try:
        address = (await view.masters())[delayed.broker_name]
        settings = await view.once(("settings", address), lambda: view.admin.broker_config(address))
        level = int(delayed.property(props.DELAY) or "0")
        return delayed.store_timestamp + parse_levels(settings.get("messageDelayLevel", ""))[level - 1]
    except (AerobeeError, ValueError, LookupError):
        return 0


async def _holders(view: ClusterView, track: Track, newest: ReceivedMessage) -> list[str]:
    """Brokers note nobody's name; consumers say which queues they have messages of."""
    queue = newest.queue
    normal = names.normal_topic(queue.topic, track.group)
    asked = await view.each(track.clients[:ASKED_CLIENTS], lambda client: view.running(track.group, client))
    found = []
    for client, info in asked.items():
        if isinstance(info, AerobeeError):
            continue
        popped = [each for each, told in info.mq_pop_table.items() if told.wait_ack_count]
        pulled = [each for each, told in info.mq_table.items() if told.cached_msg_count]
        # A consumer that pops gets retries through the queues of the topic itself.
        if queue in pulled or any(each.topic == normal for each in popped):
            found.append(client)
    return found
