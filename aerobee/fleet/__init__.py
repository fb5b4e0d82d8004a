# SPDX-License-Identifier: Apache-2.0
"""Several broker processes of one machine under one name server: RocketMQ's own way to use more cores."""
