# SPDX-License-Identifier: Apache-2.0
"""Header texts as HTTP/2 packs them (RFC 7541, appendix B): frequent characters take five bits, rare ones up to thirty.

The code is canonical: among codes of one length the smaller symbol has the smaller code, and longer ones follow, so the
lengths say it all. Texts are read byte by byte: from a node of the code's tree a byte leads to another one, past the
symbols it completes. Only the steps that clients' texts take are worked out, once; there are 65,536 in all.
"""

from __future__ import annotations

from aerobee.errors import ProtocolError

END = 256  # never sent; the bits that fill the last byte are the first of it
_SYMBOLS_BY_LENGTH: dict[int, tuple[int, ...]] = {
    5: tuple(b"012aceiost"),
    6: tuple(b" %-./3456789=A_bdfghlmnpru"),
    7: tuple(b":BCDEFGHIJKLMNOPQRSTUVWYjkqvwxyz"),
    8: tuple(b"&*,;XZ"),
    10: tuple(b'!"()?'),
    11: tuple(b"'+|"),
    12: tuple(b"#>"),
    13: tuple(b"\0$@[]~"),
    14: tuple(b"^}"),
    15: tuple(b"<`{"),
    19: (92, 195, 208),
    20: (128, 130, 131, 162, 184, 194, 224, 226),
    21: (153, 161, 167, 172, 176, 177, 179, 209, 216, 217, 227, 229, 230),
    22: (
        *(129, 132, 133, 134, 136, 146, 154, 156, 160, 163, 164, 169, 170),
        *(173, 178, 181, 185, 186, 187, 189, 190, 196, 198, 228, 232, 233),
    ),
    23: (
        *(1, 135, 137, 138, 139, 140, 141, 143, 147, 149, 150, 151, 152, 155, 157),
        *(158, 165, 166, 168, 174, 175, 180, 182, 183, 188, 191, 197, 231, 239),
    ),
    24: (9, 142, 144, 145, 148, 159, 171, 206, 215, 225, 236, 237),
    25: (199, 207, 234, 235),
    26: (192, 193, 200, 201, 202, 205, 210, 213, 218, 219, 238, 240, 242, 243, 255),
    27: (203, 204, 211, 212, 214, 221, 222, 223, 241, 244, 245, 246, 247, 248, 250, 251, 252, 253, 254),
    28: (*range(2, 9), 11, 12, *range(14, 22), *range(23, 32), 127, 220, 249),
    30: (10, 13, 22, END),
}
_REFUSED = -1  # where a byte leads that no text has


def _tree() -> list[list[int]]:
    """Nodes, the root first: where a 0 and a 1 lead; below zero it is a symbol, counted from -1."""
    nodes = [[0, 0]]
    code = length = 0
    for bits, symbols in _SYMBOLS_BY_LENGTH.items():
        for symbol in symbols:
            code, length = code << bits - length, bits
            node = 0
            for place in range(bits - 1, 0, -1):
                bit = code >> place & 1
                if not nodes[node][bit]:
                    nodes.append([0, 0])
                    nodes[node][bit] = len(nodes) - 1
                node = nodes[node][bit]
            nodes[node][code & 1] = -1 - symbol
            code += 1
    return nodes


NODES = _tree()


def _ends() -> frozenset[int]:
    """Where a text may end: at the root, or after up to seven ones."""
    node, found = 0, [0]
    for _ in range(7):
        node = NODES[node][1]
        found.append(node)
    return frozenset(found)


ENDS = _ends()


class _Steps(dict[int, tuple[int, bytes]]):
    """Node and byte -> the node it leads to, times 256, and the symbols on the way."""

    def __missing__(self, key: int) -> tuple[int, bytes]:
        node, byte, symbols = key >> 8, key & 0xFF, bytearray()
        for place in range(7, -1, -1):
            node = NODES[node][byte >> place & 1]
            if node < 0:
                symbol = -1 - node
                if symbol == END:
                    self[key] = (_REFUSED, b"")
                    return self[key]
                symbols.append(symbol)
                node = 0
        self[key] = (node << 8, bytes(symbols))
        return self[key]


_STEPS = _Steps()


def unpack(data: bytes) -> bytes:
    """The text; ProtocolError for what no sender would make of one."""
    node, parts = 0, []
    for byte in data:
        node, symbols = _STEPS[node | byte]
        if node < 0:
            raise ProtocolError("a header text that holds the code of its end")
        parts.append(symbols)
    if node >> 8 not in ENDS:
        raise ProtocolError("a header text that ends within a character")
    return b"".join(parts)
