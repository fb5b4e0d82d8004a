# SPDX-License-Identifier: Apache-2.0
"""Settings from files, environment and flags, all checked against the one declaration in `aerobee.config`.

A TOML file has tables [broker], [store] and [namesrv]; keys of the first two may also stand outside a table. A
property file is RocketMQ's broker.conf, with RocketMQ's names. Later sources win: file, environment
(AEROBEE_BROKER__PORT=10911), flags.
"""

from __future__ import annotations

import difflib
import logging
import tomllib
from typing import TYPE_CHECKING, Any

import msgspec

from aerobee.config import BrokerConfig, NamesrvConfig, StoreConfig

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

log = logging.getLogger("aerobee.settings")

Kind = type[BrokerConfig] | type[StoreConfig] | type[NamesrvConfig]
_TABLES: dict[str, Kind] = {"broker": BrokerConfig, "store": StoreConfig, "namesrv": NamesrvConfig}
_FLUSH = {"ASYNC_FLUSH": "async", "SYNC_FLUSH": "sync"}

# In every broker.conf, and without a counterpart here.
_IGNORED = frozenset(
    {
        "brokerIP2",
        "brokerRole",
        "deleteWhen",
        "diskMaxUsedSpaceRatio",
        "haListenPort",
        "pullMessageThreadPoolNums",
        "sendMessageThreadPoolNums",
        "storePathCommitLog",
        "storePathConsumeQueue",
        "storePathIndex",
        "storePathRootDir",
        "traceTopicEnable",
    }
)


class Settings(msgspec.Struct, frozen=True):
    broker: BrokerConfig = BrokerConfig()
    store: StoreConfig = StoreConfig()
    namesrv: NamesrvConfig = NamesrvConfig()


def load(
    file: Path | None, environment: Mapping[str, str], flags: Mapping[str, Mapping[str, Any]]
) -> Settings:
    """Raises ValueError with one readable line for a key or value that is wrong."""
    found: dict[str, dict[str, Any]] = {name: {} for name in _TABLES}
    if file is not None:
        _merge(found, _read_file(file))
    _merge(found, _from_environment(environment))
    _merge(found, flags)
    made = {}
    for name, kind in _TABLES.items():
        try:
            made[name] = msgspec.convert(found[name], kind, strict=False)
        except msgspec.ValidationError as error:
            raise ValueError(f"setting in [{name}]: {error}") from None
    return Settings(**made)  # type: ignore[arg-type]


def _merge(into: dict[str, dict[str, Any]], tables: Mapping[str, Mapping[str, Any]]) -> None:
    for name, values in tables.items():
        into[name].update(values)


def _read_file(file: Path) -> dict[str, dict[str, Any]]:
    try:
        text = file.read_text()
    except OSError as error:
        raise ValueError(f"settings file {file}: {error.strerror}") from None
    if file.suffix == ".toml":
        try:
            return _from_toml(tomllib.loads(text))
        except tomllib.TOMLDecodeError as error:
            raise ValueError(f"settings file {file}: {error}") from None
    return _from_properties(text)


def _from_toml(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {name: {} for name in _TABLES}
    for key, value in document.items():
        if key in _TABLES and isinstance(value, dict):
            for inner, setting in value.items():
                found[key][_field(_TABLES[key], inner)] = setting
        else:
            table, field = find_setting(key)
            found[table][field] = value
    return found


def _from_properties(text: str) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {name: {} for name in _TABLES}
    for line in text.splitlines():
        line = line.strip()
        if not line or line[0] in "#!":
            continue
        name, _, value = (part.strip() for part in line.partition("="))
        if name == "brokerRole" and value == "SLAVE":
            raise ValueError("brokerRole=SLAVE: this broker is always a master")
        if name in _IGNORED:
            log.warning("setting %s=%s has no meaning here: ignored", name, value)
            continue
        table, field = find_setting(name)
        found[table][field] = _FLUSH.get(value, value)
    return found


def _from_environment(environment: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {name: {} for name in _TABLES}
    for variable, value in environment.items():
        prefix, _, field = variable.lower().partition("__")
        table = prefix.removeprefix("aerobee_")
        if prefix.startswith("aerobee_") and table in _TABLES and field:
            found[table][_field(_TABLES[table], field)] = value
    return found


def find_setting(name: str) -> tuple[str, str]:
    """The table and field of a setting of broker or store, by our name or RocketMQ's."""
    for table in ("broker", "store"):
        field = _names(_TABLES[table]).get(name)
        if field is not None:
            return table, field
    raise _unknown(name, {**_names(BrokerConfig), **_names(StoreConfig)})


def _field(kind: Kind, name: str) -> str:
    names = _names(kind)
    if name not in names:
        raise _unknown(name, names)
    return names[name]


def _unknown(name: str, known: Mapping[str, str]) -> ValueError:
    near = difflib.get_close_matches(name, known, 1)
    return ValueError(f"unknown setting '{name}'" + (f"; did you mean '{near[0]}'?" if near else ""))


def _names(kind: Kind) -> dict[str, str]:
    """Every name a field goes by: our own, its camel-case form, RocketMQ's."""
    names: dict[str, str] = {}
    for field in msgspec.json.schema(kind)["$defs"][kind.__name__]["properties"].items():
        name, schema = field
        head, *rest = name.split("_")
        names[name] = names[head + "".join(part.title() for part in rest)] = name
        if "alias" in schema:
            names[schema["alias"]] = name
    return names
