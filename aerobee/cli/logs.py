# SPDX-License-Identifier: Apache-2.0
"""Where a server's log lines go, and what they look like: for people, or one JSON object each for programs."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from logging.handlers import RotatingFileHandler
from typing import TYPE_CHECKING

from aerobee.errors import AerobeeError

if TYPE_CHECKING:
    from aerobee.settings import BrokerConfig

TEXT = "%(asctime)s %(levelname)-7s %(name)s %(message)s"


class JsonLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        said = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            said["exception"] = self.formatException(record.exc_info)
        return json.dumps(said, ensure_ascii=False)


def to_stderr(level: str) -> None:
    """Until the settings are read: they may have something to say themselves."""
    logging.basicConfig(level=level.upper(), stream=sys.stderr, format=TEXT)


def as_set(config: BrokerConfig) -> None:
    """As the settings say. AerobeeError when the file cannot be written: a log nobody has is found out too late."""
    root = logging.getLogger()
    formatter = JsonLines() if config.log_format == "json" else logging.Formatter(TEXT)
    if config.log_file:
        try:
            root.addHandler(
                RotatingFileHandler(
                    config.log_file,
                    maxBytes=config.log_file_bytes,
                    backupCount=config.log_files,
                    encoding="utf-8",
                )
            )
        except OSError as error:
            raise AerobeeError(f"log_file {config.log_file!r}: {error.strerror}") from None
    for handler in root.handlers:
        handler.setFormatter(formatter)
