# SPDX-License-Identifier: Apache-2.0
"""Every request with its mandatory fields alone, by the wire: answered or refused in words, never a failure of ours."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import NODEFAULT, inspect

from aerobee.fronts.remoting.routes import ROUTES
from aerobee.protocol.codes import RequestCode
from aerobee.protocol.command import Command, Header, header_fields

# A text or number for fields that must be there, by their name or their type.
KNOWN = {"topic": "orders", "consumer_group": "billing", "group": "billing", "producer_group": "shop"}
HEADERS: dict[int, type[Header]] = {
    code: route.header for code, route in ROUTES.items() if route.header is not None
}


def bare(kind: type[Header]) -> Header:
    given: dict[str, Any] = {}
    for field in inspect.type_info(kind).fields:  # type: ignore[attr-defined]
        if field.default is NODEFAULT and field.default_factory is NODEFAULT:
            text = isinstance(field.type, inspect.StrType)
            given[field.name] = KNOWN.get(field.name, "x" if text else 0)
    return kind(**given)


@pytest.mark.parametrize("code", sorted(HEADERS), ids=lambda code: RequestCode(code).name)
@pytest.mark.parametrize("body", [b"", b"{}"], ids=["no body", "empty object"])
async def test_a_bare_request_is_answered_or_refused_in_words(
    peer: Any, server: Any, caplog: pytest.LogCaptureFixture, code: int, body: bytes
) -> None:
    server.broker.topics.ensure("orders", 4)
    command = Command(code, ext=header_fields(bare(HEADERS[code])), body=body)
    answer = await peer.connection.call(command, 10_000)
    assert answer.is_response
    failures = [
        record for record in caplog.records if record.exc_info is not None or record.levelname == "ERROR"
    ]
    assert failures == [], answer.remark
