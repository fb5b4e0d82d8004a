# SPDX-License-Identifier: Apache-2.0
"""Reading: push, pull and POP, from the division of queues to the user's code and back to the broker."""
