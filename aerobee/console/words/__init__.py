# SPDX-License-Identifier: Apache-2.0
"""The languages of the console. The English text is the key: `t("{count} messages", count=5)`.

Other languages are tables by theme; a test finds what is missing in them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aerobee.console.security import LANGUAGE_COOKIE
from aerobee.console.words.zh import CHINESE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.requests import Request


class Words:
    def __init__(self, code: str, own_name: str, table: Mapping[str, str]) -> None:
        self.code = code
        self.own_name = own_name
        self._table = table

    def __call__(self, text: str, /, **values: object) -> str:
        found = self._table.get(text, text)
        return found.format(**values) if values else found


LANGUAGES = {
    "en": Words("en", "English", {}),
    "zh": Words("zh", "中文", CHINESE),
}


def language_of(request: Request) -> Words:
    """As chosen, else as the browser is set."""
    chosen = LANGUAGES.get(request.cookies.get(LANGUAGE_COOKIE, ""))
    if chosen is not None:
        return chosen
    wanted = request.headers.get("accept-language", "")[:2].lower()
    return LANGUAGES.get(wanted, LANGUAGES["en"])
