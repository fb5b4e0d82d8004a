# SPDX-License-Identifier: Apache-2.0
"""Arrow batches to topics, and failed rows back to their group."""
