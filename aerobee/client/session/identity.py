# SPDX-License-Identifier: Apache-2.0
"""Who this client is: RocketMQ's client id, `address@instance`."""

from __future__ import annotations

import itertools
import os
import socket

from aerobee.clock import perf_counter_ns
from aerobee.protocol.addresses import parse_address

DEFAULT_NAMESRV = "127.0.0.1:9876"

_sequence = itertools.count()


def local_ip(towards: str) -> str:
    """The address this machine uses towards `towards`; a UDP socket is connected, nothing is sent."""
    host, port = parse_address(towards)
    try:
        family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind) as probe:
            probe.connect(address)
            return str(probe.getsockname()[0])
    except OSError:
        return "127.0.0.1"


def unique_instance() -> str:
    """pid#number, unique among the clients of this machine. (4.2 used the pid alone, so that two clients of one
    process were one to the broker.)"""
    return f"{os.getpid()}#{perf_counter_ns()}{next(_sequence)}"


def client_id(ip: str, instance: str) -> str:
    return f"{ip}@{instance or unique_instance()}"


def usual_namesrv() -> str:
    """Of a client that is given none: `AEROBEE_NAMESRV`, RocketMQ's own `NAMESRV_ADDR`, or this machine's."""
    return os.environ.get("AEROBEE_NAMESRV") or os.environ.get("NAMESRV_ADDR") or DEFAULT_NAMESRV
