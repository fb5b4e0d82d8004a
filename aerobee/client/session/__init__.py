# SPDX-License-Identifier: Apache-2.0
"""What producers and consumers of one client share: connections, routes, heartbeats, background work."""
