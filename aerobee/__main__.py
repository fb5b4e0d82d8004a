# SPDX-License-Identifier: Apache-2.0
from aerobee.cli.entry import main

main()
