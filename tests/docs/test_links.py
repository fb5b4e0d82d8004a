# SPDX-License-Identifier: Apache-2.0
"""Links between pages lead somewhere, and both READMEs lead to the same places."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = [
    page
    for folder in (".", "docs", "benchmarks", "tests/interop")
    for page in sorted((ROOT / folder).glob("*.md"))
]


def links(page: Path) -> set[str]:
    """Those within the repository, without their place on the page."""
    found = re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text(encoding="utf-8"))
    return {link for link in found if "://" not in link}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_of_a_page_leads_to_a_file(page: Path) -> None:
    assert {link for link in links(page) if not (page.parent / link).exists()} == set()


def test_both_readmes_link_the_same_pages() -> None:
    english, chinese = ROOT / "README.md", ROOT / "README.zh-CN.md"
    assert links(english) - {chinese.name} == links(chinese) - {english.name}


def shape(page: Path) -> list[str]:
    """Headings by their depth, rows of tables by their width, blocks by their language."""
    found = []
    for line in page.read_text(encoding="utf-8").splitlines():
        if line.startswith("#"):
            found.append(line.split()[0])
        elif line.startswith("|"):
            found.append(f"row of {line.count('|')}")
        elif line.startswith("```"):
            found.append(line)
        elif line.startswith("- "):
            found.append("point")
    return found


def test_both_readmes_have_the_same_sections_tables_and_blocks() -> None:
    assert shape(ROOT / "README.md") == shape(ROOT / "README.zh-CN.md")


def test_the_readme_links_every_page_of_the_docs() -> None:
    pages = {f"docs/{page.name}" for page in (ROOT / "docs").glob("*.md")}
    assert pages - links(ROOT / "README.md") == set()
