# SPDX-License-Identifier: Apache-2.0
"""Changes of a plain_acl.yml as mqadmin asks for them: the document before and after, and the text it becomes.

Documents are not changed in place. The text is as RocketMQ writes it: names in order, nothing for what is not there, a
`dataVersion` that counts the changes. Comments have no place in it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aerobee.protocol.bodies.values import DataVersion
from aerobee.protocol.plain_acl import MIN_KEY, accounts_of, is_perm, yaml_module

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aerobee.protocol.headers.accounts import UpdateAclConfig

Document = dict[str, Any]


def with_account(document: Document, change: UpdateAclConfig) -> Document:
    """ValueError, in RocketMQ's words, for what cannot be an account."""
    accounts = accounts_of(document)
    known = next((each for each in accounts if each.get("accessKey") == change.access_key), None)
    changed = _changed(known or {"accessKey": change.access_key}, change)
    if known is None:
        return {**document, "accounts": [*accounts, changed]}
    return {**document, "accounts": [changed if each is known else each for each in accounts]}


def _changed(account: Document, change: UpdateAclConfig) -> Document:
    said = {
        "secretKey": change.secret_key or None,
        "whiteRemoteAddress": change.white_remote_address,
        "admin": None if change.admin is None else str(change.admin).lower(),
        "defaultTopicPerm": _perm(change.default_topic_perm),
        "defaultGroupPerm": _perm(change.default_group_perm),
        "topicPerms": _perms(change.topic_perms),
        "groupPerms": _perms(change.group_perms),
    }
    after = account | {name: value for name, value in said.items() if value is not None}
    keys = (after["accessKey"], after.get("secretKey") or "")
    if any(len(key) < MIN_KEY for key in keys):
        # RocketMQ tells the secret here; this goes to logs.
        raise ValueError(
            f"The accessKey={change.access_key} and secretKey=****** cannot be null and "
            f"length should longer than {MIN_KEY - 1}"
        )
    return after


def _perm(text: str | None) -> str | None:
    if text and not is_perm(text):
        raise ValueError(_not_a_perm(text))
    return text


def _perms(text: str | None) -> list[str] | None:
    """An empty text takes the whole list away."""
    if text is None:
        return None
    listed = [each.strip() for each in text.split(",") if each.strip()]
    for each in listed:
        name, equals, perm = each.partition("=")
        if not equals or not name.strip():
            raise ValueError(
                f"Parse Resource format error for {each}.\n"
                "The expected resource format is 'Res=Perm'. For example: topicA=SUB"
            )
        if not is_perm(perm):
            raise ValueError(_not_a_perm(each))
    return listed


def _not_a_perm(text: str) -> str:
    return (
        f"Parse resource permission error for {text}.\n"
        "The expected permissions are 'SUB' or 'PUB' or 'SUB|PUB' or 'PUB|SUB'."
    )


def without_account(document: Document, access_key: str) -> Document:
    left = [each for each in accounts_of(document) if each.get("accessKey") != access_key]
    return {**document, "accounts": left}


def with_white_addresses(document: Document, addresses: Sequence[str]) -> Document:
    return {**document, "globalWhiteRemoteAddresses": list(addresses)}


def split_addresses(text: str) -> list[str]:
    """At commas, but for those of `192.168.0.{1,2}`."""
    found, depth = [""], 0
    for letter in text:
        depth += (letter == "{") - (letter == "}")
        if letter == "," and depth <= 0:
            found.append("")
        else:
            found[-1] += letter
    return [each.strip() for each in found if each.strip()]


# -- versions and text -------------------------------------------------------------------------------------------


def version_of(document: Document) -> DataVersion:
    listed = document.get("dataVersion")
    known = listed[0] if isinstance(listed, list) and listed and isinstance(listed[0], dict) else {}
    return DataVersion(
        *(_number(known.get(name)) for name in ("counter", "stateVersion", "timestamp"))
    )  # fmt: skip


def _number(text: object) -> int:
    return int(text) if isinstance(text, str) and text.isdecimal() and len(text) < 19 else 0


def render(document: Document, now: int) -> str:
    """The next version of the document."""
    version = version_of(document).next(now)
    stamp = {"counter": version.counter, "timestamp": version.timestamp}
    plain = {**document, "accounts": [_typed(each) for each in accounts_of(document)], "dataVersion": [stamp]}
    return str(yaml_module().safe_dump(plain, allow_unicode=True, default_flow_style=False, sort_keys=True))


def _typed(account: Document) -> Document:
    """`admin` is a truth value in RocketMQ's files, whatever it was read as."""
    admin = account.get("admin")
    return account if admin is None else {**account, "admin": admin.lower() in ("true", "yes", "on")}
