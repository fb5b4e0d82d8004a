# SPDX-License-Identifier: Apache-2.0
"""The names of aerobee.spark are functions, whatever was imported before."""

from __future__ import annotations

import importlib
import pkgutil

import aerobee.spark


def test_no_module_hides_a_public_function() -> None:
    modules = {module.name for module in pkgutil.iter_modules(aerobee.spark.__path__)}
    assert not modules & set(aerobee.spark.__all__)
    for name in modules - {"source", "stream_reader", "batch_reader", "writer", "pushdown"}:
        importlib.import_module(f"aerobee.spark.{name}")
    assert all(callable(getattr(aerobee.spark, name)) for name in aerobee.spark.__all__)
