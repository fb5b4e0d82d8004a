# SPDX-License-Identifier: Apache-2.0
"""Offsets as they stand in Spark's checkpoint, progress and every question of a stream.

    {"o": {topic: {broker: {queue: next}}}, "v": 1}             readable, as long as it is short
    {"v": 2, "z": "..."}                                        the same map as JSON, deflated, in base64

Spark hands a stream its offset with each question, about a hundred times a second, and stores it with every batch; ten
thousand queues are 250 KB of the first form. Each offset stands for itself, for Spark deletes old ones. Beside the map,
`"init": true` marks a start that no batch has left yet, and `"from"` (a map, or deflated) tells with the end of the
first batch where that started. Both forms are read, whichever is written; keys are sorted, for Spark compares text.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections import OrderedDict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from aerobee.spark.option_values import Offsets

READABLE = 4_096  # characters of an offset that is written as it is
KEPT = 8  # offsets that are not inflated again when they are met again
PLAIN, DEFLATED = 1, 2


class UnknownOffsets(ValueError):
    """A checkpoint holds offsets that are not ours, or of a later version."""


class OffsetTexts:
    """To and from what Spark keeps. What was read or written lately is at hand."""

    def __init__(self) -> None:
        self._inflated: OrderedDict[str, Offsets] = OrderedDict()

    def initial(self, offsets: Offsets) -> dict[str, Any]:
        """Where a stream starts."""
        return {"init": True, **self._map(offsets)}

    def reached(self, offsets: Offsets, started: Offsets | None = None) -> dict[str, Any]:
        """The end of a batch; of the first one, which tells where it `started`."""
        first = {} if started is None else {"from": self._form(started)}
        return {**first, **self._map(offsets)}

    def read(self, told: Any) -> Offsets:
        """UnknownOffsets when it is nothing we wrote."""
        version = told.get("v") if isinstance(told, dict) else None
        if version == PLAIN and isinstance(told.get("o"), dict):
            return told["o"]  # type: ignore[no-any-return]
        if version == DEFLATED and isinstance(told.get("z"), str):
            return self._inflate(told["z"])
        if isinstance(version, int):
            raise UnknownOffsets(
                f"the checkpoint's offsets have version {version}, and this is an aerobee that reads {PLAIN} and"
                f" {DEFLATED}: go on with the one that wrote them, or start with another checkpoint"
            )
        raise UnknownOffsets(
            f"the checkpoint's offsets are not those of a rocketmq stream: {json.dumps(told)[:80]}"
        )

    def start_of(self, start: Any, end: Any) -> Offsets:
        """Where the batch from `start` to `end` begins."""
        if not (start.get("init") and "from" in end):
            return self.read(start)
        known: Offsets | str = end["from"]
        return self._inflate(known) if isinstance(known, str) else known

    def _map(self, offsets: Offsets) -> dict[str, Any]:
        form = self._form(offsets)
        return {"v": DEFLATED, "z": form} if isinstance(form, str) else {"o": form, "v": PLAIN}

    def _form(self, offsets: Offsets) -> Offsets | str:
        last = next(reversed(self._inflated.items()), ("", None))
        if last[1] == offsets:  # the heads, and a batch that goes as far
            return last[0]
        text = json.dumps(offsets, separators=(",", ":"))
        if len(text) <= READABLE:
            return offsets
        deflated = base64.b64encode(zlib.compress(text.encode(), 6)).decode()
        self._keep(deflated, offsets)
        return deflated

    def _inflate(self, text: str) -> Offsets:
        known = self._inflated.get(text)
        if known is None:
            try:
                known = json.loads(zlib.decompress(base64.b64decode(text)))
            except (ValueError, zlib.error) as error:
                raise UnknownOffsets(f"the checkpoint's offsets cannot be read: {error}") from None
        self._keep(text, known)
        return known

    def _keep(self, text: str, offsets: Offsets) -> None:
        self._inflated[text] = offsets
        self._inflated.move_to_end(text)
        if len(self._inflated) > KEPT:
            self._inflated.popitem(last=False)


def offsets_of(told: Any) -> Offsets:
    """The offsets of a progress, which has them as text or as what the text says."""
    return OffsetTexts().read(json.loads(told) if isinstance(told, str) else told)
