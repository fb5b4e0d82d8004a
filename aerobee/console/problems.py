# SPDX-License-Identifier: Apache-2.0
"""What is wrong right now, in plain words: each a small rule over figures, told the figures.

A rule says what it sees, why that is so as far as figures can tell, and where to look.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from aerobee.console.writing import age, number, percent, time_of_day

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from aerobee.console.history import BrokerSeen, GoneSeen, GroupSeen, History, Sample, Total

BAD, WARN = "bad", "warn"
STILL_MS = 60_000  # with work and nothing finished
WAITS_MS = 60_000  # how long a message may wait for a group without consumers before we speak
LATE_MS = 200
DISK_WARN, DISK_FULL = 0.85, 0.90  # from there brokers refuse messages
DISK_SEEN_MS = 5 * 60_000
DISK_SOON_H = 48
DEAD_SEEN_MS = 10 * 60_000
UNREAD_TOLD = 3


class Text:
    """A sentence and its values, put into words when it is shown."""

    def __init__(self, text: str, /, **values: object) -> None:
        self.text = text
        self.values = values

    def said(self, t: Callable[..., str]) -> str:
        """By a language of the console, or by `str.format`, which leaves it English."""
        return t(self.text, **self.values)


class Problem(NamedTuple):
    tone: str
    what: Text
    why: Text
    place: tuple[str, ...]  # the page where one sees more: ("groups", "billing")

    def said(self, t: Callable[..., str]) -> str:
        """What and why, as one line."""
        return f"{self.what.said(t)} {self.why.said(t)}"


def problems(history: History) -> list[Problem]:
    """The worst first."""
    latest = history.latest
    if latest is None:
        return []
    refused = list(brokers_refuse(latest.brokers))
    found = [
        *brokers_gone(latest.gone),
        *brokers_away(latest.brokers),
        *(refused or disk_fills(list(history.totals))),
        *loop_is_late(list(history.totals)),
        *(problem for seen in latest.groups.values() for problem in of_group(seen, latest, history)),
        *nobody_reads(latest.unread),
    ]
    return sorted(found, key=lambda problem: problem.tone != BAD)


# -- brokers ---------------------------------------------------------------------------------------------


def brokers_gone(gone: Sequence[GoneSeen]) -> Iterator[Problem]:
    for broker in gone:
        what = Text(
            "Broker {broker} at {address} has been gone since {since} ({time}).",
            broker=broker.name,
            address=broker.address,
            since=time_of_day(broker.since),
            time=age(broker.away_ms),
        )
        why = Text(
            "It went without a goodbye: {why}. Read the end of its log and start it again: its messages wait there, "
            "and clients use the other brokers.",
            why=broker.why,
        )
        yield Problem(BAD, what, why, ("brokers",))


def brokers_refuse(brokers: Sequence[BrokerSeen]) -> Iterator[Problem]:
    for broker in brokers:
        if broker.refuses:
            yield Problem(
                BAD,
                Text("Broker {broker} refuses messages.", broker=broker.name),
                Text("It says: {reason}. Consumers go on.", reason=broker.refuses),
                ("brokers", broker.name),
            )


def brokers_away(brokers: Sequence[BrokerSeen]) -> Iterator[Problem]:
    for broker in brokers:
        if not broker.answers:
            yield Problem(
                BAD,
                Text("Broker {broker} does not answer.", broker=broker.name),
                Text("The name servers still name it at {address}.", address=broker.address),
                ("brokers",),
            )


def disk_fills(totals: Sequence[Total]) -> Iterator[Problem]:
    """Full, nearly full, or full soon if it goes on like this."""
    seen = [(total.at, total.disk) for total in totals if total.disk is not None]
    if not seen:
        return
    used = seen[-1][1]
    place = ("brokers",)
    if used >= DISK_FULL:
        why = Text(
            "From {limit} on it refuses messages. Free space, or keep messages for less long.",
            limit=percent(DISK_FULL),
        )
        yield Problem(BAD, Text("The disk is full: {used} are used.", used=percent(used)), why, place)
        return
    hours = hours_until(seen, DISK_FULL)
    if hours is not None and hours < DISK_SOON_H:
        why = Text(
            "{used} are used, and it grows; from {limit} on messages are refused.",
            used=percent(used),
            limit=percent(DISK_FULL),
        )
        yield Problem(
            BAD if hours < 6 else WARN,
            Text("The disk will be full in {time}.", time=age(round(hours * 3_600_000))),
            why,
            place,
        )
    elif used >= DISK_WARN:
        why = Text(
            "From {limit} on it refuses messages. Free space, or keep messages for less long.",
            limit=percent(DISK_FULL),
        )
        yield Problem(WARN, Text("The disk is nearly full: {used} are used.", used=percent(used)), why, place)


def hours_until(seen: Sequence[tuple[int, float]], limit: float) -> float | None:
    """By the straight line nearest to what was seen; None where it does not grow, or was not watched for long."""
    if seen[-1][0] - seen[0][0] < DISK_SEEN_MS:
        return None
    mean_at = sum(at for at, _ in seen) / len(seen)
    mean_used = sum(used for _, used in seen) / len(seen)
    spread = sum((at - mean_at) ** 2 for at, _ in seen)
    slope = sum((at - mean_at) * (used - mean_used) for at, used in seen) / spread
    rise = slope * (seen[-1][0] - seen[0][0])
    if rise < 0.001:  # what a disk moves by itself
        return None
    return (limit - seen[-1][1]) / slope / 3_600_000


def loop_is_late(totals: Sequence[Total]) -> Iterator[Problem]:
    last = [total.late_ms for total in totals if total.late_ms is not None][-3:]
    if len(last) == 3 and min(last) >= LATE_MS:
        yield Problem(
            WARN,
            Text("The broker is busy: requests wait {time}.", time=age(min(last))),
            Text("It has been so for the last three looks."),
            ("brokers",),
        )


# -- groups ----------------------------------------------------------------------------------------------


def of_group(seen: GroupSeen, sample: Sample, history: History) -> Iterator[Problem]:
    still = history.still_ms(seen.group)
    place = ("groups", seen.group)
    if seen.conflicts:
        yield Problem(
            BAD,
            Text("Consumers of {group} subscribe differently.", group=seen.group),
            Text(
                "They lose messages of {topics}. All consumers of a group need the same subscription.",
                topics=", ".join(seen.conflicts),
            ),
            place,
        )
    if seen.group in sample.switched_off:
        if seen.waiting:
            yield Problem(
                WARN,
                Text(
                    "{group} is paused, and {count} messages wait.",
                    group=seen.group,
                    count=number(seen.waiting),
                ),
                Text("Its consumption is switched off; resume it on its page."),
                place,
            )
    elif not seen.online:
        yield from nobody_consumes(seen, place)
    elif seen.unfinished and still >= STILL_MS:
        yield stands_still(seen, still, sample, place)
    yield from more_are_dead(seen, history, place)


def nobody_consumes(seen: GroupSeen, place: tuple[str, ...]) -> Iterator[Problem]:
    if seen.waiting and seen.oldest_ms >= WAITS_MS:
        yield Problem(
            WARN,
            Text(
                "Nobody consumes for {group}: {count} messages wait.",
                group=seen.group,
                count=number(seen.waiting),
            ),
            Text(
                "The oldest waits for {time}. Start its consumers, or delete the group if it is not used any more.",
                time=age(seen.oldest_ms),
            ),
            place,
        )


def stands_still(seen: GroupSeen, still_ms: int, sample: Sample, place: tuple[str, ...]) -> Problem:
    what = Text("{group} stands still: nothing finished for {time}.", group=seen.group, time=age(still_ms))
    if not seen.in_flight:
        why = Text(
            "Its consumers are connected and take nothing, while {count} messages wait: their filter fits none of "
            "them, they are paused, or they have no queue.",
            count=number(seen.waiting),
        )
        return Problem(BAD, what, why, place)
    holders = sample.holders.get(seen.group, [])
    if not holders:
        why = Text("Its consumers hold {count} messages and answer for none.", count=number(seen.in_flight))
        return Problem(BAD, what, why, place)
    named = ", ".join(f"{holder.client_id} ({number(holder.held)})" for holder in holders[:3])
    return Problem(
        BAD, what, Text("Its consumers hold messages and answer for none: {clients}.", clients=named), place
    )


def more_are_dead(seen: GroupSeen, history: History, place: tuple[str, ...]) -> Iterator[Problem]:
    points = history.groups.get(seen.group)
    if not points:
        return
    first = next((point for point in points if points[-1].at - point.at <= DEAD_SEEN_MS), points[-1])
    died = points[-1].dead - first.dead
    if died > 0:
        yield Problem(
            WARN,
            Text("{count} messages of {group} died lately.", count=number(died), group=seen.group),
            Text(
                "They failed as often as the group allows; its dead letters have them, {total} in all.",
                total=number(seen.dead),
            ),
            place,
        )


# -- topics ----------------------------------------------------------------------------------------------


def nobody_reads(unread: dict[str, int]) -> Iterator[Problem]:
    """The largest few by themselves, the rest together."""
    largest = sorted(unread, key=lambda topic: -unread[topic])
    for topic in largest[:UNREAD_TOLD]:
        yield Problem(
            WARN,
            Text("Nobody reads topic {topic}.", topic=topic),
            _kept(unread[topic]),
            ("topics", topic),
        )
    if rest := largest[UNREAD_TOLD:]:
        yield Problem(
            WARN,
            Text("Nobody reads {count} more topics.", count=number(len(rest))),
            Text("Among them {topics}.", topics=", ".join(rest[:5])),
            ("topics",),
        )


def _kept(count: int) -> Text:
    if count == 1:
        return Text("It keeps one message, and no group has ever read it.")
    return Text("It keeps {count} messages, and no group has ever read it.", count=number(count))
