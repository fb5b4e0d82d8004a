# SPDX-License-Identifier: Apache-2.0
"""What keeps other web pages from acting through an operator's browser: cookies, form tokens, headers, the Host.

Theory of operation. A browser gets a random id in a cookie that scripts cannot read and that other sites' forms do not
send. Each form carries a token made from that id and a secret of this process; a page of another site can neither read
the one nor make the other. An account that logs in is kept here, by the id, and never in the browser. The Host header
must be an address or a name that is ours: a name of somebody else that was made to point here is how a foreign page
would read us.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import secrets
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, urlsplit

from aerobee.errors import AerobeeError

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

COOKIE = "aerobee_browser"
LANGUAGE_COOKIE = "aerobee_language"
TOKEN_FIELD = "token"
MAX_FORM = 6 * 1024 * 1024  # a test message of 4 MiB, percent-encoded in part
MAX_FIELDS = 2_000
MAX_BROWSERS = 4_096

CONTENT_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = [
    (b"content-security-policy", CONTENT_POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"x-frame-options", b"DENY"),
]


class ReadOnly(AerobeeError):
    """The console was started to look only."""


class WrongForm(AerobeeError):
    """Not sent by a page of ours, or too long ago."""


@dataclass
class Browser:
    """One browser, as far as we know it."""

    id: str
    account: str = ""  # the desk it logged in to
    said: str = ""  # told on its next page, once
    is_new: bool = True


class Browsers:
    """Those that came lately; the oldest are forgotten first."""

    def __init__(self) -> None:
        self._secret = secrets.token_bytes(32)
        self._known: OrderedDict[str, Browser] = OrderedDict()

    def of(self, request: Request) -> Browser:
        known = self._known.get(request.cookies.get(COOKIE, ""))
        if known is None:
            return Browser(secrets.token_urlsafe(24))
        self._known.move_to_end(known.id)
        return known

    def remember(self, browser: Browser, request: Request, response: Response) -> None:
        """Gives a new browser its cookie; also one that has just got a new id."""
        if not browser.is_new:
            return
        browser.is_new = False
        self._known[browser.id] = browser
        if len(self._known) > MAX_BROWSERS:
            self._forget_one()
        path = request.scope.get("root_path") or "/"
        secure = request.url.scheme == "https"
        response.set_cookie(COOKIE, browser.id, httponly=True, samesite="lax", path=path, secure=secure)

    def _forget_one(self) -> None:
        """The oldest of those that are nobody, so that strangers who come and go log no one out."""
        oldest = next((each for each, known in self._known.items() if not known.account), None)
        self._known.pop(oldest or next(iter(self._known)))

    def renew(self, browser: Browser) -> None:
        """Another id, before it means more than the last one did: who planted that one has nothing."""
        self._known.pop(browser.id, None)
        browser.id, browser.is_new = secrets.token_urlsafe(24), True

    def token(self, browser: Browser) -> str:
        return hmac.new(self._secret, browser.id.encode(), hashlib.sha256).hexdigest()

    def check(self, browser: Browser, form: dict[str, list[str]]) -> None:
        given = form.get(TOKEN_FIELD, [""])[0]
        if browser.is_new or not hmac.compare_digest(given, self.token(browser)):
            raise WrongForm(
                "the form was not sent by a page of this console, or the console was started again since: "
                "load the page again"
            )


async def form_of(request: Request) -> dict[str, list[str]]:
    """The fields of a form; refused when it comes from another site or is larger than any of ours."""
    origin = request.headers.get("origin")
    if origin and origin != "null" and urlsplit(origin).netloc != request.headers.get("host"):
        raise WrongForm(f"the form comes from {origin}, not from this console")
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > MAX_FORM:
            raise ValueError(f"the form has more than {MAX_FORM} bytes")
    found: dict[str, list[str]] = {}
    text = body.decode("utf-8", "replace")
    for name, value in parse_qsl(text, keep_blank_values=True, max_num_fields=MAX_FIELDS):
        found.setdefault(name, []).append(value)
    return found


def host_is_ours(host: str, names: frozenset[str]) -> bool:
    """An address, localhost, or a name given at the start."""
    name = urlsplit(f"//{host}").hostname or ""
    if name == "localhost" or name in names:
        return True
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
