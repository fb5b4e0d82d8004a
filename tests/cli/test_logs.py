# SPDX-License-Identifier: Apache-2.0
"""A server's log: to a file that begins anew when it is full, as JSON where that is set."""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING

import pytest

from aerobee.cli import logs, serving
from aerobee.errors import AerobeeError
from aerobee.settings import BrokerConfig

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(autouse=True)
def handlers_end_with_the_test() -> Iterator[None]:
    root = logging.getLogger()
    before = [(handler, handler.formatter) for handler in root.handlers]
    yield
    for handler in [each for each in root.handlers if each not in dict(before)]:
        handler.close()
        root.removeHandler(handler)
    for handler, formatter in before:
        handler.setFormatter(formatter)


def test_lines_go_to_the_file_too_and_full_files_are_kept_so_many(tmp_path: Path) -> None:
    file = tmp_path / "aerobee.log"
    logs.as_set(BrokerConfig(log_file=str(file), log_file_bytes=4096, log_files=2))
    for n in range(400):
        logging.getLogger("aerobee.test").warning("line n=%d with some words that fill the file", n)
    assert sorted(each.name for each in tmp_path.iterdir()) == [
        "aerobee.log",
        "aerobee.log.1",
        "aerobee.log.2",
    ]
    assert "n=399" in file.read_text()
    assert all(each.stat().st_size <= 4096 for each in tmp_path.iterdir())
    assert "WARNING aerobee.test line n=399" in file.read_text()


def test_json_lines_are_one_object_each_whatever_is_said(tmp_path: Path) -> None:
    file = tmp_path / "aerobee.log"
    logs.as_set(BrokerConfig(log_file=str(file), log_format="json"))
    log = logging.getLogger("aerobee.test")
    log.warning('a "quoted"\nline für %s', "topic=x")
    try:
        raise ValueError("why")
    except ValueError:
        log.exception("failed")
    first, second = map(json.loads, file.read_text().splitlines())
    assert (first["level"], first["logger"]) == ("WARNING", "aerobee.test")
    assert first["message"] == 'a "quoted"\nline für topic=x'
    assert first["time"].endswith("+00:00")
    assert "ValueError: why" in second["exception"]


def test_a_file_that_cannot_be_written_fails_the_start(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(AerobeeError, match=r"log_file .*; name a file that this user may write"):
        logs.as_set(BrokerConfig(log_file=str(tmp_path / "file" / "aerobee.log")))


def test_the_directory_of_a_log_file_is_made(tmp_path: Path) -> None:
    file = tmp_path / "logs" / "of" / "aerobee.log"
    logs.as_set(BrokerConfig(log_file=str(file)))
    logging.getLogger("aerobee.test").warning("hello")
    assert "hello" in file.read_text()
    assert file.parent.stat().st_mode & 0o027 == 0


def test_who_keeps_several_brokers_logs_as_the_settings_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "aerobee.log"
    said = [f"log_file={file}", "log_format=json"]

    def run(_: object) -> int:
        logging.getLogger("aerobee.fleet").warning("broker=broker-b ended")
        return 0

    monkeypatch.setattr(serving, "_run", run)
    assert serving.serve(brokers=2, data=tmp_path / "data", set=said)() == 0
    (line,) = map(json.loads, file.read_text().splitlines())
    assert (line["logger"], line["message"]) == ("aerobee.fleet", "broker=broker-b ended")


def test_a_log_file_is_not_for_everybody(tmp_path: Path) -> None:
    file = tmp_path / "aerobee.log"
    logs.as_set(BrokerConfig(log_file=str(file)))
    assert file.stat().st_mode & 0o777 & ~0o640 == 0
