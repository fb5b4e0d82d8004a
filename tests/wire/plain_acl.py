# SPDX-License-Identifier: Apache-2.0
"""Accounts of a plain_acl.yml, on a broker that has none: refused as by RocketMQ 5.3.3, which knows them no more."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.wire.scene import Exchange, Scene


def _asks(code: int, **fields: str) -> Exchange:
    async def refused(scene: Scene) -> None:
        answer = await scene.ask(code, fields)
        assert (answer.code, answer.remark) == (3, f" request type {code} not supported")
        assert (answer.fields, answer.body) == ({}, b"")

    return refused


EXCHANGES = {
    50: _asks(50, accessKey="account", secretKey="12345678"),
    51: _asks(51, accessKey="account"),
    52: _asks(52),
    53: _asks(53, globalWhiteAddrs="10.0.0.1"),
    54: _asks(54),
}
