# SPDX-License-Identifier: Apache-2.0
"""The client without `async`: `import aerobee.blocking as aerobee`."""

from aerobee.client.blocking import *  # noqa: F403
from aerobee.client.blocking import __all__ as __all__
