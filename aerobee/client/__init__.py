# SPDX-License-Identifier: Apache-2.0
"""What applications use: producers, consumers and the admin client, on Aerobee and on Apache RocketMQ alike."""
