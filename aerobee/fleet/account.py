# SPDX-License-Identifier: Apache-2.0
"""The account by which brokers of one keeper sign what they ask of its name server and of each other.

Whoever runs brokers by hand names it in `inner_credentials`. A keeper knows all of them and makes one, once for a data
directory: brokers remember their users, and a secret that changed would not be theirs any more.
"""

from __future__ import annotations

import json
import os
import secrets
from typing import TYPE_CHECKING

from aerobee.store.modes import open_file

if TYPE_CHECKING:
    from pathlib import Path

    from aerobee.settings import Settings

FILE = "account.json"
NAME = "aerobee-brokers"
VARIABLE = "AEROBEE_BROKER__INNER_CREDENTIALS"  # not an argument: everybody on the machine can read those


def is_missing(loaded: Settings) -> bool:
    """Requests must be signed, and nobody has said by whom the brokers' are."""
    signed = loaded.broker.authentication or loaded.namesrv.authentication
    return signed and not loaded.broker.inner_credentials


def kept_in(folder: Path) -> str:
    """As the setting has it; made when there is none yet."""
    file = folder / FILE
    if not file.exists():
        made = {"accessKey": NAME, "secretKey": secrets.token_urlsafe(24)}
        fresh = folder / f"{FILE}.new"
        with os.fdopen(open_file(fresh), "w") as out:
            out.truncate()
            json.dump(made, out)
            out.flush()
            os.fsync(out.fileno())
        fresh.replace(file)
    return file.read_text()
