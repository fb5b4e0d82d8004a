# SPDX-License-Identifier: Apache-2.0
"""`aerobee demo`: the product at work in about a minute, on a server inside this process."""

from __future__ import annotations

import asyncio
import logging
import shutil
import signal
import sys
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from aerobee.errors import AerobeeError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from aerobee.demo.proof import Proof
    from aerobee.demo.shop import Shop

console = Console()
# Level 3 and on are the retries: seconds here, so that the story ends today (10 s, 30 s, 1 min ... otherwise).
DELAY_LEVELS = "1s 1s 2s 3s 4s 5s 6s 7s 8s 9s 10s 20s 30s 1m 2m 5m 10m 30m"


def demo(
    orders: Annotated[int, typer.Option("--orders", help="orders to place", min=1000)] = 20_000,
    out: Annotated[Path, typer.Option("--out", help="where lake and report are written")] = Path(
        "aerobee-demo"
    ),
    spark: Annotated[bool, typer.Option("--spark/--no-spark", help="prove it with Spark afterwards")] = True,
    stay: Annotated[
        bool, typer.Option("--stay", help="leave server and console up afterwards, until Ctrl-C")
    ] = False,
) -> None:
    """An online shop on an embedded server: push with retries, POP with a hung consumer, order, and Spark's proof.

    aerobee demo

    aerobee demo --orders 5000 --out /tmp/shop

    aerobee demo --no-spark --stay
    """
    # Refused payments and a hung consumer are the story, not news: only errors may speak.
    logging.getLogger("aerobee").setLevel(logging.ERROR)
    if spark:
        _needs_spark()
    ok = asyncio.run(_story(orders, out, prove_it=spark, stay=stay))
    raise typer.Exit(0 if ok else 1)


def _needs_spark() -> None:
    try:
        import pyarrow  # noqa: F401
        import pyspark  # noqa: F401
    except ImportError as error:
        raise AerobeeError(
            f"the demo's proof needs {error.name}: pip install 'aerobee[spark]', or run with --no-spark"
        ) from None


async def _story(orders: int, out: Path, *, prove_it: bool, stay: bool) -> bool:
    from aerobee import Server, StoreConfig
    from aerobee.demo.shop import GROUPS, TOPIC, Shop, run

    shutil.rmtree(out / "lake", ignore_errors=True)
    console.rule("[bold]Aerobee demo")
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(
            Server(ephemeral=True, grpc_port=-1, store=StoreConfig(delay_levels=DELAY_LEVELS))
        )
        console.print(f"name server {server.namesrv}, broker {server.broker_address}: one process, no JVM")
        address = await stack.enter_async_context(_shown(server.namesrv))
        console.print(
            f"{orders:,} orders. [b]billing[/b]: push, 1 % of payments fail. [b]shipping[/b]: POP, 1 of 3 hangs."
        )
        console.print("[b]audit[/b]: in order per user. Retry delays are shortened to seconds for the story.")
        shop = Shop(server.namesrv, orders)
        with _Screen(shop) as screen:
            await run(shop, screen.draw)
        _told(shop)
        ok = shop.out_of_order == 0
        if prove_it:
            proof = await _proved(server.namesrv, TOPIC, list(GROUPS), out)
            _print_proof(shop, proof)
            ok = ok and proof.lost == 0 and proof.lake_rows == orders
        if stay:
            await _stay(server.namesrv, address)
    return ok


@asynccontextmanager
async def _shown(namesrv: str) -> AsyncIterator[str]:
    """The web console beside the story; the story goes on without it where its packages are not installed."""
    try:
        from aerobee.console.app import make_app
        from aerobee.console.serving import serving
    except ImportError as error:
        console.print(f"no web console: it needs {error.name} (pip install 'aerobee[console]')")
        yield ""
        return
    async with serving(make_app(namesrv), "127.0.0.1", 0) as address:
        console.print(f"watch it at [b]{address}[/b] while it runs", soft_wrap=True)
        yield address


async def _stay(namesrv: str, address: str) -> None:
    where = f"console {address}, " if address else ""
    console.print(f"still up: {where}name server {namesrv}. Ctrl-C ends it.", soft_wrap=True)
    sys.stdout.flush()
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        with suppress(NotImplementedError, ValueError, RuntimeError):  # a system or a thread without them
            loop.add_signal_handler(number, ended.set)
    await ended.wait()


async def _proved(namesrv: str, topic: str, groups: list[str], out: Path) -> Proof:
    from aerobee.demo.proof import prove

    with console.status("Spark") as status:

        def step(text: str) -> None:
            status.update(text)
            if not console.is_terminal:
                console.print(f"spark: {text}")

        # Spark blocks its thread; the broker goes on serving it from this one.
        return await asyncio.to_thread(prove, namesrv, topic, groups, out, step)


class _Screen:
    """Bars on a terminal; a line every few seconds elsewhere."""

    def __init__(self, shop: Shop) -> None:
        self._shop = shop
        columns = (
            TextColumn("{task.description:>10}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
        )
        self._bars = Progress(*columns, console=console, disable=not console.is_terminal)
        self._tasks = {name: self._bars.add_task(name, total=shop.orders) for name in ("sent", *shop.handled)}
        self._ticks = 0

    def __enter__(self) -> _Screen:
        self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bars.stop()

    def draw(self) -> None:
        shop = self._shop
        self._bars.update(self._tasks["sent"], completed=shop.sent)
        for group, done in shop.handled.items():
            self._bars.update(self._tasks[group], completed=len(done))
        self._ticks += 1
        if not console.is_terminal and self._ticks % 30 == 0:
            groups = ", ".join(f"{group} {len(done):,}" for group, done in sorted(shop.handled.items()))
            console.print(f"sent {shop.sent:,}; {groups}")


def _told(shop: Shop) -> None:
    console.print(
        f"billing: {shop.failures:,} payments failed and were retried; shipping: the hung consumer sat on "
        f"{len(shop.hung):,} orders, the others finished all of them; audit: {shop.out_of_order} out of order"
    )


def _print_proof(shop: Shop, proof: Proof) -> None:
    table = Table(title="What Spark's ledger says")
    for name in ("group", "sent", "delivered", "retried", "dead", "duplicates", "lost"):
        table.add_column(name, justify="left" if name == "group" else "right")
    for row in proof.figures.groups:
        table.add_row(
            row["group"],
            *(_number(row[n]) for n in ("sent", "delivered", "retried", "dead", "duplicates", "lost")),
        )
    console.print(table)
    console.print(f"lake: {proof.lake_rows:,} rows of Parquet; lost = {proof.lost}")
    console.print(f"report: {proof.report.resolve()}", soft_wrap=True)
    sys.stdout.flush()


def _number(value: Any) -> str:
    return "-" if value is None else f"{int(value):,}"
