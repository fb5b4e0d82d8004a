# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from aerobee.protocol.addresses import format_address, parse_address, parse_addresses


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("127.0.0.1:9876", ("127.0.0.1", 9876)),
        (" broker.local:10911 ", ("broker.local", 10911)),
        ("[::1]:9876", ("::1", 9876)),
        ("[fe80::1%eth0]:0", ("fe80::1%eth0", 0)),
    ],
)
def test_an_address_parses_and_formats_back(text: str, expected: tuple[str, int]) -> None:
    assert parse_address(text) == expected
    assert format_address(*expected) == text.strip()


@pytest.mark.parametrize(
    "text", ["", "host", ":1", "host:", "host:port", "host:-1", "host:65536", "::1:9876", "h:²"]
)
def test_a_bad_address_is_refused_by_name(text: str) -> None:
    with pytest.raises(ValueError, match="address"):
        parse_address(text)


def test_a_list_of_addresses_is_split_checked_and_made_unique() -> None:
    assert parse_addresses("a:1; b:2,a:1;") == ["a:1", "b:2"]
    assert parse_addresses("") == []
    with pytest.raises(ValueError, match="'nonsense'"):
        parse_addresses("a:1;nonsense")
