# SPDX-License-Identifier: Apache-2.0
"""What a release says of itself: its version, and where it comes from."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml  # type: ignore[import-untyped]

import aerobee

ROOT = Path(__file__).parents[2]


def project_urls(**environment: str) -> dict[str, str]:
    left = {name: value for name, value in os.environ.items() if name != "AEROBEE_HOME_PAGE"}
    told = subprocess.run(
        [sys.executable, "-m", "hatchling", "metadata"],
        cwd=ROOT,
        env=left | environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    urls: dict[str, str] = json.loads(told.stdout).get("urls", {})
    return urls


@pytest.mark.slow
def test_a_package_links_to_the_home_its_publisher_names_and_else_nowhere() -> None:
    urls = project_urls(AEROBEE_HOME_PAGE="https://forge.example/team/aerobee/")
    assert urls["Homepage"] == "https://forge.example/team/aerobee"
    assert urls["Issues"] == "https://forge.example/team/aerobee/issues"
    assert set(urls) == {"Homepage", "Documentation", "Changelog", "Issues"}
    assert project_urls() == {}


@pytest.mark.parametrize(
    ("ref", "name", "builds"),
    [
        ("refs/tags/v" + aerobee.__version__, "v" + aerobee.__version__, True),
        ("refs/tags/v99.0.0", "v99.0.0", False),
        ("refs/heads/main", "main", True),
    ],
)
def test_wheels_are_built_for_a_tag_that_is_the_version(ref: str, name: str, builds: bool) -> None:
    workflow = yaml.safe_load((ROOT / ".github/workflows/wheels.yml").read_text())
    step = workflow["jobs"]["tag"]["steps"][-1]["run"]
    ended = subprocess.run(
        ["bash", "-e", "-c", step],
        cwd=ROOT,
        env=os.environ | {"GITHUB_REF": ref, "GITHUB_REF_NAME": name},
        check=False,
        timeout=30,
    )
    assert (ended.returncode == 0) is builds
    assert workflow["jobs"]["wheels"]["needs"] == ["tag"]
