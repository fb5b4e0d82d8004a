# SPDX-License-Identifier: Apache-2.0
"""What of a JSON body is not in its columns: the body compared with what its columns say. No Spark, one body at a time;
it is asked only for the few bodies of which something may be left."""

from __future__ import annotations

import json
import math
from typing import Any

NOTHING = object()


def rest(body: bytes, kept: str | None) -> str | None:
    """JSON of the keys whose values are not in `kept` (JSON of the columns); None when all are, "" when the body is
    not one JSON object."""
    try:
        told = json.loads(body)
    except (ValueError, RecursionError):
        return ""
    if not isinstance(told, dict):
        return ""
    left = _left(told, json.loads(kept) if kept else {})
    return None if left is NOTHING else _text(left)


def _text(left: Any) -> str:
    text = json.dumps(left, ensure_ascii=False)
    try:
        text.encode()
    except UnicodeEncodeError:  # half a surrogate pair, which JSON may escape and no text may hold
        return json.dumps(left)
    return text


def _left(told: Any, kept: Any) -> Any:
    """What of `told` is not in `kept`. A list is left as a whole: half of one would say something else."""
    if told is None:
        return NOTHING
    if isinstance(told, dict) and isinstance(kept, dict):
        each = {name: _left(value, kept.get(name)) for name, value in told.items()}
        some = {name: value for name, value in each.items() if value is not NOTHING}
        return some or NOTHING
    return NOTHING if _is_kept(told, kept) else told


def _is_kept(told: Any, kept: Any) -> bool:
    if isinstance(told, list) and isinstance(kept, list):
        return len(told) == len(kept) and all(_left(a, b) is NOTHING for a, b in zip(told, kept, strict=True))
    if _is_number(told) and _is_number(kept):
        return told == kept if isinstance(told, int) else math.isclose(told, kept, rel_tol=1e-6)
    # Text columns hold any value as its text; times and the like have texts of their own.
    return kept is not None and (isinstance(kept, str) or type(told) is type(kept))


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
