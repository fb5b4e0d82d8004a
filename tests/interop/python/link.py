# SPDX-License-Identifier: Apache-2.0
"""One JSON request a line from stdin, one JSON answer a line on stdout, in any order."""

from __future__ import annotations

import json
import os
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

Request = dict[str, Any]


def serve(operations: dict[str, Callable[[Request], Any]]) -> None:
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # native libraries print to the first stdout too
    writing = threading.Lock()

    def answer(reply: Request) -> None:
        with writing:
            answers.write(json.dumps(reply) + "\n")
            answers.flush()

    def work(request: Request) -> None:
        try:
            result = operations[request["op"]](request)
        except BaseException as error:
            answer({"id": request["id"], "error": f"{type(error).__name__}: {error}"})
        else:
            answer({"id": request["id"], "ok": result})

    answer({"ready": True})
    with ThreadPoolExecutor(64) as workers:
        for line in sys.stdin:
            workers.submit(work, json.loads(line))
        os._exit(0)  # the parent is done: no slow shutdown of native threads


def body(spec: Request) -> bytes:
    if "size" in spec:
        return bytes(97 + i % 26 for i in range(spec["size"]))
    text: str = spec["body"]
    return text.encode()


def put_body(row: Request, data: bytes) -> Request:
    row["size"] = len(data)
    if len(data) <= 2000:
        row["body"] = data.decode("utf-8", "replace")
    return row
