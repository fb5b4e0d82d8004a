# SPDX-License-Identifier: Apache-2.0
"""Addresses as text: `10.0.0.1:9876`, `broker.local:10911`, `[::1]:9876`."""

from __future__ import annotations

from aerobee.protocol.properties import whole_number


def parse_address(text: str) -> tuple[str, int]:
    """Host and port; ValueError names what is wrong."""
    scheme, double, rest = text.strip().partition("://")
    if double:
        plain = rest.rstrip("/") or "host:port"
        raise ValueError(f"address {text!r}: give host:port without {scheme}://, as in {plain}")
    host, colon, port = text.strip().rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise ValueError(f"address {text!r}: write an IPv6 host in brackets, as in [::1]:9876")
    if not colon or not host:
        raise ValueError(
            f"address {text!r}: expected host:port, as in {text.strip(': ') or 'localhost'}:9876"
        )
    number = whole_number(port, 0, 65535)
    if number is None:
        raise ValueError(f"address {text!r}: port {port!r} is not a number from 0 to 65535")
    return host, number


def parse_addresses(text: str) -> list[str]:
    """The addresses of `a:1;b:2` (`,` is taken too), checked, in order, each once."""
    if not isinstance(text, str):
        raise TypeError(f"addresses are {text!r}; give text: 'host:port', several separated by ';'")
    parts = (part.strip() for part in text.replace(",", ";").split(";"))
    found = list(dict.fromkeys(part for part in parts if part))
    for part in found:
        parse_address(part)
    return found


def format_address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
