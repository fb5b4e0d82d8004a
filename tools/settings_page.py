# SPDX-License-Identifier: Apache-2.0
"""Writes docs/settings.md from the declarations in aerobee/settings: `python tools/settings_page.py`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from aerobee.settings.declare import fields
from aerobee.settings.names import TABLES
from aerobee.settings.official import REFUSED

if TYPE_CHECKING:
    from aerobee.settings.declare import Field

PAGE = Path(__file__).parents[1] / "docs" / "settings.md"

INTRODUCTION = """# Settings

Made by `tools/settings_page.py` from `aerobee/settings/`; do not edit.

A setting is given in a file, the environment, a flag, an argument or a request, under our name or RocketMQ's, and
means the same everywhere. Later wins:

| where | how |
|---|---|
| a file, `--config` | TOML with tables `[broker]`, `[store]`, `[namesrv]`, or RocketMQ's `broker.conf` |
| environment | `AEROBEE_BROKER__PORT=10911`: table, two underscores, name |
| flags | `--host`, `--broker-port`, ...; any setting by `--set name=value` |
| Python | `Server(config=BrokerConfig(...), store=StoreConfig(...), namesrv=NamesrvConfig(...))` |
| a running broker | `aerobee cluster set name=value`, mqadmin's `updateBrokerConfig`: those that are *live* |

Changes of a running broker last until its next start. `aerobee settings` lists all settings with their values and
where each came from, `aerobee settings -b broker-a` those of a running broker. That one tells its values, and which
were changed while running (`live`), but not where it had the others from: FROM is `broker broker-a` for whatever is
not the default, and `not told` for secrets. Which file, variable or flag it was says `aerobee settings` with the
`--config`, `--set` and environment that the broker was started with. A value out of its range, or of the
wrong type, is refused by name wherever it comes from.
"""
OFFICIAL = """## RocketMQ's other names

Every further name that RocketMQ 4.3 to 5.3 knows is accepted and has no effect; one warning lists those that were
given. A name that nobody knows is an error. These are refused unless they are off, because somebody would rely on
them: {refused}; so are `tls.*` names other than those above.
"""


def page() -> str:
    parts = [INTRODUCTION]
    for table, kind in TABLES.items():
        parts.append(
            f"## [{table}]\n\n| setting | RocketMQ's name | default | range | live | what |\n|---|---|---|---|---|---|"
        )
        parts[-1] += "".join(f"\n{_row(each)}" for each in fields(kind).values()) + "\n"
    parts.append(OFFICIAL.format(refused=", ".join(f"`{name}`" for name in REFUSED)))
    return "\n".join(parts)


def _row(field: Field) -> str:
    official = f"`{field.official}`" if field.about.official else f"({field.camel})"
    if field.about.official and field.about.factor != 1:
        official += f" = {field.show(field.default)}"
    default = f"`{field.text(field.default)}`" if field.default != "" else "empty"
    live = "live" if field.about.live else ""
    return f"| `{field.name}` | {official} | {default} | {field.range} | {live} | {field.about.text} |"


if __name__ == "__main__":
    PAGE.write_text(page())
