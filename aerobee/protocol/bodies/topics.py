# SPDX-License-Identifier: Apache-2.0
"""Topics: settings, the table of all, statistics."""

from __future__ import annotations

from typing import Any

from msgspec import field

from aerobee.protocol.bodies.values import Body, DataVersion, MessageQueue


class TopicConfig(Body):
    attributes: dict[str, str] = field(default_factory=dict)
    order: bool = False
    perm: int = 6
    read_queue_nums: int = 16
    topic_filter_type: str = "SINGLE_TAG"
    topic_name: str = ""
    topic_sys_flag: int = 0
    write_queue_nums: int = 16


class TopicConfigs(Body):
    """`topics.json`, the answer to code 21, and the heart of a broker's registration."""

    data_version: DataVersion = field(default_factory=DataVersion)
    mapping_data_version: DataVersion | None = None
    topic_config_table: dict[str, TopicConfig] = field(default_factory=dict)
    topic_queue_mapping_detail_map: dict[str, Any] | None = None
    topic_queue_mapping_info_map: dict[str, Any] | None = None


class TopicConfigList(Body):
    topic_config_list: list[TopicConfig] = field(default_factory=list)


class TopicOffset(Body):
    last_update_timestamp: int = 0
    max_offset: int = 0
    min_offset: int = 0


class TopicStats(Body):
    offset_table: dict[MessageQueue, TopicOffset] = field(default_factory=dict)
    topic_put_tps: float = 0.0


class QueueHeads(Body):
    """Aerobee's own: topic -> (queue, first offset, next offset)."""

    topics: dict[str, list[tuple[int, int, int]]] = field(default_factory=dict)
