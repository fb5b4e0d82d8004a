# SPDX-License-Identifier: Apache-2.0
"""Every command and every Python snippet of the README and the docs is run.

Python blocks are scripts, unless their first line says otherwise: `# shop.py` is a file of the page's project, whose
`# test_x.py` are run by pytest as it comes, without settings; `# needs ...` is part of the page's Spark story. Some
pages are read like a notebook, and run like one. Console blocks are run line by line against one server, which stands
for the `aerobee serve` they start with.
"""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

from aerobee import Server
from aerobee.testing.server import TestServer

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", ROOT / "README.zh-CN.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
NAME = re.compile(r"# (\w+\.py)\n")
NOTEBOOKS = ("client.md", "cookbook.md")
RUN_PAGE = Path(__file__).with_name("run_page.py")
# Started by the fixture, or run by CI itself.
NOT_HERE = ("aerobee serve", "make ")
BUSY_S = 900  # for a Spark that shares its machine with everybody's

pytestmark = pytest.mark.slow


class Snippet(NamedTuple):
    page: Path
    language: str
    text: str

    @property
    def name(self) -> str:
        return f"{self.page.name}-{self.text.strip().splitlines()[0][:40]}"

    @property
    def file(self) -> str | None:
        """Its name in the page's project."""
        named = NAME.match(self.text)
        return named[1] if named else None


def snippets(language: str) -> list[Snippet]:
    found = [
        Snippet(page, m[1], m[2]) for page in PAGES for m in BLOCK.finditer(page.read_text(encoding="utf-8"))
    ]
    return [snippet for snippet in found if snippet.language == language]


def commands() -> list[tuple[str, str]]:
    lines = [
        (s.page.name, line[2:])
        for s in snippets("console")
        for line in s.text.splitlines()
        if line.startswith("$ ")
    ]
    return [(page, line) for page, line in lines if not line.startswith(NOT_HERE)]


def is_spark(snippet: Snippet) -> bool:
    return "aerobee.spark" in snippet.text or (snippet.text.startswith("# needs") and "spark" in snippet.text)


@pytest.fixture(scope="module")
def server() -> Iterator[TestServer]:
    """A server with the little world the pages speak of: topic orders, group billing, a dead letter."""
    with TestServer(grpc_port=-1) as running:
        asyncio.run(_populate(running))
        running.flush()
        yield running


async def _die(server: TestServer | Server) -> None:
    from aerobee import Message, Producer

    async with Producer(server.namesrv, group="docs") as producer:
        await producer.send(Message("%DLQ%billing", b"dead"))


async def _populate(server: TestServer | Server) -> None:
    from aerobee import Admin, Message, Producer, PullConsumer

    async with Admin(server.namesrv) as admin:
        await admin.create_topic("orders", queues=4)
        await admin.create_group("billing")
    async with Producer(server.namesrv, group="docs") as producer:
        for number in range(50):
            await producer.send(Message("orders", b"{}", tags="paid", keys=[f"o-{number}"]))
    await _die(server)
    async with PullConsumer(
        server.namesrv, group="billing", topics={"orders": "*"}, start="first"
    ) as consumer:
        assert await consumer.poll(max_messages=8, timeout_ms=5_000)
        await consumer.commit()


def run(command: list[str] | str, folder: Path, server: TestServer | None, timeout: float = 120) -> None:
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    if server is not None:
        environment["AEROBEE_NAMESRV"] = server.namesrv
    told = subprocess.run(
        command, shell=isinstance(command, str), cwd=folder, env=environment, timeout=timeout, check=False,
        capture_output=True, text=True,
    )  # fmt: skip
    assert told.returncode == 0, f"{command}\n{told.stdout}\n{told.stderr}"
    # Spark's own processes may complain of pipes that broke when it stopped; ours may not.
    assert not re.search(r'/aerobee/(cli|spark|client|demo|protocol)/[^"]*\.py"', told.stderr), told.stderr


def is_script(snippet: Snippet) -> bool:
    return not (is_spark(snippet) or snippet.file or snippet.page.name in NOTEBOOKS)


@pytest.mark.parametrize("snippet", [s for s in snippets("python") if is_script(s)], ids=lambda s: s.name)
def test_a_python_snippet_runs(snippet: Snippet, tmp_path: Path) -> None:
    (tmp_path / "snippet.py").write_text(snippet.text, encoding="utf-8")
    run([sys.executable, "snippet.py"], tmp_path, None)


