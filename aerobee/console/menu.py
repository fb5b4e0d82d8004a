# SPDX-License-Identifier: Apache-2.0
"""The menu: each entry's first part of the path, its English word, and its icon in templates/icons.html."""

from __future__ import annotations

MENU = [
    ("", "Overview", "overview"),
    ("topics", "Topics", "topics"),
    ("groups", "Groups", "groups"),
    ("timers", "Delayed", "timers"),
    ("transactions", "Transactions", "transactions"),
    ("clients", "Clients", "clients"),
    ("brokers", "Brokers", "brokers"),
    ("settings", "Settings", "settings"),
    ("accounts", "Accounts", "accounts"),
]
