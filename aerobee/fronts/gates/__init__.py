# SPDX-License-Identifier: Apache-2.0
"""What every request passes before it is worked on, whichever port it came by: a file each, listed in `table.py`."""
