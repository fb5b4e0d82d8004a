# SPDX-License-Identifier: Apache-2.0
"""How a process that makes and drops megabytes at a time keeps them for the next time."""

from __future__ import annotations

import sys

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # malloc.h


def keep_freed(most: int) -> None:
    """Up to `most` freed bytes stay with the process, in pieces up to a quarter of that. Otherwise each large answer or
    batch takes its pages from the system anew, which costs as much as what is then done with them. glibc only; other
    allocators decide for themselves."""
    if sys.platform != "linux":
        return
    import ctypes

    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_TRIM_THRESHOLD, most)
        mallopt(_M_MMAP_THRESHOLD, most // 4)
