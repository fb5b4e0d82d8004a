# SPDX-License-Identifier: Apache-2.0
"""Every page of the console and everything that can be done in it: one table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from aerobee.console.pages import (
    account,
    accounts,
    brokers,
    clients,
    dead_letters,
    find,
    group,
    group_reset,
    groups,
    login,
    message,
    overview,
    settings,
    timers,
    topic,
    topic_messages,
    topics,
    transactions,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from starlette.responses import Response

    from aerobee.console.visit import Visit

    Answer = Callable[[Visit], Awaitable[Response]]


@dataclass(frozen=True)
class Page:
    """Looks only."""

    path: str
    answer: Answer
    needs_account: bool = True


@dataclass(frozen=True)
class Act:
    """A form that was sent: its token is checked, and one that changes the cluster is refused when read-only."""

    path: str
    answer: Answer
    needs_account: bool = True
    changes: bool = True


ROUTES: list[Page | Act] = [
    Page("/", overview.show),
    Page("/find", find.show),
    # topics
    Page("/topics", topics.show),
    Act("/topics", topics.create),
    Page("/topics/{topic}", topic.show),
    Page("/topics/{topic}/messages", topic_messages.show),
    Page("/topics/{topic}/send", topic.send_form),
    Act("/topics/{topic}/send", topic.send),
    Page("/topics/{topic}/settings", topic.settings),
    Act("/topics/{topic}/settings", topic.change),
    Page("/topics/{topic}/delete", topic.delete_form),
    Act("/topics/{topic}/delete", topic.delete),
    # groups
    Page("/groups", groups.show),
    Act("/groups", group.create),
    Page("/groups/{group}", group.show),
    Page("/groups/{group}/reset", group_reset.show),
    Act("/groups/{group}/reset", group_reset.reset),
    Page("/groups/{group}/settings", group.settings),
    Act("/groups/{group}/settings", group.change),
    Act("/groups/{group}/pause", group.pause),
    Act("/groups/{group}/resume", group.resume),
    Act("/groups/{group}/mode", group.mode),
    Page("/groups/{group}/delete", group.delete_form),
    Act("/groups/{group}/delete", group.delete),
    Page("/groups/{group}/dead", dead_letters.show),
    Act("/groups/{group}/dead", dead_letters.resend),
    Page("/groups/{group}/dead/export", dead_letters.export),
    # a message
    Page("/messages/{topic}/{id}", message.show),
    Page("/messages/{topic}/{id}/body", message.body),
    Act("/messages/{topic}/{id}/resend", message.resend),
    Act("/messages/{topic}/{id}/consume", message.consume),
    # what waits
    Page("/timers", timers.show),
    Page("/timers/levels/{level}", timers.level),
    Page("/timers/recall", timers.ask),
    Act("/timers/recall", timers.recall),
    Page("/transactions", transactions.show),
    # clients
    Page("/clients", clients.show),
    Page("/clients/one", clients.one),
    # brokers
    Page("/brokers", brokers.show),
    Page("/brokers/{broker}", brokers.one),
    Act("/brokers/{broker}/writes", brokers.switch_writes),
    Page("/settings", settings.show),
    Page("/settings/{name}", settings.one),
    Act("/settings/{name}", settings.change),
    # accounts
    Page("/accounts", accounts.show),
    Act("/accounts", accounts.create),
    Page("/accounts/may", accounts.may),
    Page("/accounts/audit", accounts.audit),
    Page("/accounts/users/{user}", account.show),
    Act("/accounts/users/{user}/grant", account.grant),
    Act("/accounts/users/{user}/password", account.set_password),
    Page("/accounts/users/{user}/step", account.ask),
    Act("/accounts/users/{user}/step", account.do),
    # who it is, and in which language
    Page("/login", login.show, needs_account=False),
    Act("/login", login.log_in, needs_account=False, changes=False),
    Act("/logout", login.log_out, needs_account=False, changes=False),
    Act("/language", login.choose_language, needs_account=False, changes=False),
]
