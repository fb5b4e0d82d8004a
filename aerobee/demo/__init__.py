# SPDX-License-Identifier: Apache-2.0
"""The story `aerobee demo` tells: an online shop, three groups with three ways to consume, and proof by Spark."""
