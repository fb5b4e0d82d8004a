# SPDX-License-Identifier: Apache-2.0
"""Who a command is to the servers, and where they are: the environment, then a profile of the user's own file.

    [prod]                                  # ~/.config/aerobee/profiles.toml, mode 0600
    namesrv = "mq1:9876;mq2:9876"
    access_key = "ann"
    secret_key = "..."                      # or: secret_key_env = "PROD_SECRET", or: keyring = "aerobee-prod"
    tls = "on"
    tls_ca = "/etc/aerobee/ca.pem"

`aerobee --profile prod topics list`, or AEROBEE_PROFILE=prod. Without a profile, and where nothing else says who it is,
mqadmin's own `conf/tools.yml` under ROCKETMQ_HOME is read.
"""

from __future__ import annotations

import os
import stat
import tomllib
from contextvars import ContextVar
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aerobee.errors import AerobeeError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aerobee.client.options import SessionOptions

FILE_VARIABLE, PROFILE_VARIABLE = "AEROBEE_PROFILES", "AEROBEE_PROFILE"
NAMES = ("access_key", "secret_key", "security_token", "tls", "tls_ca", "tls_cert", "tls_key")
_FURTHER = ("namesrv", "secret_key_env", "keyring")
_SECRET = ("secret_key", "security_token")

_chosen: ContextVar[str | None] = ContextVar("profile", default=None)


def choose(profile: str | None) -> None:
    _chosen.set(profile)


def file_of(environment: Mapping[str, str]) -> Path:
    if environment.get(FILE_VARIABLE):
        return Path(environment[FILE_VARIABLE])
    home = environment.get("XDG_CONFIG_HOME") or str(Path.home() / ".config")
    return Path(home) / "aerobee" / "profiles.toml"


def namesrv() -> str:
    """Of the profile; empty when it names none."""
    return str(_profile(os.environ).get("namesrv", ""))


def account(environment: Mapping[str, str] | None = None) -> dict[str, str]:
    """What of `SessionOptions` the user has set."""
    environment = os.environ if environment is None else environment
    profile = _profile(environment)
    found = {name: str(profile[name]) for name in NAMES if name in profile}
    found |= _kept_elsewhere(profile, environment)
    given = {name: environment.get(f"AEROBEE_{name.upper()}", "") for name in NAMES}
    found |= {name: value for name, value in given.items() if value}
    return found if "access_key" in found else _tools(environment) | found


def options(kind: type[SessionOptions], **more: Any) -> Any:
    """Options of that role, the account in them."""
    return kind(**{**account(), **more})


def _profile(environment: Mapping[str, str]) -> dict[str, Any]:
    name = _chosen.get() or environment.get(PROFILE_VARIABLE)
    if not name:
        return {}
    file = file_of(environment)
    try:
        known = tomllib.loads(file.read_text())
    except FileNotFoundError:
        raise AerobeeError(
            f"profile {name!r}: there is no file {file}; write [{name}] into it, mode 0600"
        ) from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise AerobeeError(f"profile {name!r}: {file}: {error}") from None
    profile = known.get(name)
    if not isinstance(profile, dict):
        raise AerobeeError(f"no profile {name!r} in {file}; there are {', '.join(sorted(known)) or 'none'}")
    unknown = set(profile) - {*NAMES, *_FURTHER}
    if unknown:
        raise AerobeeError(f"profile {name!r} in {file}: no such key {', '.join(sorted(unknown))}")
    _check_private(file, known)
    return profile


def _check_private(file: Path, known: dict[str, Any]) -> None:
    secrets = any(name in each for each in known.values() if isinstance(each, dict) for name in _SECRET)
    if secrets and stat.S_IMODE(file.stat().st_mode) & 0o077:
        raise AerobeeError(f"{file} has secrets and others may read it: chmod 600 {file}")


def _kept_elsewhere(profile: dict[str, Any], environment: Mapping[str, str]) -> dict[str, str]:
    if variable := profile.get("secret_key_env"):
        if not environment.get(str(variable)):
            raise AerobeeError(f"the profile takes its secret from ${variable}, which is not set")
        return {"secret_key": environment[str(variable)]}
    if service := profile.get("keyring"):
        try:
            keyring = import_module("keyring")
        except ImportError:
            raise AerobeeError("the profile takes its secret from the keyring: pip install keyring") from None
        secret = keyring.get_password(str(service), str(profile.get("access_key", "")))
        if not secret:
            raise AerobeeError(
                f"the keyring has no secret of {profile.get('access_key')!r} under {service!r}"
            )
        return {"secret_key": str(secret)}
    return {}


def _tools(environment: Mapping[str, str]) -> dict[str, str]:
    """mqadmin's file: two lines of YAML, `accessKey: name` and `secretKey: secret`."""
    home = environment.get("ROCKETMQ_HOME")
    try:
        text = (Path(home) / "conf" / "tools.yml").read_text() if home else ""
    except OSError:
        return {}
    pairs = (line.partition(":") for line in text.splitlines() if not line.lstrip().startswith("#"))
    said = {name.strip(): value.strip().strip("\"'") for name, _, value in pairs}
    if not (said.get("accessKey") and said.get("secretKey")):
        return {}
    return {"access_key": said["accessKey"], "secret_key": said["secretKey"]}
