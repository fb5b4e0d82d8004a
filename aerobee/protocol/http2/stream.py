# SPDX-License-Identifier: Apache-2.0
"""One request and its answer on an HTTP/2 connection."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aerobee.protocol.http2.streams import Streams


class Stream:
    """What its user overrides are the methods that tell what the peer did."""

    __slots__ = (
        "allowed",
        "ends_with",
        "fields",
        "heard_all",
        "number",
        "said_all",
        "streams",
        "unsent",
        "window",
    )

    def __init__(self, streams: Streams, number: int, fields: dict[str, str]) -> None:
        self.streams = streams
        self.number = number
        self.fields = fields
        self.window = streams.first_window  # bytes that the peer takes
        self.allowed = streams.limits.window_bytes  # bytes that it may send
        self.unsent: list[memoryview] = []  # what waits for the peer's windows, in order
        self.ends_with: bytes | None = None  # trailers that wait behind it
        self.heard_all = False
        self.said_all = False

    def received(self, data: bytes) -> None:
        """A part of the request's body."""

    def ended(self) -> None:
        """The request is whole."""

    def received_last(self, data: bytes) -> None:
        """The last part of the body, if any, and with it the request is whole."""
        if data:
            self.received(data)
        if not self.said_all:
            self.ended()

    def stopped(self) -> None:
        """The peer does not want the answer, or is gone."""

    def flowing(self) -> None:
        """All that waited for the peer's windows has left."""
