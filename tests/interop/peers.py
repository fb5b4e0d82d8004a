# SPDX-License-Identifier: Apache-2.0
"""Programs nobody here wrote: fetched from their registries once, driven by a line of JSON each way.

Every driver (Java, Go, Node, Rust, two Pythons) knows the same few operations, so one scenario runs on all of them.
Everything fetched or compiled lands in `.interop/` at the top of the repository.
"""

from __future__ import annotations

import fcntl
import hashlib
import itertools
import json
import os
import queue
import shutil
import subprocess
import sys
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from servers import JAVA_SMALL, REPO, die_with_parent, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

HERE = Path(__file__).resolve().parent
CACHE = REPO / ".interop"
Row = dict[str, Any]

CPP_PACKAGE = "rocketmq==0.4.4"
GRPC_PACKAGE = "rocketmq-python-client==5.1.2"


class PeerError(Exception):
    """The peer's own client refused or failed; `code` is the broker's response code where it told one."""

    def __init__(self, text: str, code: int | None) -> None:
        super().__init__(text)
        self.code = code


class MissingTool(Exception):
    """A tool of the machine is absent: the suite fails and says which."""


def tool(name: str, package: str) -> str:
    found = shutil.which(name)
    if not found:
        raise MissingTool(f"`make interop` needs {package}: the program {name!r} is not on PATH")
    return found


