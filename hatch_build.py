# SPDX-License-Identifier: Apache-2.0
"""Builds the compiled lane (aerobee/native/*.pyx) where there is a C compiler; where there is none the wheel is pure.

AEROBEE_NATIVE=0 builds none, AEROBEE_NATIVE=1 fails when it cannot: for those who publish wheels. They also say in
AEROBEE_HOME_PAGE where the repository is, for the package's links: the sources do not know where they are hosted.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface

PACKAGE = Path("aerobee", "native")


class Links(MetadataHookInterface):
    """`project.urls`."""

    def update(self, metadata: dict[str, Any]) -> None:
        home = os.environ.get("AEROBEE_HOME_PAGE", "").rstrip("/")
        metadata["urls"] = links(home) if home else {}


def links(home: str) -> dict[str, str]:
    return {
        "Homepage": home,
        "Documentation": f"{home}/tree/main/docs",
        "Changelog": "/".join((home, "blob", "main", "CHANGELOG.md")),
        "Issues": f"{home}/issues",
    }


class NativeLane(BuildHookInterface):
    """Compiles outside the tree, so that no stale module slips into a pure wheel. Only an editable install, which runs
    from the tree, gets the modules beside their sources; there git ignores them and wheels leave them out."""

    _place = ""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        wanted = os.environ.get("AEROBEE_NATIVE", "")
        if self.target_name != "wheel" or wanted == "0":
            return
        self._place = tempfile.mkdtemp(prefix="aerobee-native-")
        try:
            modules = compiled(Path(self.root), Path(self._place))
        except (Exception, SystemExit) as error:
            if wanted == "1":
                raise
            self.app.display_warning(f"the native lane is not built, all works without it: {error}")
            return
        if version == "editable":
            for module in modules:
                _replace(module, Path(self.root) / PACKAGE / module.name)
            return
        build_data["pure_python"] = False
        build_data["infer_tag"] = True
        build_data["force_include"].update({str(m): (PACKAGE / m.name).as_posix() for m in modules})

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        if self._place:
            shutil.rmtree(self._place, ignore_errors=True)


def compiled(root: Path, place: Path, arguments: tuple[str, ...] = ()) -> list[Path]:
    """The modules, built below `place`. Raises what Cython and the compiler raise."""
    from Cython.Build import cythonize
    from setuptools import Distribution, Extension

    flags = [] if sys.platform == "win32" else ["-O3", "-g0", *arguments]
    sources = sorted((root / PACKAGE).glob("*.pyx"))
    headers = [str(root / PACKAGE)]
    extensions = [
        Extension(
            f"aerobee.native.{source.stem}",
            [str(source)],
            include_dirs=headers,
            extra_compile_args=flags,
            extra_link_args=list(arguments),
        )
        for source in sources
    ]
    extensions = cythonize(extensions, build_dir=str(place / "c"), include_path=[str(root)], quiet=True)
    build = Distribution({"name": "aerobee-native", "ext_modules": extensions}).get_command_obj("build_ext")
    build.build_lib, build.build_temp = str(place / "lib"), str(place / "temp")
    build.ensure_finalized()
    build.run()
    return [Path(output) for output in build.get_outputs()]


def _replace(module: Path, target: Path) -> None:
    """By a new file: a process that has the old one loaded keeps it."""
    fresh = target.with_name(target.name + ".new")
    shutil.copy2(module, fresh)
    os.replace(fresh, target)


if __name__ == "__main__":  # in place, for whoever works on it: python hatch_build.py
    here = Path(__file__).parent
    with tempfile.TemporaryDirectory() as directory:
        for built in compiled(here, Path(directory), tuple(sys.argv[1:])):
            _replace(built, here / PACKAGE / built.name)
