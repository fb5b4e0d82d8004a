# SPDX-License-Identifier: Apache-2.0
"""Static topics: logic queues with numbers that stay, and the queues of brokers they stand for."""

from __future__ import annotations

from msgspec import field

from aerobee.protocol.bodies.values import Body, DataVersion

GLOBAL = "__global__"


class MappedPart(Body):
    """A stretch of a logic queue, and where it lies."""

    bname: str = ""
    end_offset: int = -1
    gen: int = 0
    logic_offset: int = 0
    queue_id: int = 0
    start_offset: int = 0
    time_of_end: int = -1
    time_of_start: int = -1


class QueueMappingInfo(Body):
    """What a broker registers and a route shows: logic queue -> queue of the broker that takes its messages now."""

    bname: str = ""
    curr_id_map: dict[int, int] = field(default_factory=dict)
    dirty: bool = False
    epoch: int = 0
    scope: str = GLOBAL
    topic: str = ""
    total_queues: int = 0


class QueueMapping(Body):
    """All a broker knows of the topic: the stretches of each logic queue, oldest first."""

    bname: str = ""
    curr_id_map: dict[int, int] = field(default_factory=dict)
    dirty: bool = False
    epoch: int = 0
    hosted_queues: dict[int, list[MappedPart]] = field(default_factory=dict)
    scope: str = GLOBAL
    topic: str = ""
    total_queues: int = 0

    def info(self) -> QueueMappingInfo:
        """As registered: the queues whose last stretch this broker has."""
        here = {number: parts[-1].queue_id for number, parts in self.hosted_queues.items() if parts}
        return QueueMappingInfo(
            bname=self.bname,
            curr_id_map=here,
            epoch=self.epoch,
            scope=self.scope,
            topic=self.topic,
            total_queues=self.total_queues,
        )


class QueueMappings(Body):
    """`topicQueueMapping.json`."""

    data_version: DataVersion = field(default_factory=DataVersion)
    topic_queue_mapping_info_map: dict[str, QueueMapping] = field(default_factory=dict)


class StaticTopicConfig(Body):
    """The answer to code 351 when the mapping was asked for: a topic's settings and one member more."""

    attributes: dict[str, str] = field(default_factory=dict)
    mapping_detail: QueueMapping | None = None
    order: bool = False
    perm: int = 6
    read_queue_nums: int = 16
    topic_filter_type: str = "SINGLE_TAG"
    topic_name: str = ""
    topic_sys_flag: int = 0
    write_queue_nums: int = 16
