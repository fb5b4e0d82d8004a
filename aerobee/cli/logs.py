# SPDX-License-Identifier: Apache-2.0
"""Where a server's log lines go, and what they look like: for people, or one JSON object each for programs."""

from __future__ import annotations

import json
import logging
import os
import sys
from datetime import UTC, datetime
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import TYPE_CHECKING, cast

from aerobee.errors import AerobeeError

if TYPE_CHECKING:
    from io import TextIOWrapper

    from aerobee.settings import BrokerConfig

TEXT = "%(asctime)s %(levelname)-7s {}%(name)s %(message)s"


class JsonLines(logging.Formatter):
    """`whose` is the broker that writes them, where several write to one stream."""

    def __init__(self, whose: str = "") -> None:
        super().__init__()
        self._whose = {"broker": whose} if whose else {}

    def format(self, record: logging.LogRecord) -> str:
        said = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            **self._whose,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            said["exception"] = self.formatException(record.exc_info)
        return json.dumps(said, ensure_ascii=False)


class _LogFiles(RotatingFileHandler):
    """For the server's user and its group alone: lines name users, topics and addresses."""

    def _open(self) -> TextIOWrapper:
        handle = os.open(self.baseFilename, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o640)
        return cast("TextIOWrapper", os.fdopen(handle, self.mode, encoding=self.encoding))


def to_stderr(level: str) -> None:
    """Until the settings are read: they may have something to say themselves."""
    logging.basicConfig(level=level.upper(), stream=sys.stderr, format=TEXT.format(""))


def as_set(config: BrokerConfig, whose: str = "") -> None:
    """As the settings say; the file's directory is made. AerobeeError when the file cannot be written: a log nobody has
    is found out too late. `whose`: the name of a broker beside others. Its lines carry it, and so does its file, for
    only one process may rotate one."""
    root = logging.getLogger()
    text = logging.Formatter(TEXT.format(f"{whose} " if whose else ""))
    formatter = JsonLines(whose) if config.log_format == "json" else text
    if config.log_file:
        file = _file_of(Path(config.log_file), whose)
        try:
            file.parent.mkdir(mode=0o750, parents=True, exist_ok=True)
            root.addHandler(
                _LogFiles(
                    file,
                    maxBytes=config.log_file_bytes,
                    backupCount=config.log_files,
                    encoding="utf-8",
                )
            )
        except OSError as error:
            raise AerobeeError(
                f"log_file {config.log_file!r}: {error.strerror}; name a file that this user may write"
            ) from None
    for handler in root.handlers:
        handler.setFormatter(formatter)


def _file_of(path: Path, whose: str) -> Path:
    return path.with_name(f"{path.stem}.{whose}{path.suffix}") if whose else path
