# SPDX-License-Identifier: Apache-2.0
"""The page: tables of medians, and what the figures do and do not say."""

from __future__ import annotations

import ast
import os
import platform
import statistics
import time
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.rivals import loads
from benchmarks.rivals.client import CLIENTS, client_of

Rounds = dict[str, list[dict[str, Any]]]  # by rival, a round each
HERE = Path(__file__).resolve().parent

RATES = (
    ("send", f"{loads.OUTSTANDING} sends outstanding"),
    ("lone", "one send at a time"),
    ("ack", "32 taken, each acked"),
    ("drain", "backlog to a function"),
)


LATENCIES = (
    ("lone", "p50", "a lone send, p50"),
    ("paced", "p50", f"send to function at {loads.A_SECOND}/s, p50"),
    ("paced", "p99", "p99"),
)


class Run(NamedTuple):
    began: float
    load_before: float
    load_after: float
    rounds: int


def text(rounds: Rounds, missing: dict[str, str], run: Run) -> str:
    parts = [
        _head(run),
        _rates(rounds),
        _latency(rounds),
        _cpu(rounds),
        _rest(rounds),
        _promises(rounds),
        NOTES,
    ]
    if missing:
        parts.append(
            "Left out here: " + "; ".join(f"{name} ({why})" for name, why in missing.items()) + ".\n"
        )
    return "\n".join(parts)


def median(rounds: list[dict[str, Any]], load: str, figure: str) -> float:
    return statistics.median(each[load][figure] for each in rounds)


def _head(run: Run) -> str:
    day = time.strftime("%Y-%m-%d %H:%M", time.gmtime(run.began))
    return f"""# Beside what one would pick instead

Written by `python -m benchmarks.rivals --save`. {day} UTC, {os.cpu_count()} CPUs, Python {platform.python_version()},
{run.rounds} rounds in turn, load average {run.load_before:.1f} before and {run.load_after:.1f} after; medians. One
client process on uvloop, one server with its defaults on the same machine, 128 bytes a message. Ratios count, not the
numbers.
"""


def _ran(rounds: Rounds) -> dict[str, str]:
    """The loads that have a rate, and what they are, of those that were run."""
    return {
        load: what for load, what in RATES if all(load in each for found in rounds.values() for each in found)
    }


def _rates(rounds: Rounds) -> str:
    ran = _ran(rounds)
    rows = [
        f"| {name} | " + " | ".join(f"{median(found, load, 'rate'):,.0f}" for load in ran) + " |"
        for name, found in rounds.items()
    ]
    head = "| messages a second | " + " | ".join(ran.values()) + " |"
    return "\n".join(["## Rate", "", head, "|---|" + "--:|" * len(ran), *rows, ""])


def _latency(rounds: Rounds) -> str:
    first = next(iter(rounds.values()))[0]
    taken = [(load, figure, what) for load, figure, what in LATENCIES if load in first]
    rows = [
        f"| {name} | " + " | ".join(f"{median(found, load, figure):.2f}" for load, figure, _ in taken) + " |"
        for name, found in rounds.items()
    ]
    head = "| milliseconds | " + " | ".join(what for _, _, what in taken) + " |"
    return "\n".join(["## Latency", "", head, "|---|" + "--:|" * len(taken), *rows, ""])


def _cpu(rounds: Rounds) -> str:
    def cell(found: list[dict[str, Any]], load: str) -> str:
        return f"{median(found, load, 'client_us'):.1f} + {median(found, load, 'server_us'):.1f}"

    ran = _ran(rounds)
    rows = [
        f"| {name} | " + " | ".join(cell(found, load) for load in ran) + " |"
        for name, found in rounds.items()
    ]
    head = "| client + server, us a message | " + " | ".join(ran.values()) + " |"
    return "\n".join(["## CPU", "", head, "|---|" + "--:|" * len(ran), *rows, ""])


def _rest(rounds: Rounds) -> str:
    rows = [
        f"| {name} | {median(found, 'start', 's'):.2f} | {median(found, 'memory', 'idle_mib'):.0f} |"
        f" {median(found, 'memory', 'used_mib'):.0f} | {lines_for_retries(name)} |"
        for name, found in rounds.items()
    ]
    head = "| | start, s | memory, MiB | after the loads | lines for retries and dead letters |"
    return "\n".join(["## Start, memory, code", "", head, "|---|--:|--:|--:|--:|", *rows, ""])


def _promises(rounds: Rounds) -> str:
    rows = [f"| {name} | {client_of(name).promise} |" for name in rounds]
    return "\n".join(
        ["## What a send that has returned means", "", "| | with the defaults |", "|---|---|", *rows, ""]
    )


def lines_for_retries(name: str) -> int:
    """Of code: no blank lines, no comments, not the line of the function's name."""
    source = (HERE / f"{CLIENTS[name]}.py").read_text()
    function = next(
        node
        for node in ast.parse(source).body
        if isinstance(node, ast.AsyncFunctionDef) and node.name == "code_for_retries"
    )
    lines = source.splitlines()[function.lineno : function.end_lineno]
    return sum(1 for line in lines if line.strip() and not line.strip().startswith("#"))


NOTES = """## How to read it

- The promises differ, and a stronger one costs: RabbitMQ confirms what is synced to disk, Redis what is in memory.
- *Each acked*: Aerobee and RocketMQ wait for the answers to all acks of the 32; Redis too, one command each; NATS
  writes its acks and goes on, RabbitMQ as well; Kafka has no ack of a message, the offset is committed after each 32.
- *Backlog to a function*: each client's usual way of calling a function with every message. Aerobee and RocketMQ keep
  an offset (a pull group), NATS and RabbitMQ ack every message, Redis has no such call (a loop of 32, an ack for all of
  them), aiokafka gives its messages to a loop and commits once.
- aiokafka and Aerobee's client put sends that are outstanding together into one request; nats-py and redis-py write
  each, redis-py on as many connections as there are sends.
- *Lines* are what is needed so that a message whose function fails is tried again after a rest, three times in all, and
  then kept where somebody can look at it (`code_for_retries` in `benchmarks/rivals/*_client.py`). They are not of equal
  worth: in Kafka's a message that rests holds up those behind it, in Redis's and RabbitMQ's a crash between two steps
  leaves a message twice.
- *Send to function*: NATS and Redis push or answer the one connection that waits. Aerobee's consumer has a held pull a
  queue: a message wakes it, the broker reads the queue and answers, and the client asks anew. At 200 a second all is
  cold, and each of these steps takes twice as long as under load (docs/performance.md has them one by one).
- RocketMQ is measured with Aerobee's client; it has 1 GiB of heap, Kafka too.
"""
