# SPDX-License-Identifier: Apache-2.0
"""The broker's settings, seen and changed while it runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from aerobee.protocol import names
from aerobee.protocol.codes import Perm
from aerobee.settings.running import change, changed_names, official_text

if TYPE_CHECKING:
    from aerobee.broker.broker import Broker

_OF_THE_TEMPLATE = {"auto_create_topics", "default_queues"}


def settings(broker: Broker) -> str:
    """All settings as `name=value` lines."""
    return official_text(broker.config, broker.store.config)


def changed_settings(broker: Broker) -> list[str]:
    """Names of those changed since the start, as `settings` writes them."""
    return changed_names(broker.settings, broker.store.settings)


def change_settings(text: str, broker: Broker) -> None:
    """Change what the `name=value` lines say: all of it, or, when any line is refused, nothing."""
    changes = change(text, {"broker": broker.settings, "store": broker.store.settings})
    changed = {each.field.name for each in changes}
    if changed & _OF_THE_TEMPLATE:
        _change_template(broker)
    if "perm" in changed:
        broker.topics.all_changed()  # name servers are told, and clients see it in their routes


def _change_template(broker: Broker) -> None:
    """Topics are created on send as long as the template topic may be inherited from, with as many queues."""
    config = broker.config
    perm = Perm.READ | Perm.WRITE | (Perm.INHERIT if config.auto_create_topics else 0)
    template = broker.topics.ensure(names.DEFAULT_TOPIC, config.default_queues)
    if not config.auto_create_topics:
        broker.topics.ensure(names.TRACE_TOPIC, 1)
    queues = config.default_queues
    broker.topics.put(
        msgspec.structs.replace(template, perm=int(perm), read_queue_nums=queues, write_queue_nums=queues)
    )
