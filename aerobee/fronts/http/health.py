# SPDX-License-Identifier: Apache-2.0
"""Whether the process lives, and whether it can do its work: for those who restart it, and those who send it work."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from starlette.responses import JSONResponse
from starlette.routing import Route

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.routing import BaseRoute

    from aerobee.broker.broker import Broker

# What is not as it should be, in a sentence; empty when all is well.
Check = Callable[[], str]
_NO_STORE = {"cache-control": "no-store"}


def checks_of(broker: Broker, registered: Check) -> dict[str, Check]:
    return {"store": lambda: _store(broker), "disk": lambda: _disk(broker), "registration": registered}


def routes(checks: Mapping[str, Check]) -> list[BaseRoute]:
    async def healthz(request: Request) -> JSONResponse:
        return JSONResponse({"status": "ok"}, headers=_NO_STORE)

    async def readyz(request: Request) -> JSONResponse:
        found = {name: check() for name, check in checks.items()}
        wrong = {name: reason for name, reason in found.items() if reason}
        answer = {
            "status": "not ready" if wrong else "ready",
            "checks": {name: reason or "ok" for name, reason in found.items()},
        }
        return JSONResponse(answer, 503 if wrong else 200, headers=_NO_STORE)

    return [Route("/healthz", healthz, name="healthz"), Route("/readyz", readyz, name="readyz")]


def _store(broker: Broker) -> str:
    return "" if broker.store.readable else "the store is closed"


def _disk(broker: Broker) -> str:
    root = broker.store.root
    if (refusal := broker.store.refusal) is not None:
        return str(refusal)
    try:
        read_only = bool(os.statvfs(root).f_flag & os.ST_RDONLY)
    except (OSError, AttributeError) as error:  # no such call on Windows: what can be told is told
        return "" if isinstance(error, AttributeError) else f"{root}: {error.strerror}"
    if read_only or not os.access(root, os.W_OK):
        return f"{root} cannot be written"
    return ""
