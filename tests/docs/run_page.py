# SPDX-License-Identifier: Apache-2.0
"""Runs the Python blocks of a page one after the other, as a notebook or `python -m asyncio` does: `await` may stand at
the top.

python run_page.py BLOCK.py BLOCK.py ...
"""

from __future__ import annotations

import ast
import asyncio
import inspect
import sys
from pathlib import Path


async def main(blocks: dict[str, str]) -> None:
    known: dict[str, object] = {"__name__": "__main__"}
    for path, text in blocks.items():
        # dont_inherit: the blocks are not annotated lazily because this file is
        code = compile(text, path, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
        done = eval(code, known)
        if inspect.iscoroutine(done):
            await done


asyncio.run(main({path: Path(path).read_text(encoding="utf-8") for path in sys.argv[1:]}))