@pytest.mark.parametrize("page", NOTEBOOKS)
def test_a_page_that_is_read_like_a_notebook_runs_from_top_to_bottom(
    page: str, server: TestServer, tmp_path: Path
) -> None:
    told = [s.text for s in snippets("python") if s.page.name == page and not s.file]
    files = [f"block{number:02d}.py" for number in range(len(told))]
    for name, text in zip(files, told, strict=True):
        (tmp_path / name).write_text(text, encoding="utf-8")
    run([sys.executable, "-W", "error", str(RUN_PAGE), *files], tmp_path, server)


def projects() -> dict[str, dict[str, str]]:
    """By page: its files, by their names."""
    found: dict[str, dict[str, str]] = {}
    for snippet in snippets("python"):
        if snippet.file:
            files = found.setdefault(snippet.page.name, {})
            assert snippet.file not in files, f"{snippet.page.name} has two {snippet.file}"
            files[snippet.file] = snippet.text
    return found


@pytest.mark.parametrize("page", projects())
def test_the_project_of_a_page_passes_its_tests_as_pytest_comes(page: str, tmp_path: Path) -> None:
    """Without settings: pytest-asyncio is strict then. And without a Java: what needs one is skipped and says so."""
    files = projects()[page]
    for name, text in files.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    untested = [
        name
        for name in files
        if not name.startswith("test_")
        and not any(re.search(rf"\b{name[:-3]}\b", text) for other, text in files.items() if other != name)
    ]
    assert not untested, f"no test of {page} uses them"
    python = tmp_path / "bin"  # a path with no Java on it
    python.mkdir()
    for program in ("gunicorn", "aerobee"):
        (python / program).symlink_to(Path(sys.executable).parent / program)
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "JAVA"))
    }
    told = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", "--rootdir", "."],
        cwd=tmp_path, env={**environment, "PATH": str(python)}, timeout=300, check=False, capture_output=True,
        text=True,
    )  # fmt: skip
    assert told.returncode == 0, told.stdout + told.stderr
    skipped = re.findall(r"SKIPPED .*", told.stdout)
    assert all("needs a Java" in line for line in skipped), told.stdout


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data directory of a server that was stopped: what commands about files are shown with."""
    data = tmp_path_factory.mktemp("stopped") / "data"

    async def fill() -> None:
        async with Server(data=data) as server:
            await _populate(server)

    asyncio.run(fill())
    return data


@pytest.mark.parametrize(("page", "line"), [c for c in commands() if "pipeline" not in c[1]])
def test_a_command_of_the_docs_works(
    page: str, line: str, server: TestServer, stopped: Path, tmp_path: Path
) -> None:
    if "aerobee-data" in line:
        (tmp_path / "aerobee-data").symlink_to(stopped)
    run(line, tmp_path, server)


@pytest.mark.spark
@pytest.mark.timeout(4 * BUSY_S)
def test_the_spark_snippets_run_in_order(server: TestServer, tmp_path: Path) -> None:
    for page in PAGES:
        told = [s.text for s in snippets("python") if s.page == page and is_spark(s)]
        if told:
            script = "\n".join(told).replace("127.0.0.1:9876", server.namesrv)
            script = script.replace("./aerobee-data", str(server.server.data)).replace(
                "/tmp/", f"{tmp_path}/"
            )
            (tmp_path / "story.py").write_text(script, encoding="utf-8")
            run([sys.executable, "story.py"], tmp_path, server, timeout=BUSY_S)


ONE_PROCESS = """
import shlex, sys
from aerobee.cli.main import run

for line in {lines!r}:
    if run(shlex.split(line)[1:]):
        sys.exit(f"failed: {{line}}")
"""


@pytest.mark.spark
@pytest.mark.timeout(2 * BUSY_S)
def test_the_pipeline_commands_of_the_docs_work(server: TestServer, tmp_path: Path) -> None:
    asyncio.run(_die(server))  # another page shows how dead letters are cleared
    (tmp_path / "billing.py").write_text("def charge(message):\n    return message.msgId\n")
    # A cluster is for tests/interop; the commands are the same.
    told = [line.replace("spark://host:7077", "local[2]") for _, line in commands() if "pipeline" in line]
    first, *others = dict.fromkeys(told)
    run(first, tmp_path, server, timeout=BUSY_S)
    # One as it is typed; the others one after the other in one process, for each start of Spark takes its half minute.
    (tmp_path / "commands.py").write_text(ONE_PROCESS.format(lines=others))
    run([sys.executable, "commands.py"], tmp_path, server, timeout=BUSY_S)


@pytest.mark.seed("S004-63", "S004-81")
def test_the_advice_on_disks_and_memory_is_written_down() -> None:
    page = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
    assert "I/O scheduler" in page
    assert "40 %" in page
    assert "page cache" in page
