# SPDX-License-Identifier: Apache-2.0
"""Trace records of other clients, read."""

from __future__ import annotations

from aerobee.client.trace_records import TraceRecord, parse

# As Java's client 5.3 writes them; it has a client host at the end, older ones have not.
PUB = "\x01".join(
    [
        "Pub",
        "1700000000001",
        "DefaultRegion",
        "shop",
        "orders",
        "ID1",
        "paid",
        "k1",
        "127.0.0.1:10911",
        "5",
        "7",
        "0",
        "OFF",
        "true",
        "10.0.0.1",
    ]
)
BEFORE = "\x01".join(["SubBefore", "1700000000010", "null", "billing", "R1", "ID1", "0", "k1"])
AFTER = "\x01".join(["SubAfter", "R1", "ID1", "12", "false", "k1", "2", "1700000000022", "billing"])
END = "\x01".join(
    [
        "EndTransaction",
        "1700000000030",
        "DefaultRegion",
        "shop",
        "orders",
        "ID1",
        "",
        "",
        "127.0.0.1:10911",
        "2",
        "T1",
        "COMMIT_MESSAGE",
        "false",
    ]
)


def test_every_kind_is_read() -> None:
    body = "\x02".join([PUB, BEFORE, AFTER, END, ""]).encode()
    assert parse(body) == [
        TraceRecord("Pub", 1700000000001, "shop", "ID1", 7, "ok", None, ""),
        TraceRecord("SubBefore", 1700000000010, "billing", "ID1", None, "", 1, "R1"),
        TraceRecord("SubAfter", 1700000000022, "billing", "ID1", 12, "failed", None, "R1"),
        TraceRecord("EndTransaction", 1700000000030, "shop", "ID1", None, "COMMIT_MESSAGE", None, ""),
    ]


def test_an_old_clients_short_record_and_an_unknown_kind_do_no_harm() -> None:
    short = "SubAfter\x01R1\x01ID1\x0112\x01true\x01k1"
    assert parse(f"{short}\x02Later\x01x\x02".encode()) == [
        TraceRecord("SubAfter", 0, "", "ID1", 12, "ok", None, "R1")
    ]
    assert parse(b"") == parse(b"\xff\x01\x02") == []
