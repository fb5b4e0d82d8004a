# SPDX-License-Identifier: Apache-2.0
"""The web console: pages over the admin client, so it shows any cluster, Apache's too."""
