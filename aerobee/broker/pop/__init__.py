# SPDX-License-Identifier: Apache-2.0
"""POP: leases of what was handed out, ordered groups, modes, held pops. `pops.py` is the door."""
