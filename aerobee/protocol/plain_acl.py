# SPDX-License-Identifier: Apache-2.0
"""plain_acl.yml, the access control list of RocketMQ 4 to 5.3.2: read as RocketMQ reads it, and turned into users and
policies of RocketMQ 5.

Every scalar is text, whatever it looks like: `secretKey: 0777777777` is that text. What is not known is refused.
"""

from __future__ import annotations

from enum import IntFlag
from typing import TYPE_CHECKING, Any

import msgspec

from aerobee.protocol.access import USER_PREFIX, Decision, PolicyType, UserType
from aerobee.protocol.address_patterns import parse_pattern
from aerobee.protocol.bodies.access import AclInfo, PolicyEntryInfo, PolicyInfo, UserInfo

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

MIN_KEY = 7
_NULLS = frozenset({"", "~", "null", "Null", "NULL"})
_TRUE, _FALSE = frozenset({"true", "yes", "on"}), frozenset({"false", "no", "off"})


class Perm(IntFlag):
    DENY = 1
    ANY = 2  # only asked for: one of the two others
    PUB = 4
    SUB = 8


_PERMS = {
    "DENY": Perm.DENY,
    "PUB": Perm.PUB,
    "SUB": Perm.SUB,
    "PUB|SUB": Perm.PUB | Perm.SUB,
    "SUB|PUB": Perm.PUB | Perm.SUB,
}


class PlainAccount(msgspec.Struct, frozen=True, kw_only=True):
    access_key: str
    secret_key: str
    white_remote_address: str = ""
    admin: bool = False
    default_topic_perm: str = ""
    default_group_perm: str = ""
    topic_perms: dict[str, Perm] = {}
    group_perms: dict[str, Perm] = {}

    def __repr__(self) -> str:
        return f"PlainAccount({self.access_key!r})"


class PlainAclFile(msgspec.Struct, frozen=True):
    white_addresses: tuple[str, ...] = ()
    accounts: tuple[PlainAccount, ...] = ()


def perm_of(text: str) -> Perm:
    """A word that is none of the five denies."""
    return _PERMS.get(text.strip(), Perm.DENY)


def is_perm(text: str) -> bool:
    return text.strip() in _PERMS


# -- reading -----------------------------------------------------------------------------------------------------

_FILE = frozenset({"globalWhiteRemoteAddresses", "accounts", "dataVersion"})
_ACCOUNT = frozenset(
    {
        "accessKey",
        "secretKey",
        "whiteRemoteAddress",
        "admin",
        "defaultTopicPerm",
        "defaultGroupPerm",
        "topicPerms",
        "groupPerms",
    }
)


def parse_plain_acl(text: str) -> PlainAclFile:
    """ValueError says what is wrong and where."""
    document = parse_document(text)
    white = tuple(_texts(document.get("globalWhiteRemoteAddresses"), "globalWhiteRemoteAddresses"))
    for pattern in white:
        parse_pattern(pattern)
    accounts: dict[str, PlainAccount] = {}
    for each in accounts_of(document):
        account = _account(each)
        accounts.setdefault(account.access_key, account)  # the first one counts, as in RocketMQ
    return PlainAclFile(white, tuple(accounts.values()))


def parse_document(text: str) -> dict[str, Any]:
    """The file as it is written: texts, lists of texts, and None."""
    return _mapping(_yaml(text), "the file", _FILE)


def accounts_of(document: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        _mapping(each, "an account", _ACCOUNT) for each in _sequence(document.get("accounts"), "accounts")
    ]


def _account(fields: dict[str, Any]) -> PlainAccount:
    name, secret = _text(fields, "accessKey"), _text(fields, "secretKey")
    if len(name) < MIN_KEY or len(secret) < MIN_KEY:
        raise ValueError(f"account {name!r}: accessKey and secretKey have at least {MIN_KEY} characters")
    address = _text(fields, "whiteRemoteAddress")
    parse_pattern(address)
    return PlainAccount(
        access_key=name,
        secret_key=secret,
        white_remote_address=address,
        admin=_truth(_text(fields, "admin"), name),
        default_topic_perm=_text(fields, "defaultTopicPerm"),
        default_group_perm=_text(fields, "defaultGroupPerm"),
        topic_perms=dict(_perms(fields.get("topicPerms"), "topicPerms", name)),
        group_perms=dict(_perms(fields.get("groupPerms"), "groupPerms", name)),
    )


