# SPDX-License-Identifier: Apache-2.0
"""Users and policies, which a broker without accounts does not keep."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.wire.scene import Exchange, Scene


def _asks(code: int, **fields: str) -> Exchange:
    async def refused(scene: Scene) -> None:
        answer = await scene.ask(code, fields)
        assert (answer.code, answer.fields, answer.body) == (1, {}, b"")
        assert (answer.remark or "").startswith("The authenticationMetadataProvider is not configured")

    return refused


async def _no_audit(scene: Scene) -> None:
    answer = await scene.ask(20_005, {"last": "10"})
    assert (answer.code, answer.fields, answer.body) == (1, {}, b"")
    assert answer.remark == "this broker keeps no audit log: name one by `audit_log`"


EXCHANGES = {
    3001: _asks(3001, username="u"),
    3002: _asks(3002, username="u"),
    3003: _asks(3003, username="u"),
    3004: _asks(3004, username="u"),
    3005: _asks(3005, filter="u"),
    3006: _asks(3006, subject="User:u"),
    3007: _asks(3007, subject="User:u"),
    3008: _asks(3008, subject="User:u", policyType="CUSTOM", resource="Topic:*"),
    3009: _asks(3009, subject="User:u"),
    3010: _asks(3010, subjectFilter="User", resourceFilter="Topic"),
    20_005: _no_audit,
}
