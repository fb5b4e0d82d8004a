# SPDX-License-Identifier: Apache-2.0
"""Address patterns of plain_acl.yml, each as RocketMQ 5.2.0 takes it."""

from __future__ import annotations

from ipaddress import ip_address

import pytest

from aerobee.protocol.address_patterns import parse_pattern


@pytest.mark.parametrize(
    ("pattern", "address", "matches"),
    [
        ("", "1.2.3.4", False),
        (" ", "1.2.3.4", False),
        ("*", "1.2.3.4", True),
        ("*", "::1", True),
        ("*.*.*.*", "::1", True),
        ("*:*:*:*:*:*:*:*", "1.2.3.4", True),
        ("192.168.1.5", "192.168.1.5", True),
        ("192.168.1.5", "192.168.1.50", False),
        ("1050::5:600:300C:326B", "1050:0:0:0:5:600:300c:326b", True),
        ("10.0.0.1,10.0.0.2", "10.0.0.2", True),
        ("10.0.0.1; 192.168.1.*", "192.168.1.7", True),
        ("192.168.1.{1,2,30}", "192.168.1.30", True),
        ("192.168.1.{1,2,30}", "192.168.1.3", False),
        ("192.168.1.{1,2};10.0.0.*", "10.0.0.9", True),
        ("192.168.1.*", "192.168.1.99", True),
        ("192.168.1.*", "192.168.2.99", False),
        ("192.168.*.*", "192.168.2.99", True),
        ("192.*.*.*", "193.0.0.1", False),
        ("192.168.*.1", "192.168.4.99", True),
        ("192.168.1-3.5", "192.168.2.6", True),
        ("192.168.1-3.5", "192.168.4.5", False),
        ("192.168.1.10-20", "192.168.1.20", True),
        ("192.168.1.10-20", "192.168.1.21", False),
        ("192.168.1.0-0", "192.168.1.0", True),
        ("192.1-3.*.*", "192.2.9.9", True),
        ("1050::5:600:300c:*", "1050::5:600:300c:1", True),
        ("1050::5:600:300c:1-200", "1050::5:600:300c:1ff", True),
        ("1050::5:600:300c:1-200", "1050::5:600:300c:201", False),
        ("5::7:6:1-200:*", "5::7:6:200:9", True),
        ("5::7:6:1-200:*", "5::7:6:201:9", False),
        ("1050::5:600:300c:{1,2}", "1050::5:600:300c:2", True),
        ("10.*.*.*", "::1", False),
        ("::1", "10.0.0.1", False),
    ],
)
def test_what_matches(pattern: str, address: str, matches: bool) -> None:
    assert parse_pattern(pattern)(ip_address(address)) is matches


@pytest.mark.parametrize(
    "pattern",
    [
        "192.168.*", "192.*", "10.0.0.0/8", "host", "10.0.0.1*", "1-3.2.3.4", "*.1.2.3", "10.0.0.256", "10.0.0.20-10",
        "10.0.0.1-300", "10.0.{1,2}.3", "1:2:3", "*::1", "1050::*:300c:1", "5::1-2:6:7", "10.0.0.{1,x}",
        "5::7:6:*:*",
    ],
)  # fmt: skip
def test_what_is_no_pattern_is_refused_when_it_is_read(pattern: str) -> None:
    with pytest.raises(ValueError, match="address pattern"):
        parse_pattern(pattern)
