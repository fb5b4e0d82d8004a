# SPDX-License-Identifier: Apache-2.0
"""Large pieces dropped and made again keep their pages."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

FAULTS = """
import resource, sys
from aerobee.memory import keep_freed
if sys.argv[1] == "keep":
    keep_freed(64 << 20)
def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
bytes(8 << 20)
before = faults()
for _ in range(20):
    b"".join((b"x" * (8 << 20), b"y"))
print(faults() - before)
"""


def faults(mode: str) -> int:
    done = subprocess.run([sys.executable, "-c", FAULTS, mode], capture_output=True, text=True, check=True)
    return int(done.stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="elsewhere the allocator decides")
def test_what_was_freed_is_used_again_instead_of_asking_the_system() -> None:
    assert faults("keep") * 5 < faults("as it is")
