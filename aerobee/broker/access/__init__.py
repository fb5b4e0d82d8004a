# SPDX-License-Identifier: Apache-2.0
"""Who may do what: users, their policies, and the decisions that follow from them. Pure; gates ask it."""
