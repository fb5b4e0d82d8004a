# SPDX-License-Identifier: Apache-2.0
"""For producers beside a Spark session: where both cores are busy, three seconds may pass before a server is asked."""

from aerobee import ProducerOptions

PATIENT = ProducerOptions(send_timeout_ms=60_000)
