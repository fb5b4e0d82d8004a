# SPDX-License-Identifier: Apache-2.0
"""Who reads a connection's header blocks: the compiled lane where it runs, else Python, which it is equal to."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from aerobee import native
from aerobee.errors import ProtocolError
from aerobee.protocol.http2 import huffman
from aerobee.protocol.http2.hpack import TABLE_BYTES, USUAL_FIELDS, HeaderBlocks

if TYPE_CHECKING:
    from aerobee.native.header_blocks import Tables
    from aerobee.protocol.http2.streams import ReadsHeaders


def header_reader(max_bytes: int) -> ReadsHeaders:
    if not native.is_on:
        return HeaderBlocks(max_bytes)
    from aerobee.native import header_blocks

    return header_blocks.HeaderBlocks(_tables(), ProtocolError, max_bytes, TABLE_BYTES)


@cache
def _tables() -> Tables:
    from aerobee.native import header_blocks

    return header_blocks.Tables(USUAL_FIELDS, huffman.NODES, huffman.ENDS)
