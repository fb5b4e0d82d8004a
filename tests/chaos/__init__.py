# SPDX-License-Identifier: Apache-2.0
"""A broker under mixed load that is killed, or whose power is cut, again and again; what it acknowledged must be there.

load.py      everything clients and operators do, over the wire
ledger.py    what was acknowledged, and what was asked without an answer
verify.py    asks a broker that came back for all of it
process.py   `aerobee serve` in a process of its own, ended by kill -9
disk.py      what a disk would hold if the power went now: only bytes and names that were synced
rounds.py    puts them together; `python -m tests.chaos --help`
"""
