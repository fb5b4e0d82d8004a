# SPDX-License-Identifier: Apache-2.0
"""Records as stored to Arrow columns."""
