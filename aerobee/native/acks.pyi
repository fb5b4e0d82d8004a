# SPDX-License-Identifier: Apache-2.0
from aerobee.native.receipts import ReceiptLane

class Sheaf:
    topic: str
    group: str
    queue_id: int
    start: int
    pop_time: int
    bits: int

class AckLane(ReceiptLane):
    sheaves: list[Sheaf]
