# SPDX-License-Identifier: Apache-2.0
"""Where a message goes next: its first place, redelivery, who it is for, how much at once, when it is kept."""
