# SPDX-License-Identifier: Apache-2.0
class Messages:
    def delivered(
        self,
        topic: str,
        body: bytes,
        texts: tuple[str, str, str, str, str, str],
        keys: list[str],
        numbers: tuple[int, int, int, int, int, int, int, int],
    ) -> bytes: ...
