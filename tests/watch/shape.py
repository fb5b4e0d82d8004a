# SPDX-License-Identifier: Apache-2.0
"""What of a scrape is a contract: names as Prometheus stores them, types, labels, buckets, and labels' few values."""

from __future__ import annotations

import re
from typing import Any

_SAMPLE = re.compile(r"([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)(?: \d+)?$")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_SUFFIXES = ("_bucket", "_count", "_sum")
# Labels whose values say which of a few things is meant. Others name what the user has.
SAID = (
    "is_long_polling",
    "is_retry",
    "is_system",
    "message_type",
    "node_type",
    "processor",
    "protocol_type",
    "put_status",
    "result",
    "revive_message_type",
    "storage_medium",
    "storage_type",
    "consume_mode",
    "invocation_status",
    "timer_bound_s",
)


def shape(text: str) -> dict[str, dict[str, Any]]:
    """By the name that samples have without a histogram's endings."""
    types: dict[str, str] = {}
    found: dict[str, dict[str, Any]] = {}
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ", 3)
            types[name] = kind
        if line.startswith("#") or not line:
            continue
        matched = _SAMPLE.match(line)
        assert matched is not None, line
        name, labels = matched[1], dict(_LABEL.findall(matched[2] or ""))
        family, kind = _family(name, types)
        entry = found.setdefault(family, {"type": kind, "labels": set(), "buckets": set(), "values": {}})
        if "le" in labels:
            entry["buckets"].add(float(labels.pop("le")))
        entry["labels"].add(tuple(sorted(labels)))
        for label in SAID:
            if label in labels:
                entry["values"].setdefault(label, set()).add(labels[label])
    return {name: _sorted(entry) for name, entry in sorted(found.items())}


def _family(name: str, types: dict[str, str]) -> tuple[str, str]:
    """A unit that stands at the end of the samples' names may be missing in the line of the type."""
    base = name
    for suffix in _SUFFIXES:
        if name.endswith(suffix):
            base = name.removesuffix(suffix)
    for typed in sorted(types, key=len, reverse=True):
        if types[typed] == "histogram" and base.startswith(typed):
            return base, "histogram"
        if types[typed] != "histogram" and name.startswith(typed):
            return name, types[typed]
    return name, "untyped"


def _sorted(entry: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": entry["type"],
        "labels": sorted(list(each) for each in entry["labels"]),
        **({"buckets": [str(end) for end in sorted(entry["buckets"])]} if entry["buckets"] else {}),
        **(
            {"values": {name: sorted(each) for name, each in entry["values"].items()}}
            if entry["values"]
            else {}
        ),
    }
