# SPDX-License-Identifier: Apache-2.0
"""The compiled lane for the busiest requests, and whether it runs.

Optional: without it everything works, slower. The Python code stays the reference: the lane takes over runs of requests
that it understands completely and leaves the rest alone, and what it stores and answers is equal to the byte. Nothing
but this door says whether it is there; without this package only the speed would be missing.
"""

from __future__ import annotations

import os
from importlib import import_module
from pathlib import Path

SWITCH = "AEROBEE_NATIVE"
MODULES = (
    "memory",
    "headers",
    "texts",
    "answers",
    "state",
    "send_topics",
    "drafts",
    "sends",
    "reads",
    "repeats",
    "pulls",
    "receipts",
    "acks",
    "changes",
    "signed",
    "client_records",
    "client_batches",
    "client_sends",
    "header_blocks",
    "grpc_calls",
    "grpc_messages",
)


def _why_off() -> str:
    if os.environ.get(SWITCH) == "0":
        return f"switched off by {SWITCH}=0"
    try:
        modules = [import_module(f"aerobee.native.{name}") for name in MODULES]
    except ModuleNotFoundError:
        return "not built"
    except ImportError as error:
        return f"not loadable: {error}"
    built = min(Path(str(module.__file__)).stat().st_mtime for module in modules)
    here = Path(__file__).parent
    sources = [*here.glob("*.p[xy][xd]"), *here.glob("*.h")]
    if any(source.stat().st_mtime > built for source in sources):  # a checkout that moved on
        return "older than its sources; `pip install -e .` builds it again"
    return ""


why_off = _why_off()  # empty when it is on
is_on = not why_off
state = "on" if is_on else f"off ({why_off})"
