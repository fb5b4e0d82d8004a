# SPDX-License-Identifier: Apache-2.0
"""Ready pipelines over topics: `consume`, `lake`, `ledger`, `report`, `replay`. Each is a function on DataFrames and a
command, `aerobee pipeline NAME`."""
