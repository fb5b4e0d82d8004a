# SPDX-License-Identifier: Apache-2.0
import os

# Before grpc is imported: its C core else writes a line to standard error for whatever a stranger sends.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
