# SPDX-License-Identifier: Apache-2.0
from collections.abc import Sequence

class Template:
    def __init__(self, frame: bytes, values: Sequence[bytes], opaque: bytes | None = None) -> None: ...
