# SPDX-License-Identifier: Apache-2.0
"""Secrets that commands are given: never as an argument, which whoever lists processes can read."""

from __future__ import annotations

import getpass
import sys

import typer

ASK = "-"


def secret_given(given: str) -> str:
    """The text itself, as scripts written for mqadmin give it; for `-` what is typed, or the first line of stdin."""
    if given != ASK:
        return given
    return typed("password: ")


def typed(question: str) -> str:
    secret = getpass.getpass(question) if sys.stdin.isatty() else sys.stdin.readline().rstrip("\r\n")
    if not secret.strip():
        raise typer.BadParameter("the password is blank")
    return secret
