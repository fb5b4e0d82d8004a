# SPDX-License-Identifier: Apache-2.0
"""A word to Spark's refusal of `df.write...save()` without a mode.

Spark's default is to fail where the target exists, which no Python data source can tell it. It refuses such a write
before our code is asked, and proposes "Append" or "Overwrite", the latter of which a topic cannot do either.
"""

from __future__ import annotations

from functools import wraps
from typing import Any

_REFUSAL = "UNSUPPORTED_DATA_SOURCE_SAVE_MODE"
WORD = (
    'messages are only ever added to a topic: say .mode("append") before .save(),'
    " or use aerobee.spark.write(frame, topic)"
)


def explain(writer: Any) -> None:
    """Make `save` of a DataFrameWriter class add `WORD` to that refusal when it concerns a topic."""
    save = writer.save
    if hasattr(save, "__wrapped__"):
        return

    @wraps(save)
    def explained(self: Any, *args: Any, **named: Any) -> None:
        try:
            save(self, *args, **named)
        except Exception as error:
            text = str(error)
            if _REFUSAL in text and '"rocketmq"' in text:
                error.add_note(WORD)
            raise

    writer.save = explained
