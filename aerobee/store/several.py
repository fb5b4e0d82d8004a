# SPDX-License-Identifier: Apache-2.0
"""The data directory of one broker and that of several: which is which, told by the folders in it.

store/                  one broker's
brokers/broker-a/store  several brokers', each in a folder of its own
namesrv/                the name server's, in both
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aerobee.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

STORE, BROKERS = "store", "brokers"


def is_of_several(data: Path) -> bool:
    return (data / BROKERS).is_dir()


def refuse_several(data: Path) -> None:
    """StoreError when the directory is that of several brokers: one would start beside them, and find none of their
    messages."""
    if is_of_several(data):
        raise StoreError(
            f"{data} holds the data of several brokers: {', '.join(_kept(data)) or 'none yet'}; start it with"
            f" --brokers {max(len(_kept(data)), 2)}, or choose another --data"
        )


def refuse_one(data: Path, names: Sequence[str]) -> None:
    """StoreError when it is that of one broker, or of more than these: their messages would not be served."""
    if (data / STORE).is_dir():
        raise StoreError(
            f"{data} holds the data of one broker; start it without --brokers, choose another --data, or move"
            f" {data / STORE} to {data / BROKERS / names[0] / STORE} to go on with it as {names[0]}"
        )
    left_out = [name for name in _kept(data) if name not in names]
    if left_out:
        raise StoreError(
            f"{data} holds messages of {', '.join(left_out)} too; start it with --brokers {len(_kept(data))}, or move"
            f" {data / BROKERS / left_out[-1]} away when it is not needed any more"
        )


def folder_of(data: Path, name: str) -> Path:
    return data / BROKERS / name


def _kept(data: Path) -> list[str]:
    root = data / BROKERS
    return sorted(each.name for each in root.iterdir() if each.is_dir()) if root.is_dir() else []
