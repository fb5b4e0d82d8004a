# SPDX-License-Identifier: Apache-2.0
from aerobee.cli.main import main

main()
