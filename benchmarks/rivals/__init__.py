# SPDX-License-Identifier: Apache-2.0
"""Aerobee's Python client on Aerobee beside what one would pick instead, each with the client its users use."""
