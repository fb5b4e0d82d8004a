# SPDX-License-Identifier: Apache-2.0
"""Chinese, put together from its tables by theme."""

from __future__ import annotations

from aerobee.console.words.zh_accounts import ACCOUNTS
from aerobee.console.words.zh_clients import CLIENTS
from aerobee.console.words.zh_frame import FRAME
from aerobee.console.words.zh_groups import GROUPS
from aerobee.console.words.zh_messages import MESSAGES, WHAT_HAPPENED
from aerobee.console.words.zh_overview import OVERVIEW
from aerobee.console.words.zh_settings import SETTINGS
from aerobee.console.words.zh_timers import TIMERS
from aerobee.console.words.zh_topics import TOPICS

CHINESE = {
    **FRAME,
    **OVERVIEW,
    **MESSAGES,
    **WHAT_HAPPENED,
    **TOPICS,
    **GROUPS,
    **ACCOUNTS,
    **CLIENTS,
    **TIMERS,
    **SETTINGS,
}