def _perms(found: Any, key: str, account: str) -> Iterator[tuple[str, Perm]]:
    for each in _texts(found, key):
        name, equals, perm = each.partition("=")
        if not equals or not name.strip():
            raise ValueError(f"account {account!r}, {key}: {each!r} is not name=PERM, as in topicA=SUB")
        yield name.strip(), perm_of(perm)


def _text(fields: dict[str, Any], key: str) -> str:
    value = fields.get(key)
    if value is not None and not isinstance(value, str):
        raise ValueError(f"{key} is not one text")
    return (value or "").strip()


def _truth(text: str, account: str) -> bool:
    if text.lower() in _TRUE:
        return True
    if not text or text.lower() in _FALSE:
        return False
    raise ValueError(f"account {account!r}: admin is {text!r}, neither true nor false")


def _texts(found: Any, key: str) -> list[str]:
    values = _sequence(found, key)
    if not all(isinstance(each, str) for each in values):
        raise ValueError(f"{key} is not a list of texts")
    return values


def _sequence(found: Any, key: str) -> list[Any]:
    if found is None:
        return []
    if not isinstance(found, list):
        raise ValueError(f"{key} is not a list")
    return found


def _mapping(found: Any, what: str, known: Iterable[str]) -> dict[str, Any]:
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise ValueError(f"{what} is not of the form `name: value`")
    unknown = set(found) - set(known)
    if unknown:
        raise ValueError(f"{what} has {', '.join(sorted(map(str, unknown)))}, which nobody knows")
    return found


def yaml_module() -> Any:
    try:
        import yaml  # type: ignore[import-untyped]
    except ImportError:
        raise ValueError("plain_acl.yml is YAML: pip install 'aerobee[acl]'") from None
    return yaml


def _yaml(text: str) -> Any:
    yaml = yaml_module()
    try:
        return _plain(yaml.compose(text, Loader=yaml.SafeLoader), yaml)
    except yaml.YAMLError as error:
        hint = "; write '*' in quotes" if "alias" in str(error) else ""
        raise ValueError(f"it is no YAML: {' '.join(str(error).split())}{hint}") from None


def _plain(node: Any, yaml: Any) -> Any:
    if isinstance(node, yaml.MappingNode):
        return {_plain(key, yaml): _plain(value, yaml) for key, value in node.value}
    if isinstance(node, yaml.SequenceNode):
        return [_plain(each, yaml) for each in node.value]
    if node is None or (node.style is None and node.value in _NULLS):
        return None
    return str(node.value)


# -- RocketMQ 5's form -------------------------------------------------------------------------------------------


def as_user(account: PlainAccount) -> UserInfo:
    kind = UserType.SUPER if account.admin else UserType.NORMAL
    return UserInfo(username=account.access_key, password=account.secret_key, user_type=kind.value)


def as_policies(account: PlainAccount) -> AclInfo | None:
    """Listed names as custom entries, the defaults as default ones; None when it has neither. White addresses have no
    counterpart: an address narrows a policy and never opens one."""
    listed = [
        *(_entry(f"Topic:{name}", perm) for name, perm in account.topic_perms.items()),
        *(_entry(f"Group:{name}", perm) for name, perm in account.group_perms.items()),
    ]
    given = (("Topic:*", account.default_topic_perm), ("Group:*", account.default_group_perm))
    default = [_entry(resource, perm_of(text)) for resource, text in given if text]
    policies = [
        PolicyInfo(policy_type=kind.value, entries=entries)
        for kind, entries in ((PolicyType.CUSTOM, listed), (PolicyType.DEFAULT, default))
        if entries
    ]
    return AclInfo(subject=f"{USER_PREFIX}{account.access_key}", policies=policies) if policies else None


def _entry(resource: str, perm: Perm) -> PolicyEntryInfo:
    if perm & Perm.DENY:
        return PolicyEntryInfo(resource=resource, actions=["All"], decision=Decision.DENY.value)
    actions = [word for bit, word in ((Perm.PUB, "Pub"), (Perm.SUB, "Sub")) if perm & bit]
    return PolicyEntryInfo(resource=resource, actions=actions, decision=Decision.ALLOW.value)
