# SPDX-License-Identifier: Apache-2.0
"""Spark wraps what our Python said into pages of its own; this finds the sentence again."""

from __future__ import annotations

import re

_TRACE = "Traceback (most recent call last):"
_RAISED = re.compile(r"^((?:\w+\.)*[A-Z]\w*)(?:: |$)(.*)$")


def reason(error: BaseException) -> str:
    """One sentence: the last Python error inside a Spark error, else its own first line."""
    text = str(error)
    lines = text.rpartition(_TRACE)[2].splitlines() if _TRACE in text else []
    for line in lines:
        if found := _RAISED.match(line.strip("\r")):
            name, said = found.groups()
            # Our own errors say all by their text; others are known by their names.
            return (
                said
                if name.startswith("aerobee.") and said
                else f"{name.rpartition('.')[2]}: {said}".rstrip(": ")
            )
    return next((line.strip() for line in text.splitlines() if line.strip()), type(error).__name__)
