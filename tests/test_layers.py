# SPDX-License-Identifier: Apache-2.0
"""The import table of docs/style.md (Rooms), read off the source: who may use whom, who reads the clock."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "aerobee"
FILES = sorted(path for path in PACKAGE.rglob("*.py") if "generated" not in path.parts)

EVERYONE = {"errors", "clock", "settings", "memory"}
MAY_IMPORT = {
    "protocol": set(),
    "net": {"protocol"},
    "store": {"protocol", "native"},
    "namesrv": {"net", "protocol"},
    "broker": {"store", "protocol", "native"},
    "fronts": {"broker", "net", "protocol", "native"},
    "client": {"net", "protocol", "native"},
    "spark": {"client", "protocol", "charts"},
    "console": {"client", "protocol", "charts"},
    "cli": {"client", "protocol", "native"},
    "testing": {"server", "server_thread", "client", "protocol"},
    "demo": {"client", "protocol", "server", "spark"},
    "blocking": {"client", "server_thread"},
    "server_thread": {"server"},
    "__main__": {"cli"},
    "server": {"broker", "fronts", "namesrv", "net", "protocol", "store", "native", "watching"},
    "fleet": {"server", "protocol", "store"},
    "watching": {"broker", "client", "console", "fronts", "net"},
    "native": set(),
    "charts": set(),
    "errors": set(),
    "clock": set(),
    "settings": {"errors"},
    "memory": set(),
}
# Files that may use more than their package, each for the reason given.
MORE = {
    "aerobee/broker/background/registration.py": {"net", "namesrv"},  # it dials the name servers
    "aerobee/broker/background/topic_routes.py": {"net"},  # it asks them
    "aerobee/cli/serving.py": {"server", "fronts", "namesrv", "fleet"},  # it starts them
    "aerobee/cli/store.py": {"store"},  # it looks at the files
    "aerobee/cli/pipeline.py": {"spark"},  # it runs them
    "aerobee/cli/pipeline_output.py": {"spark"},  # it shows their figures
    "aerobee/cli/console.py": {"console"},  # it serves it
    "aerobee/cli/messages.py": {"console"},  # it tells where a message is, as a page does
    "aerobee/cli/message_trace.py": {"console"},  # and what happened to it
    "aerobee/cli/top.py": {"console"},  # it shows the same figures
    "aerobee/cli/top_views.py": {"console"},
    "aerobee/cli/wrong.py": {"console"},  # it says what is wrong in the same words
    "aerobee/cli/demo.py": {"console", "demo", "server", "spark"},  # it shows them all
    "aerobee/__init__.py": {"server", "client", "protocol"},  # what `import aerobee` gives
}
# Single modules of a layer that is otherwise closed to them.
MODULES = {
    "spark": {"aerobee.net.tls"},  # its blocking links are encrypted as every client's
    "fronts": {"aerobee.store.results"},  # the values an operation returns
    # A table, its file replaced whole; the gates that every request passes.
    "namesrv": {"aerobee.store.metadata", "aerobee.store.saved_table", "aerobee.fronts.gates"},
}
EXTRAS = {
    "grpc": set(),  # clients of tests only
    "google": {"fronts/grpc"},
    "pyspark": {"spark"},
    "pyarrow": {"spark"},
    "numpy": {"spark"},
    "pandas": {"spark"},
    "deltalake": {"spark"},
    "pyiceberg": {"spark"},
    "starlette": {"console", "fronts/http"},
    "uvicorn": {"console", "fronts/http"},
    "h11": {"fronts/http"},
    "jinja2": {"console"},
    "markupsafe": {"console"},
    "opentelemetry": {"fronts/otlp", "client"},
}
CLOCKS = {
    "time.time",
    "time.time_ns",
    "time.monotonic",
    "time.monotonic_ns",
    "datetime.now",
    "datetime.utcnow",
}
IO_MODULES = {"asyncio", "select", "selectors", "subprocess", "uvloop", "ssl", "http", "urllib"}


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def layer_of(path: Path) -> str:
    part = path.relative_to(PACKAGE).parts[0]
    return part.removesuffix(".py")


def imports(path: Path) -> Iterator[tuple[str, int]]:
    """Every module imported, anywhere in the file, with its line; `from a import b` counts as `a.b` too."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name_of(path)}:{node.lineno}: relative import"
            module = node.module or ""
            yield module, node.lineno
            yield from ((f"{module}.{alias.name}", node.lineno) for alias in node.names)


def own_imports(path: Path) -> Iterator[tuple[str, str, int]]:
    """(layer, module, line) of what is imported from this package."""
    for module, line in imports(path):
        parts = module.split(".")
        if parts[0] == "aerobee" and len(parts) > 1:
            yield parts[1], module, line


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_a_file_imports_only_what_its_layer_may(path: Path) -> None:
    layer = layer_of(path)
    if layer != "__init__":
        assert layer in MAY_IMPORT, f"a new layer {layer}: add it to the table, here and in docs/style.md"
    allowed = MAY_IMPORT.get(layer, set()) | MORE.get(name_of(path), set()) | EVERYONE | {layer}
    if layer == "spark":
        allowed.add("store")
    known = set(MAY_IMPORT)
    modules = MODULES.get(layer, set())
    wrong = [
        f"line {line}: {module}"
        for used, module, line in own_imports(path)
        if used in known - allowed and not any((module + ".").startswith(each + ".") for each in modules)
    ]
    assert not wrong, f"{name_of(path)} ({layer}) may import {sorted(allowed)}, not {wrong}"