def run(command: Sequence[str], cwd: Path, timeout: float = 600, **env: str) -> None:
    done = subprocess.run(
        command,
        cwd=cwd,
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(
            f"{' '.join(command)} failed ({done.returncode}):\n{done.stdout[-2000:]}{done.stderr[-3000:]}"
        )


@contextmanager
def built(name: str, inputs: Sequence[Path]) -> Iterator[bool]:
    """True once per content of `inputs`: the caller then builds, and the stamp is written if it succeeded."""
    CACHE.mkdir(exist_ok=True)
    digest = hashlib.sha256()
    for path in sorted(inputs):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    stamp = CACHE / f"{name}.stamp"
    with (CACHE / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        needed = not stamp.exists() or stamp.read_text() != digest.hexdigest()
        yield needed
        if needed:
            stamp.write_text(digest.hexdigest())


# ---------------------------------------------------------------- toolchains


def java_class_path(folder: Path, name: str) -> str:
    """Resolve one pom with the machine's Maven; its own repository is the cache."""
    tool("java", "a Java 17 runtime")
    maven = tool("mvn", "Apache Maven")
    target = CACHE / f"{name}.cp"
    with built(f"maven-{name}", [folder / "pom.xml"]) as needed:
        if needed or not all(Path(jar).exists() for jar in target.read_text().split(":")):
            run(
                [maven, "-q", "-B", "dependency:build-classpath", f"-Dmdep.outputFile={target}"],
                folder,
            )
    return target.read_text()


def server_class_path() -> str:
    return java_class_path(HERE / "java", "server")


def java_program(main: str, class_path: str) -> list[str]:
    """Compile one driver with plain javac; the command that runs it."""
    compiler = tool("javac", "a Java 17 development kit")
    sources = [HERE / "java/src/interop/Link.java", HERE / f"java/src/interop/{main}.java"]
    classes = CACHE / "classes" / main.lower()
    with built(f"javac-{main.lower()}", sources) as needed:
        if needed:
            classes.mkdir(parents=True, exist_ok=True)
            run([compiler, "-nowarn", "-cp", class_path, "-d", str(classes), *map(str, sources)], HERE)
    home = CACHE / "home" / main.lower()
    home.mkdir(parents=True, exist_ok=True)
    flags = [*JAVA_SMALL, "-Xmx512m", f"-Duser.home={home}", "-Drocketmq.client.rebalance.waitInterval=1000"]
    return ["java", *flags, "-cp", f"{classes}:{class_path}", f"interop.{main}"]


def go_program(name: str) -> list[str]:
    go = tool("go", "the Go toolchain")
    folder = HERE / "go"
    target = CACHE / "bin" / name
    sources = [folder / "go.mod", folder / "go.sum", *folder.glob("link/*.go"), *folder.glob(f"{name}/*.go")]
    with built(f"go-{name}", sources) as needed:
        if needed:
            run([go, "build", "-o", str(target), f"./{name}"], folder)
    return [str(target)]


def node_program(script: str) -> list[str]:
    node = tool("node", "Node.js")
    npm = tool("npm", "npm")
    folder = CACHE / "node"
    with built("npm", [HERE / "node/package.json"]) as needed:
        if needed:
            folder.mkdir(parents=True, exist_ok=True)
            shutil.copy(HERE / "node/package.json", folder)
            run([npm, "install", "--no-audit", "--no-fund"], folder)
    return [node, str(HERE / "node" / script)]


def rust_program() -> list[str]:
    cargo = tool("cargo", "Rust with cargo")
    tool("cc", "a C compiler")  # for one of the crates
    folder = HERE / "rust"
    target = CACHE / "rust"
    with built("rust", [folder / "Cargo.toml", folder / "src/main.rs"]) as needed:
        if needed:
            run([cargo, "build", "--quiet", "--target-dir", str(target)], folder, 900)
    return [str(target / "debug/interop-rust")]


def python_program(script: str, package: str, name: str) -> list[str]:
    """Two packages install the same module `rocketmq`: each has its own venv."""
    venv = CACHE / f"venv-{name}"
    note = CACHE / f"{name}.txt"
    CACHE.mkdir(exist_ok=True)
    if not note.exists() or note.read_text() != package:
        note.write_text(package)
    with built(f"venv-{name}", [note]) as needed:
        if needed:
            run([sys.executable, "-m", "venv", str(venv)], HERE)
            run([str(venv / "bin/pip"), "install", "-q", package], HERE)
    return [str(venv / "bin/python"), str(HERE / "python" / script)]


# ---------------------------------------------------------------- the driver at the other end


class Peer:
    """One running driver. Calls may come from several threads and answers in any order."""

    def __init__(self, name: str, command: Sequence[str], **env: str) -> None:
        self.name = name
        logs = CACHE / "logs"
        logs.mkdir(parents=True, exist_ok=True)
        (CACHE / "home").mkdir(exist_ok=True)
        self.log = logs / f"{name}-{os.getpid()}.log"
        self._ids = itertools.count(1)
        self._waiting: dict[int, queue.SimpleQueue[Row]] = {}
        self._writing = threading.Lock()
        with self.log.open("wb") as errors:
            self.child = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                cwd=logs,
                env={
                    **os.environ,
                    "HOME": str(CACHE / "home"),  # clients keep logs and broadcast offsets there
                    "NODE_PATH": str(CACHE / "node/node_modules"),
                    **env,
                },
                preexec_fn=die_with_parent,
            )
        assert self.child.stdin
        assert self.child.stdout
        self._stdin: IO[bytes] = self.child.stdin
        ready: queue.SimpleQueue[Row] = queue.SimpleQueue()
        self._waiting[0] = ready
        self._stdout: IO[bytes] = self.child.stdout
        self._reader = threading.Thread(target=self._read, args=(self._stdout,), daemon=True)
        self._reader.start()
        self.answer(ready, "start", 60)

    def _read(self, answers: IO[bytes]) -> None:
        for line in answers:
            if not line.startswith(b"{"):
                continue  # a library's own chatter
            reply = json.loads(line)
            waiter = self._waiting.pop(reply.get("id", 0), None)
            if waiter:
                waiter.put(reply)
        for waiter in list(self._waiting.values()):
            waiter.put({"error": f"{self.name} ended: {self.tail()}"})

    def tail(self) -> str:
        return self.log.read_text("utf-8", "replace")[-2000:]

    def answer(self, waiter: queue.SimpleQueue[Row], op: str, timeout: float) -> Row:
        try:
            reply = waiter.get(timeout=timeout)
        except queue.Empty:
            raise AssertionError(
                f"{self.name} did not answer {op!r} within {timeout} s: {self.tail()}"
            ) from None
        if "error" in reply:
            cause = reply.get("cause") or reply["error"]
            text = reply["error"] if cause == reply["error"] else f"{reply['error']} <- {cause}"
            raise PeerError(f"{op}: {text}", reply.get("code"))
        return reply

    def call(self, op: str, timeout: float = 40, /, **arguments: object) -> Any:
        return self.answer(self.post(op, **arguments), op, timeout).get("ok")

    def post(self, op: str, **arguments: object) -> queue.SimpleQueue[Row]:
        """Ask and do not wait for the answer."""
        number = next(self._ids)
        waiter: queue.SimpleQueue[Row] = queue.SimpleQueue()
        self._waiting[number] = waiter
        line = json.dumps({"id": number, "op": op, **arguments}).encode() + b"\n"
        with self._writing:
            self._stdin.write(line)
            self._stdin.flush()
        return waiter

    def end(self) -> None:
        self._stdin.close()
        try:
            self.child.wait(5)
        except subprocess.TimeoutExpired:
            self.child.kill()
            self.child.wait(10)
        self._reader.join(10)
        self._stdout.close()


class Session:
    """What one test opened on one peer against one server; all of it is closed at the end of the test."""

    def __init__(self, peer: Peer, address: str) -> None:
        self.peer = peer
        self.address = address
        self._numbers = itertools.count(1)
        self._open: list[str] = []

    def _name(self, kind: str) -> str:
        name = f"{kind}{next(self._numbers)}-{os.urandom(3).hex()}"
        self._open.append(name)
        return name

    def producer(self, group: str = "interop-producer", **settings: object) -> Producer:
        name = self._name("producer")
        self.peer.call("producer", name=name, namesrv=self.address, group=group, **settings)
        return Producer(self, name)

    def consumer(self, group: str, topic: str, expression: str = "*", **settings: object) -> Consumer:
        name = self._name("consumer")
        subscription = {"topic": topic, "expression": expression, "type": settings.pop("type", "TAG")}
        settings.setdefault("kind", "push")
        self.peer.call(
            "consumer", name=name, namesrv=self.address, group=group, subscriptions=[subscription], **settings
        )
        return Consumer(self, name)

    def pull(self, group: str, topic: str, **more: object) -> Any:
        """Everything in a topic, by plain pulls: {"messages": [...], "bounds": {queue: [min, max]}}."""
        return self.peer.call("pull", namesrv=self.address, group=group, topic=topic, **more)

    def close(self, name: str) -> None:
        if name in self._open:
            self._open.remove(name)
            self.peer.call("close", name=name)

    def close_all(self, *, wait: bool = False) -> None:
        """A gRPC consumer sees its long polls through before it closes: the next test does not wait for that."""
        while self._open:
            waiter = self.peer.post("close", name=self._open.pop())
            if wait:
                self.peer.answer(waiter, "close", 40)


class Producer:
    def __init__(self, session: Session, name: str) -> None:
        self.session = session
        self.name = name

    def send(self, *messages: Row, mode: str = "sync", timeout: float = 40) -> list[Row]:
        rows: list[Row] = self.session.peer.call(
            "send", timeout, producer=self.name, mode=mode, messages=list(messages)
        )
        return rows

    def close(self) -> None:
        self.session.close(self.name)


class Consumer:
    """Rows come in the order in which the consumer's callback saw them."""

    def __init__(self, session: Session, name: str) -> None:
        self.session = session
        self.name = name
        self._rows: list[Row] = []

    def seen(self) -> list[Row]:
        self._rows += self.session.peer.call("received", name=self.name, **{"from": len(self._rows)}) or []
        return self._rows

    def bodies(self) -> list[str]:
        return [row["body"] for row in self.seen()]

    def wait(self, count: int, timeout: float = 40) -> list[Row]:
        return self.wait_for(lambda rows: len(rows) >= count, timeout, f"{count} messages")

    def wait_for(self, check: Callable[[list[Row]], bool], timeout: float, what: str) -> list[Row]:
        try:
            wait_until(lambda: check(self.seen()), timeout, what)
        except AssertionError as late:
            raise AssertionError(f"{late}; {self.name} {self!r}") from None
        return self._rows

    def close(self) -> None:
        self.session.close(self.name)

    def __repr__(self) -> str:
        return f"saw {len(self._rows)}: {[row.get('body', row['size']) for row in self._rows][-10:]}"
