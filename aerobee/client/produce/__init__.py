# SPDX-License-Identifier: Apache-2.0
"""Sending: from a user's message to a broker's answer."""
