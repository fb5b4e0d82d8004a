# SPDX-License-Identifier: Apache-2.0
"""Spark imports every top-level `pyspark_*` module once and registers its DefaultSource: that is all this is for."""

from aerobee.spark.source import RocketMQSource as DefaultSource

__all__ = ["DefaultSource"]
