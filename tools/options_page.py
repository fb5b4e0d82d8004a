# SPDX-License-Identifier: Apache-2.0
"""Writes docs/client-options.md from the declarations in aerobee/client/options.py: `python tools/options_page.py`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from aerobee.client.options import (
    ProducerOptions,
    PullOptions,
    PushOptions,
    QueueOptions,
    SendOptions,
    SessionOptions,
    SimpleOptions,
)
from aerobee.settings.declare import fields

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aerobee.settings.declare import Field

PAGE = Path(__file__).parents[1] / "docs" / "client-options.md"
# Each before those that are made of it.
PARTS = {
    SessionOptions: "Every client",
    SendOptions: "Whoever sends: producers, push consumers",
    ProducerOptions: "Producers",
    QueueOptions: "Consumers that own queues: push, pull",
    PushOptions: "Push consumers",
    PullOptions: "Pull consumers",
}

INTRODUCTION = """# Client options

Made by `tools/options_page.py` from `aerobee/client/options.py`; do not edit.

A client takes the options of its role, or `Options`, which has all of them:

| client | options | how many |
|---|---|---|
{roles}

```python
from aerobee import Options, Producer, ProducerOptions, PushOptions  # all of them are here

careful = ProducerOptions(send_retries=5, send_timeout_ms=10_000)
broad = PushOptions(concurrency=64, pull_batch=128)
both = Options(access_key="shop", secret_key="12345678", send_retries=5, concurrency=64)
producer = Producer("127.0.0.1:9876", group="shop", options=careful)
```

An option of another role is refused by name ("pull_batch is an option of PushOptions; a producer has none"), as is a
value out of its range or of the wrong type. `aerobee.blocking` has the same ones. Clients may share a session: it holds
all options, those that nobody gave with their defaults.
"""
CLIENTS = (
    ("`Producer`, `TransactionProducer`", ProducerOptions),
    ("`PushConsumer`", PushOptions),
    ("`PullConsumer`, `ScheduledPull`", PullOptions),
    ("`SimpleConsumer`", SimpleOptions),
    ("`Admin`", SessionOptions),
)


def page() -> str:
    roles = "\n".join(f"| {clients} | `{kind.__name__}` | {len(fields(kind))} |" for clients, kind in CLIENTS)
    parts = [INTRODUCTION.format(roles=roles)]
    for title, options in _parts():
        parts.append(
            f"## {title}\n\n| option | RocketMQ's name | default | range | what |\n|---|---|---|---|---|"
        )
        parts[-1] += "".join(f"\n{_row(each)}" for each in options) + "\n"
    return "\n".join(parts)


def _parts() -> Iterator[tuple[str, list[Field]]]:
    """Every option once, where it is declared."""
    shown: set[str] = set()
    for kind, title in PARTS.items():
        own = [each for name, each in fields(kind).items() if name not in shown]
        shown |= {each.name for each in own}
        yield title, own


def _row(option: Field) -> str:
    official = f"`{option.about.official}`" if option.about.official else ""
    default = f"`{option.text(option.default)}`" if option.default != "" else "empty"
    return f"| `{option.name}` | {official} | {default} | {option.range} | {option.about.text} |"


if __name__ == "__main__":
    PAGE.write_text(page())
