# SPDX-License-Identifier: Apache-2.0
"""Rights of a test's user that are written wrong are told before the server is asked."""

from __future__ import annotations

import pytest

from aerobee.testing import TestServer


@pytest.mark.parametrize(
    ("rights", "told"),
    [
        ({"orders": "Pub"}, "resource 'orders': write Topic:name"),
        ({"Topic:orders": "Publish"}, "no action 'Publish' on Topic:orders: All, Any, Pub, Sub"),
        ({"Topic:orders": "Pub,,Sub"}, "no action ''"),
    ],
)
def test_a_right_that_is_none_is_told(rights: dict[str, str], told: str) -> None:
    with TestServer.secured() as server:
        with pytest.raises(ValueError, match=told):
            server.add_user("shop", "secret", rights)
        assert (
            server.add_user("shop", "secret", {"Topic:orders": "Pub,Sub", "*": "Get"})["access_key"] == "shop"
        )
