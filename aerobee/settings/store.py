# SPDX-License-Identifier: Apache-2.0
"""Settings of the store: files, syncing, how long messages are kept."""

from __future__ import annotations

from typing import Annotated

from aerobee.settings.declare import (
    CENTURY_MS,
    MEGABYTE,
    NO_LIMIT,
    Declared,
    Setting,
    interval,
    setting,
    size,
)

DEFAULT_DATA = "./aerobee-data"


def _share_of_disk(text: str, official: str) -> Setting:
    return setting(text, official, low=0.01, high=1, live=True, factor=0.01)


class StoreConfig(Declared, frozen=True, kw_only=True):
    data: Annotated[
        str, setting("data directory; messages are in its folder `store`", "storePathRootDir")
    ] = DEFAULT_DATA
    flush: Annotated[
        str,
        setting(
            "'async' survives a kill of the process, 'sync' power loss too",
            "flushDiskType",
            live=True,
            words={"ASYNC_FLUSH": "async", "SYNC_FLUSH": "sync"},
        ),
    ] = "async"
    flush_interval_ms: Annotated[
        int,
        interval("async: at most this long between syncs of the log", "flushIntervalCommitLog", live=True),
    ] = 500
    commit_log_segment_bytes: Annotated[
        int, size("size of one commit-log file", "mappedFileSizeCommitLog", low=4096)
    ] = 1 << 30
    consume_queue_units: Annotated[
        int,
        setting(
            "units of 20 bytes in one consume-queue file",
            "mappedFileSizeConsumeQueue",
            low=1,
            high=1 << 32,
            factor=1 / 20,
        ),
    ] = 300_000
    index_slots: Annotated[
        int, setting("hash slots of one index file", "maxHashSlotNum", low=1, high=1 << 31)
    ] = 5_000_000
    index_entries: Annotated[
        int, setting("entries of one index file", "maxIndexNum", low=2, high=1 << 31)
    ] = 20_000_000
    record_check: Annotated[bool, setting("write a CRC over the whole record", "enabledAppendPropCRC")] = True
    open_files: Annotated[
        int,
        setting("consume-queue files kept open; the least recently used is closed", low=1, high=1_000_000),
    ] = 512
    group_access: Annotated[
        str,
        setting(
            "'none' keeps the files to the user of the broker, 'read' opens them to its group",
            words={"none": "none", "read": "read"},
        ),
    ] = "none"
    retention_hours: Annotated[
        float,
        setting(
            "age at which commit-log files are deleted",
            "fileReservedTime",
            unit="hours",
            low=0.01,
            high=876_000,
            live=True,
        ),
    ] = 72
    retention_bytes: Annotated[
        int, size("total size at which the oldest are deleted, 0 = no limit", high=NO_LIMIT, live=True)
    ] = 0
    disk_clean_ratio: Annotated[
        float,
        _share_of_disk(
            "disk use at which old files go whatever their age; not above disk_full_ratio",
            "diskSpaceCleanForciblyRatio",
        ),
    ] = 0.85
    disk_full_ratio: Annotated[
        float,
        _share_of_disk(
            "disk use at which sends are refused; not below disk_clean_ratio", "diskSpaceWarningLevelRatio"
        ),
    ] = 0.90
    min_free_bytes: Annotated[
        int, size("free bytes below which sends are refused; 0 = by ratio only", high=NO_LIMIT, live=True)
    ] = 0
    max_message_bytes: Annotated[
        int,
        size(
            "largest body, as it comes over the wire: after the client has compressed it",
            "maxMessageSize",
            low=1,
            high=1 << 30,
            live=True,
        ),
    ] = 4 * MEGABYTE
    memory_percent: Annotated[
        int,
        setting(
            "of the machine's memory: so much of the log's end counts as being in it",
            "accessMessageInMemoryMaxRatio",
            unit="%",
            low=0,
            high=100,
        ),
    ] = 40
    timer_max_delay_ms: Annotated[
        int,
        setting(
            "furthest delivery time ahead",
            "timerMaxDelaySec",
            unit="ms",
            low=1_000,
            high=CENTURY_MS,
            live=True,
            factor=1_000,
        ),
    ] = 40 * 24 * 3600 * 1000
    delay_levels: Annotated[str, setting("delays of levels 1, 2, ...", "messageDelayLevel")] = (
        "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
    )

    def check_together(self) -> None:
        if self.disk_clean_ratio > self.disk_full_ratio:
            raise ValueError(
                f"setting 'disk_clean_ratio': {self.disk_clean_ratio} is above disk_full_ratio"
                f" {self.disk_full_ratio}: sends would stop before old files go"
            )
