# SPDX-License-Identifier: Apache-2.0
"""The data of one broker is not taken for that of several, nor the other way round."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from aerobee.errors import StoreError
from aerobee.server import Server
from aerobee.store.several import folder_of, refuse_one, refuse_several

if TYPE_CHECKING:
    from pathlib import Path

NAMES = ["broker-a", "broker-b"]


def test_a_new_directory_is_anybodys(tmp_path: Path) -> None:
    refuse_one(tmp_path / "new", NAMES)
    refuse_several(tmp_path / "new")
    (tmp_path / "namesrv").mkdir()
    refuse_one(tmp_path, NAMES)
    refuse_several(tmp_path)


def test_several_are_not_started_on_ones_data(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    refuse_several(tmp_path)
    with pytest.raises(StoreError, match="data of one broker; start it without --brokers") as refused:
        refuse_one(tmp_path, NAMES)
    assert f"move {tmp_path}/store to {tmp_path}/brokers/broker-a/store" in str(refused.value)


async def test_one_is_not_started_on_data_of_several(tmp_path: Path) -> None:
    for name in NAMES:
        folder_of(tmp_path, name).mkdir(parents=True)
    refuse_one(tmp_path, NAMES)
    refuse_one(tmp_path, [*NAMES, "broker-c"])
    with pytest.raises(StoreError, match="several brokers: broker-a, broker-b; start it with --brokers 2"):
        await Server(tmp_path, namesrv_port=-1, broker_port=0).start()
    assert not (tmp_path / "store").exists()


def test_fewer_than_there_were_are_refused_for_the_rest_would_not_be_served(tmp_path: Path) -> None:
    for name in (*NAMES, "broker-c"):
        folder_of(tmp_path, name).mkdir(parents=True)
    with pytest.raises(StoreError, match="holds messages of broker-c too; start it with --brokers 3"):
        refuse_one(tmp_path, NAMES)
