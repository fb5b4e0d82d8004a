# SPDX-License-Identifier: Apache-2.0
"""The checkpoint file: how far the disk is known to be complete.

    0    five int64 of RocketMQ: store times up to which log, queues and index are on disk, two positions
    (unused here) 1024 ours: magic 8 | position 8 | checked from 8 | crc 4

Every record before `position` is synced, and so are its queue unit and its keys: recovery starts there.
`checked from` is a record boundary a little earlier, from which a clean start looks at the last records.
RocketMQ ignores what follows byte 40 and leaves it alone, so a position can be older than the log, never
newer.
"""

from __future__ import annotations

import os
import struct
import zlib
from typing import TYPE_CHECKING, NamedTuple

from aerobee.store import platform
from aerobee.store.directories import sync_directory
from aerobee.store.modes import open_file

if TYPE_CHECKING:
    from pathlib import Path

_TIMES = struct.Struct(">qqqqq")
_OWN = struct.Struct(">8sqqII")
_OWN_AT = 1024
_MAGIC = b"AEROBEE1"
_SIZE = 4096


class Checkpoint(NamedTuple):
    log_time: int = 0
    queue_time: int = 0
    index_time: int = 0
    position: int = -1  # -1: unknown, the file is RocketMQ's or damaged
    checked_from: int = -1
    has_queues: bool = True  # False: every topic was deleted, so no queue on disk is as it should be
    is_latest: bool = False  # nobody else wrote the times since


def load(path: Path) -> Checkpoint:
    try:
        data = path.read_bytes().ljust(_SIZE, b"\0")
    except FileNotFoundError:
        return Checkpoint()
    log_time, queue_time, index_time, _, _ = _TIMES.unpack_from(data)
    magic, position, checked_from, has_queues, times_crc = _OWN.unpack_from(data, _OWN_AT)
    (crc,) = struct.unpack_from(">I", data, _OWN_AT + _OWN.size)
    if magic != _MAGIC or crc != zlib.crc32(data[_OWN_AT : _OWN_AT + _OWN.size]) or position < 0:
        position, checked_from, has_queues = -1, -1, True
    is_latest = position >= 0 and times_crc == zlib.crc32(data[: _TIMES.size])
    return Checkpoint(log_time, queue_time, index_time, position, checked_from, bool(has_queues), is_latest)


def save(path: Path, checkpoint: Checkpoint) -> None:
    """Write in place and sync: ours is one sector with its own CRC, a torn write is an unknown position."""
    times = _TIMES.pack(
        checkpoint.log_time, checkpoint.queue_time, checkpoint.index_time, 0, max(0, checkpoint.position)
    )
    own = _OWN.pack(
        _MAGIC, checkpoint.position, checkpoint.checked_from, checkpoint.has_queues, zlib.crc32(times)
    )
    own += struct.pack(">I", zlib.crc32(own))
    data = times.ljust(_OWN_AT, b"\0") + own
    is_new = not path.exists()
    fd = open_file(path)
    try:
        platform.pwrite(fd, data.ljust(_SIZE, b"\0"), 0)
        platform.sync_data(fd)
    finally:
        os.close(fd)
    if is_new:
        sync_directory(path.parent)
