# SPDX-License-Identifier: Apache-2.0
"""The names of aerobee.spark are functions, whatever was imported before."""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
import pydoc
from pathlib import Path

import aerobee.spark


def test_no_module_hides_a_public_function() -> None:
    modules = {module.name for module in pkgutil.iter_modules(aerobee.spark.__path__)}
    assert not modules & set(aerobee.spark.__all__)
    for name in modules - {"source", "stream_reader", "batch_reader", "writer", "pushdown"}:
        importlib.import_module(f"aerobee.spark.{name}")
    assert all(callable(getattr(aerobee.spark, name)) for name in aerobee.spark.__all__)


def test_help_shows_every_public_function() -> None:
    told = pydoc.plain(pydoc.render_doc(aerobee.spark))
    described = (aerobee.spark.__doc__ or "").splitlines()
    for name in aerobee.spark.__all__:
        assert f"    {name}(" in told, name
        assert any(line.startswith(f"{name} ") for line in described), name


def test_spark_pushes_filters_from_the_file_the_source_looks_for() -> None:
    """The source tells Spark's push-down worker by its file name. Should Spark rename it, filters would silently narrow
    nothing: better to hear of it here."""
    spec = importlib.util.find_spec("pyspark.sql.worker.data_source_pushdown_filters")
    assert spec is not None and spec.origin is not None
    assert ".reader(schema=" in Path(spec.origin).read_text()
