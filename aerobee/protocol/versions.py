# SPDX-License-Identifier: Apache-2.0
"""RocketMQ's version numbers, as clients and brokers send them, in words."""

from __future__ import annotations

# RocketMQ numbers its versions in pairs, a snapshot and the release, ten releases a minor version.
_VERSION_4 = 212


def version_text(number: int) -> str:
    """`V5_3_3` for 479."""
    if number < _VERSION_4:
        return str(number)
    major, rest = divmod(number - _VERSION_4, 200)
    text = f"V{major + 4}_{rest // 20}_{rest % 20 // 2}"
    return text if rest % 2 else f"{text}_SNAPSHOT"
