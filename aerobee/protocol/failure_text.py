# SPDX-License-Identifier: Apache-2.0
"""Why a message failed, in a line: a consumer sends it back with the message, so that a dead letter says its reason.

It goes into a property of the copy that is stored. RocketMQ's brokers know nothing of it and store the copy without.
"""

from __future__ import annotations

import re

from aerobee.protocol import properties as props
from aerobee.protocol.message import MAX_PROPERTIES

MAX_LENGTH = 1_000
USUAL_LENGTH = 200
OF_ONE = r"\S*[0-9]\S*"  # a word of one message alone: a number, an id


def failure_text(error: BaseException | None, length: int) -> str:
    """`KeyError: 'card'`; empty when there is no error, or none may be told."""
    return "" if error is None or length <= 0 else one_line(f"{type(error).__name__}: {error}", length)


def one_line(text: str, length: int = MAX_LENGTH) -> str:
    """No control characters, which separate properties; no line that could be taken for a log's own."""
    # Only so much is looked at: somebody's error may hold megabytes.
    plain = "".join(sign if sign.isprintable() else " " for sign in text[: 4 * length])
    line = " ".join(plain.split())
    return line if len(line) <= length else f"{line[: length - 1]}…"


def alike(text: str) -> str:
    """What failures have in common that differ by an id or a number: `ValueError: card refused for #`."""
    return re.sub(OF_ONE, "#", text)


def noted(properties: dict[str, str], failure: str) -> str:
    """The text of the properties, the reason among them. It may be what a message has no room for; then without."""
    text = props.render(properties)
    if not failure:
        return text
    told = props.render({**properties, props.LAST_ERROR: one_line(failure)})
    return told if len(told.encode()) <= MAX_PROPERTIES else text
