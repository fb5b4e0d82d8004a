# SPDX-License-Identifier: Apache-2.0
from aerobee.native.receipts import ReceiptLane

class ChangeLane(ReceiptLane): ...
