# SPDX-License-Identifier: Apache-2.0
"""Every text of the console has its Chinese, with the same values in it."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from string import Formatter

import pytest

import aerobee.console
from aerobee.console.menu import MENU
from aerobee.console.words.zh import CHINESE

CONSOLE = Path(aerobee.console.__file__).parent
IN_TEMPLATE = re.compile(r"""\bt\(\s*("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')""")
CALLED = {"t", "words", "Text"}


def said_in_templates() -> set[str]:
    return {
        ast.literal_eval(text)
        for path in (CONSOLE / "templates").glob("*.html")
        for text in IN_TEMPLATE.findall(path.read_text())
    }


def said_in_code() -> set[str]:
    """The first argument of `t(...)`, `visit.words(...)` and `Text(...)`, which is translated when it is shown."""
    found = set()
    for path in CONSOLE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
                name = (
                    node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
                )
                if name in CALLED and isinstance(node.args[0].value, str):
                    found.add(node.args[0].value)
    return found


def values(text: str) -> set[str]:
    return {name for _, name, _, _ in Formatter().parse(text) if name}


@pytest.mark.parametrize("text", sorted(said_in_templates() | said_in_code() | {word for _, word, _ in MENU}))
def test_a_text_has_its_chinese_with_the_same_values(text: str) -> None:
    assert text in CHINESE, f"add {text!r} to aerobee/console/words/zh_*.py"
    assert values(CHINESE[text]) == values(text)


async def test_the_browser_s_language_is_spoken_until_another_is_chosen(browser) -> None:
    assert "主题" in await browser.get("/topics", headers={"accept-language": "zh-CN,zh;q=0.9"})
    assert "Topics" in await browser.get("/topics", headers={"accept-language": "de"})
    page = await browser.send("/topics", "/language", language="zh")
    assert "主题" in page
    assert "主题" in await browser.get("/topics", headers={"accept-language": "en"})
