# SPDX-License-Identifier: Apache-2.0
"""From options to Arrow batches: which offsets, which ranges, which executor, and the reading itself."""
