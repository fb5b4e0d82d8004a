# SPDX-License-Identifier: Apache-2.0
"""A message's body for eyes: as JSON or text where it is that, as hex always; only its beginning, where it is long."""

from __future__ import annotations

import json
from typing import NamedTuple

SHOWN = 16 * 1024
SHOWN_IN_LIST = 2 * 1024
SHOWN_HEX = 1024
GLIMPSE = 100
# Signs that turn the direction of what stands around them, or have no width: shown as what they are.
_UNSEEN = {
    code: f"\\u{code:04x}"
    for code in [*range(0x202A, 0x202F), *range(0x2066, 0x206A), 0x200B, 0x200E, 0x200F, 0xFEFF, 0x061C]
}


class Body(NamedTuple):
    size: int
    kind: str  # json, text or binary
    text: str  # empty when binary
    hex: str
    cut: bool  # the text is only its beginning


def body_of(body: bytes, shown: int = SHOWN) -> Body:
    cut = len(body) > shown
    text = _text(body[:shown], cut=cut)
    if text is None:
        return Body(len(body), "binary", "", hex_dump(body[:SHOWN_HEX]), len(body) > SHOWN_HEX)
    kind = "text"
    if not cut and (pretty := _json(text)) is not None:
        kind, text = "json", pretty
    return Body(len(body), kind, text.translate(_UNSEEN), hex_dump(body[:SHOWN_HEX]), cut)


def glimpse(body: bytes) -> str:
    """One line of it."""
    text = _text(body[: 4 * GLIMPSE], cut=len(body) > 4 * GLIMPSE)
    if text is None:
        return body[:24].hex(" ") + (" …" if len(body) > 24 else "")
    line = " ".join(text.split()).translate(_UNSEEN)
    return line if len(line) <= GLIMPSE else line[: GLIMPSE - 1] + "…"


def _text(body: bytes, *, cut: bool) -> str | None:
    """None where it is no text. A sign cut in two at the end does not make it binary."""
    try:
        text = body.decode()
    except UnicodeDecodeError as error:
        if not cut or error.start < len(body) - 3:
            return None
        text = body[: error.start].decode()
    unprintable = sum(not (sign.isprintable() or sign.isspace() or ord(sign) in _UNSEEN) for sign in text)
    return None if unprintable > len(text) // 50 else text


def _json(text: str) -> str | None:
    if text.lstrip()[:1] not in ("{", "["):
        return None
    try:
        return json.dumps(json.loads(text), ensure_ascii=False, indent=2)
    except (ValueError, RecursionError):
        return None


def hex_dump(body: bytes) -> str:
    """Sixteen bytes a line: where, what, and as signs."""
    lines = []
    for at in range(0, len(body), 16):
        part = body[at : at + 16]
        signs = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in part)
        lines.append(f"{at:06x}  {part.hex(' '):<47}  {signs}")
    return "\n".join(lines)
