# SPDX-License-Identifier: Apache-2.0
"""For tests, ours and users': an embedded server, a clock moved by hand, and pytest fixtures (`plugin`)."""

from aerobee.clock import ManualClock

__all__ = ["ManualClock"]
