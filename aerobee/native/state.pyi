# SPDX-License-Identifier: Apache-2.0
class QueueEnd:
    max_offset: int
    tail: bytearray

class Counts:
    calls: int
    count: int
    size_bytes: int