@pytest.mark.parametrize("path", [p for p in FILES if layer_of(p) == "store"], ids=name_of)
def test_the_store_knows_records_and_no_commands(path: Path) -> None:
    used = {module for layer, module, _ in own_imports(path) if layer == "protocol"}
    forbidden = {"aerobee.protocol.command", "aerobee.protocol.headers", "aerobee.protocol.frames"}
    assert not {module for module in used for bad in forbidden if (module + ".").startswith(bad + ".")}


@pytest.mark.parametrize("path", [p for p in FILES if layer_of(p) == "broker"], ids=name_of)
def test_the_broker_sees_values_and_never_frames(path: Path) -> None:
    """Requests to clients are commands: state and background may make them, none may cut frames."""
    used = {module for layer, module, _ in own_imports(path) if layer == "protocol"}
    assert not {module for module in used if module.startswith("aerobee.protocol.frames")}


@pytest.mark.parametrize("path", [p for p in FILES if p.parent.name == "gates"], ids=name_of)
def test_gates_know_no_broker_for_the_name_server_has_them_too(path: Path) -> None:
    used = {module for layer, module, _ in own_imports(path) if layer not in EVERYONE | {"net", "protocol"}}
    assert not {module for module in used if not module.startswith("aerobee.fronts.gates")} - {
        "aerobee.fronts"
    }


def lines_not_run(node: ast.AST, *, lazily: bool) -> range:
    """The lines of an `if TYPE_CHECKING:` and, when imported lazily, of a function."""
    checking = isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    if checking or (lazily and isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))):
        assert isinstance(node, ast.stmt)
        return range(node.lineno, (node.end_lineno or node.lineno) + 1)
    return range(0)


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_extras_are_imported_only_where_they_are_an_extra(path: Path) -> None:
    inside = path.relative_to(PACKAGE).as_posix()
    lazily = layer_of(path) in ("cli", "demo")  # a command may look for an extra when it is run
    skipped = {
        line for node in ast.walk(ast.parse(path.read_text())) for line in lines_not_run(node, lazily=lazily)
    }
    wrong = [
        f"line {line}: {module}"
        for module, line in imports(path)
        if line not in skipped
        for extra, homes in EXTRAS.items()
        if module.split(".")[0] == extra and not any(inside.startswith(home) for home in homes)
    ]
    assert not wrong


@pytest.mark.slow
def test_broker_client_and_command_line_start_without_any_extra() -> None:
    script = (
        "import sys, aerobee, aerobee.server, aerobee.blocking, aerobee.cli.main\n"
        f"print([each for each in {sorted(EXTRAS)!r} if each in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("path", [p for p in FILES if layer_of(p) == "protocol"], ids=name_of)
def test_the_protocol_does_no_io(path: Path) -> None:
    used = {module.split(".")[0] for module, _ in imports(path)}
    assert not used & IO_MODULES


@pytest.mark.parametrize("path", [p for p in FILES if name_of(p) != "aerobee/clock.py"], ids=name_of)
def test_only_the_clock_reads_the_clock(path: Path) -> None:
    tree = ast.parse(path.read_text())
    wrong = [
        f"line {node.lineno}: {ast.unparse(node)}"
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and any(ast.unparse(node).endswith(clock) for clock in CLOCKS)
    ]
    wrong += [f"{module} line {line}" for module, line in imports(path) if module in CLOCKS]
    assert not wrong, f"{name_of(path)} reads the clock: {wrong}; take `now` or a Clock instead"


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_every_file_says_its_licence_and_what_it_is_for(path: Path) -> None:
    text = path.read_text()
    assert text.startswith("# SPDX-License-Identifier: Apache-2.0\n")
    if text.count("\n") > 5:
        assert ast.get_docstring(ast.parse(text)), f"{name_of(path)} has no docstring"


@pytest.mark.parametrize("path", [p for p in FILES if layer_of(p) == "broker"], ids=name_of)
def test_no_part_holds_the_broker(path: Path) -> None:
    """State is told what it needs; only operations and drivers are handed the whole."""
    if not {"state", "pop"} & set(path.parts):
        return
    used = {module for _, module, _ in own_imports(path)}
    assert not {module for module in used if module.startswith("aerobee.broker.broker")}


def test_names_say_what_a_thing_does() -> None:
    vague = ("Manager", "Service", "Helper", "Util", "Utils", "Impl")
    found = [
        f"{name_of(path)}: {node.name}"
        for path in FILES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef)
        and node.name.endswith(vague)
        and not path.is_relative_to(PACKAGE / "fronts/grpc")  # gRPC's own word is service
    ]
    assert not found


def test_tests_that_start_spark_are_where_make_looks_for_them() -> None:
    line = next(line for line in (ROOT / "Makefile").read_text().splitlines() if "-m spark" in line)
    folders = {"tests/interop", *line.split("-m spark ")[1].split()}
    marked = {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "tests").rglob("test_*.py")
        if "mark.spark" in path.read_text(encoding="utf-8") and path != Path(__file__)
    }
    assert {path for path in marked if not any(path.startswith(f"{folder}/") for folder in folders)} == set()
