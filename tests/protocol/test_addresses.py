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


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        ("http://host:9876/", "give host:port without http://, as in host:9876"),
        ("http://", "give host:port without http://, as in host:port"),
        ("broker.local", "expected host:port, as in broker.local:9876"),
        (" : ", "expected host:port, as in localhost:9876"),
        ("::1:9876", r"write an IPv6 host in brackets, as in \[::1\]:9876"),
        ("host:65536", "port '65536' is not a number from 0 to 65535"),
    ],
)
def test_a_bad_address_is_refused_with_advice(text: str, advice: str) -> None:
    with pytest.raises(ValueError, match=f"{advice}$"):
        parse_address(text)


def test_the_highest_port_is_one() -> None:
    assert parse_address("host:65535") == ("host", 65_535)
    with pytest.raises(TypeError, match="give text"):
        parse_addresses(["a:1"])  # type: ignore[arg-type]
