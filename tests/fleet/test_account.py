# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from aerobee.fleet import account
from aerobee.settings import BrokerConfig, NamesrvConfig, Settings
from aerobee.settings.broker import own_account

if TYPE_CHECKING:
    from pathlib import Path


def test_an_account_is_made_once_for_its_owner_alone_and_is_what_the_setting_takes(tmp_path: Path) -> None:
    text = account.kept_in(tmp_path)
    assert account.kept_in(tmp_path) == text
    assert (tmp_path / account.FILE).stat().st_mode & 0o077 == 0
    name, secret, token = own_account(BrokerConfig(inner_credentials=text))
    assert (name, token) == (account.NAME, "")
    assert secret == json.loads(text)["secretKey"]
    assert len(secret) >= 24


def test_two_data_directories_have_two_secrets(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / name).mkdir()
    assert account.kept_in(tmp_path / "a") != account.kept_in(tmp_path / "b")


def test_what_a_start_that_was_killed_has_half_written_is_written_again(tmp_path: Path) -> None:
    (tmp_path / f"{account.FILE}.new").write_text("{" + " " * 500)
    assert json.loads(account.kept_in(tmp_path))["accessKey"] == account.NAME


@pytest.mark.parametrize(
    ("broker", "namesrv", "missing"),
    [
        (BrokerConfig(), NamesrvConfig(), False),
        (BrokerConfig(authentication=True), NamesrvConfig(), True),
        (BrokerConfig(), NamesrvConfig(authentication=True), True),
        (
            BrokerConfig(authentication=True, inner_credentials='{"accessKey":"u","secretKey":"p"}'),
            NamesrvConfig(),
            False,
        ),
    ],
)
def test_an_account_is_missing_where_requests_are_signed_and_none_is_named(
    broker: BrokerConfig, namesrv: NamesrvConfig, missing: bool
) -> None:
    assert account.is_missing(Settings(broker=broker, namesrv=namesrv)) is missing
