# SPDX-License-Identifier: Apache-2.0
"""Frames of sends by the compiled lane, out of what Python renders."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aerobee.native.client_sends import SendFrames
from aerobee.protocol.fast_frames import Sending

if TYPE_CHECKING:
    from aerobee.protocol.fast_frames import SendTemplate

# Values that stand nowhere else in a frame.
_QUEUE, _BORN, _SYS_FLAG, _FLAG, _OPAQUE = range(1_234_567_891, 1_234_567_896)
_TEXT = "#properties#"


def compiled(template: SendTemplate) -> SendFrames | SendTemplate:
    """The same frames; what is not plain still comes from the template."""
    rendered = template.frame(_OPAQUE, _QUEUE, Sending("", b"", _TEXT, "", _BORN, _SYS_FLAG, _FLAG))
    queue, born, sys_flag, flag = (b"%d" % each for each in (_QUEUE, _BORN, _SYS_FLAG, _FLAG))
    values = (queue, born, sys_flag, flag, _TEXT.encode())
    try:
        return SendFrames(template.frame, rendered, values, b"%d" % _OPAQUE)
    except ValueError:  # a topic or group with such a name
        return template
