# SPDX-License-Identifier: Apache-2.0
"""Rights, as policies write them and requests need them: resources, actions, decisions.

Topic:orders    Topic:ord*    Topic:*    *
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple, TypeVar

# RocketMQ's words, by which clients know what to do next.
NO_ACCOUNT = "username cannot be null."
WRONG_SECRET = "check signature failed."

EVERY = "*"
USER_PREFIX = "User:"
HIDDEN_PASSWORD = "******"  # told in the place of one that the asker is not to know


class Action(StrEnum):
    ALL = "All"
    ANY = "Any"
    PUB = "Pub"
    SUB = "Sub"
    CREATE = "Create"
    UPDATE = "Update"
    DELETE = "Delete"
    GET = "Get"
    LIST = "List"


class Decision(StrEnum):
    ALLOW = "Allow"
    DENY = "Deny"


class PolicyType(StrEnum):
    CUSTOM = "Custom"  # looked at first
    DEFAULT = "Default"  # where no custom entry fits


class UserType(StrEnum):
    SUPER = "Super"
    NORMAL = "Normal"


class UserStatus(StrEnum):
    ENABLE = "enable"
    DISABLE = "disable"


class Kind(StrEnum):
    ANY = "Any"
    CLUSTER = "Cluster"
    NAMESPACE = "Namespace"
    TOPIC = "Topic"
    GROUP = "Group"


class Pattern(StrEnum):
    ANY = "any"
    LITERAL = "literal"
    PREFIXED = "prefixed"


E = TypeVar("E", bound=StrEnum)


def named(kind: type[E], text: str | None) -> E | None:
    """The member of that name in any case; None when there is none."""
    wanted = (text or "").strip().lower()
    return next((each for each in kind if each.value.lower() == wanted), None)


class Resource(NamedTuple):
    kind: Kind
    name: str
    pattern: Pattern = Pattern.LITERAL

    @classmethod
    def parse(cls, text: str) -> Resource:
        """ValueError when the text names nothing."""
        text = text.strip()
        if text == EVERY:
            return cls(Kind.ANY, "", Pattern.ANY)
        word, colon, name = text.partition(":")
        kind = named(Kind, word)
        if not colon or kind is None or not name or (kind is Kind.ANY and name != EVERY):
            raise ValueError(f"resource {text[:200]!r}: write Topic:name, Group:name, Cluster:name, or *")
        if name == EVERY:
            return cls(kind, "", Pattern.ANY)
        if name.endswith(EVERY):
            prefix = name.partition(EVERY)[0]
            return cls(kind, prefix, Pattern.PREFIXED if prefix else Pattern.ANY)
        return cls(kind, name)

    @property
    def text(self) -> str:
        if self.kind is Kind.ANY:
            return EVERY
        end = EVERY if self.pattern is not Pattern.LITERAL else ""
        return f"{self.kind}:{self.name}{end}"

    def covers(self, asked: Resource) -> bool:
        """Whether an entry about this is about what a request asks for: a name, or all of a kind."""
        if self.kind is not Kind.ANY and self.kind is not asked.kind:
            return False
        if self.pattern is Pattern.ANY or self.kind is Kind.ANY:
            return True
        if asked.pattern is Pattern.ANY:
            return False
        if self.pattern is Pattern.PREFIXED:
            return asked.name.startswith(self.name)
        return asked.name == self.name


class Need(NamedTuple):
    """What a request needs: one of the actions on the resource."""

    resource: Resource
    actions: tuple[Action, ...]

    @property
    def actions_text(self) -> str:
        return " or ".join(self.actions)


def topic(name: str, *actions: Action) -> Need:
    return Need(Resource(Kind.TOPIC, name), actions)


def group(name: str, *actions: Action) -> Need:
    return Need(Resource(Kind.GROUP, name), actions)


def cluster(name: str, *actions: Action) -> Need:
    return Need(Resource(Kind.CLUSTER, name), actions)


def every(kind: Kind, *actions: Action) -> Need:
    return Need(Resource(kind, "", Pattern.ANY), actions)
