# SPDX-License-Identifier: Apache-2.0
"""Structs of settings that are made of several others, each setting declared once.

    class Sends(Declared, metaclass=Parts): ...
    class Owns(Declared, metaclass=Parts): ...
    class Push(Sends, Owns): ...                # has the settings of both, and is both

msgspec lays a struct out along one line of bases, so it refuses the last one. Here the first base is inherited from
as ever; of the others the fields are taken over, and `isinstance` and `issubclass` count them as bases, as type
checkers do anyway.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable


class Parts(msgspec.StructMeta):
    _further: tuple[type, ...] = ()

    def __new__(cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **how: Any) -> Parts:
        first, *further = bases
        inherited = {each.name for each in msgspec.structs.fields(first)}
        own = namespace.get("__annotations__", {})
        taken: dict[str, Any] = {}
        for each in (each for part in further for each in msgspec.structs.fields(part)):
            if each.name not in inherited:
                taken[each.name] = each.type
                namespace.setdefault(each.name, each.default)
        namespace["__annotations__"] = {**taken, **own}
        made: Parts = super().__new__(cls, name, (first,), namespace, **how)
        made._further = tuple(further)
        return made

    def __subclasscheck__(cls, kind: type) -> bool:
        return super().__subclasscheck__(kind) or any(issubclass(part, cls) for part in _further_of(kind))

    def __instancecheck__(cls, value: object) -> bool:
        return issubclass(type(value), cls)


def _further_of(kind: type) -> Iterable[type]:
    return (
        part for each in kind.__mro__ if isinstance(each, Parts) for part in vars(each).get("_further", ())
    )
