# SPDX-License-Identifier: Apache-2.0
"""axe-core in a page: what it calls serious or critical."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.sync_api import Page

ASK = """async () => (await axe.run({resultTypes: ["violations"]})).violations
  .filter(each => ["serious", "critical"].includes(each.impact))
  .map(each => `${each.id}: ${each.help}: ${each.nodes.map(node => node.target.join(" ")).slice(0, 5).join(" | ")}`)"""


def violations(page: Page, axe: Path) -> list[str]:
    page.add_script_tag(content=axe.read_text())
    return list(page.evaluate(ASK))
