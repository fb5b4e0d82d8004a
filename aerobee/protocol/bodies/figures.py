# SPDX-License-Identifier: Apache-2.0
"""Where a group's messages are, in numbers: counted by the broker, shown by client, command line, Spark and console."""

from __future__ import annotations

from enum import StrEnum

import msgspec


class QueueLag(msgspec.Struct, rename="camel", kw_only=True):
    """One queue of one topic for one group. Every message after `committed` is in exactly one count or acked."""

    topic: str  # the real one: maybe a retry topic
    broker_name: str
    queue_id: int
    min_offset: int = 0
    max_offset: int = 0
    committed: int = 0  # where a restart goes on
    position: int = 0  # the next offset to be handed out
    ready: int = 0  # stored and not handed out; those a filter will leave out are counted too
    in_flight: int = 0  # handed out and not acked, the delayed ones of POP included
    oldest_ready_ms: int = 0  # age of the oldest ready message, 0 when there is none
    oldest_in_flight_ms: int = 0
    behind_bytes: int = 0  # of the log after the last message read: far behind means read from disk
    behind_ms: int = 0  # age of the last message when it was read

    @property
    def lag(self) -> int:
        """What is not done yet. RocketMQ's lag, max - committed, also counts what was acked out of turn."""
        return self.ready + self.in_flight


class GroupLag(msgspec.Struct, rename="camel", kw_only=True):
    """`exact` is False where Apache RocketMQ was asked, which tells less: there `in_flight` of POP groups is counted as
    ready, `delayed` is unknown (0), and ages are those of the last message consumed."""

    group: str
    online: bool = False
    # topic -> PULL or POP: how push consumers of the group are to fetch it, as it was set (`aerobee groups mode`). A
    # SimpleConsumer pops whatever that says.
    modes: dict[str, str] = {}
    ready: int = 0
    in_flight: int = 0
    retrying: int = 0  # in a retry topic, ready to be handed out again
    delayed: int = 0  # sent back, waiting for their delay
    dead: int = 0  # in the dead-letter topic
    oldest_ms: int = 0  # age of the oldest message not acked, retries by their own time of storing
    delayed_is_exact: bool = True  # False when more are delayed than are looked at
    # topic -> expression -> client ids, where members subscribe differently and so lose messages
    conflicts: dict[str, dict[str, list[str]]] = {}
    queues: list[QueueLag] = []
    exact: bool = True

    @property
    def lag(self) -> int:
        """Everything the group has not finished."""
        return self.ready + self.in_flight + self.retrying + self.delayed


class Place(StrEnum):
    """Where a message is for a group."""

    WAITING = "waiting"
    LEASED = "leased"  # popped, and hidden from the others
    HANDED_OUT = "handed out"  # pulled: a consumer has it, or has finished it out of turn
    DONE = "done"  # finished, given back for a retry, or not what the group asks for


class MessageState(msgspec.Struct, rename="camel", kw_only=True):
    """One message for one group. Times are the broker's, 0 where there is none."""

    group: str
    place: Place
    leased_until: int = 0
    popped_at: int = 0
    reason: str = ""  # why its consumer gave it back, while it waits for its next attempt
