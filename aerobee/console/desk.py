# SPDX-License-Identifier: Apache-2.0
"""A desk is the cluster as one account sees it: its admin client, what was asked lately, what was sampled.

Where the cluster asks for no account there is one desk, for everybody. Where it does, each account that logs in has its
own, made of its own rights; it is cleared when nobody has sat at it for a while.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

import msgspec

from aerobee.client.admin import Admin
from aerobee.client.options import SessionOptions
from aerobee.console.cluster_view import ClusterView
from aerobee.console.sampler import Sampler
from aerobee.errors import AclDenied, NoPermission, NoRoute
from aerobee.protocol import bodies
from aerobee.protocol.headers.consume import SendHeartbeat

if TYPE_CHECKING:
    from aerobee.clock import Clock
    from aerobee.console.history import History

UNUSED_MS = 2 * 60_000
IDLE_MS = 30 * 60_000
MAX_DESKS = 16
ASK_AGAIN_MS = 10_000  # whether the cluster wants accounts
EVERYBODY = ""


class Desk:
    def __init__(self, namesrv: str, options: SessionOptions | None, clock: Clock) -> None:
        self.clock = clock
        self.account = options.access_key if options else ""
        self.admin = Admin(namesrv, options=options)
        self.view = ClusterView(self.admin, clock)
        self.sampler = Sampler(self.view, clock, self._is_used)
        self.used_at = clock.now()

    def _is_used(self) -> bool:
        """Everybody's keeps its history going; an account's costs nothing when nobody looks."""
        return not self.account or self.clock.now() - self.used_at < UNUSED_MS

    @property
    def history(self) -> History:
        return self.sampler.history

    async def start(self) -> None:
        await self.admin.start()
        self.sampler.start()

    async def stop(self) -> None:
        await self.sampler.stop()
        await self.view.stop()
        await self.admin.stop()


class Desks:
    """By the secret that a browser was given at its login; everybody's has none."""

    def __init__(
        self, namesrv: str, options: SessionOptions | None, clock: Clock, *, knows_accounts: bool = False
    ) -> None:
        self._namesrv = namesrv
        self._options = options or SessionOptions()
        self._clock = clock
        self._only_accounts = knows_accounts and not self._options.access_key
        self._desks: dict[str, Desk] = {}
        self._wants_account = False
        self._asked_at = -ASK_AGAIN_MS

    async def begin(self) -> None:
        """Everybody's desk samples from the start, so that the first visitor finds a history."""
        if EVERYBODY not in self._desks and not self._only_accounts:
            await self._open(EVERYBODY, self._options)

    async def of(self, account: str) -> Desk | None:
        """None: it has to log in."""
        now = self._clock.now()
        await self._clear(now)
        desk = self._desks.get(account)
        if desk is None and (account or self._only_accounts):
            return None
        if desk is None:
            desk = await self._open(EVERYBODY, self._options)
        if not account and await self._needs_account(desk, now):
            return None
        desk.used_at = now
        return desk

    async def log_in(self, name: str, password: str) -> str:
        """The secret of the account's desk. Raises when the cluster does not know the account."""
        options = msgspec.structs.replace(self._options, access_key=name, secret_key=password)
        key = secrets.token_urlsafe(24)
        desk = await self._open(key, options)
        try:
            await _ask_as(desk)
        except BaseException:
            await self.log_out(key)
            raise
        return key

    async def log_out(self, account: str) -> None:
        if desk := self._desks.pop(account, None):
            await desk.stop()

    async def stop(self) -> None:
        for account in list(self._desks):
            await self.log_out(account)

    async def _open(self, account: str, options: SessionOptions) -> Desk:
        desk = self._desks[account] = Desk(self._namesrv, options, self._clock)
        await desk.start()
        logged_in = sorted((one.used_at, key) for key, one in self._desks.items() if key != EVERYBODY)
        for _, key in logged_in[: max(0, len(logged_in) - MAX_DESKS)]:
            await self.log_out(key)
        return desk

    async def _clear(self, now: int) -> None:
        for account, desk in list(self._desks.items()):
            if account != EVERYBODY and now - desk.used_at >= IDLE_MS:
                await self.log_out(account)

    async def _needs_account(self, desk: Desk, now: int) -> bool:
        if now - self._asked_at >= ASK_AGAIN_MS:
            try:
                await _ask_as(desk)
                self._wants_account = False
            except (NoPermission, AclDenied):
                self._wants_account = True
            self._asked_at = now
        return self._wants_account


async def _ask_as(desk: Desk) -> None:
    """Something small that a broker answers to every account it knows, whatever it may, and to no other; no broker, no
    question."""
    session = desk.admin.session
    said = bodies.encode(bodies.Heartbeat(client_id=session.client_id))
    try:
        for address in (await desk.view.masters()).values():
            await session.call(address, SendHeartbeat(), said)
    except NoRoute:
        return
