# SPDX-License-Identifier: Apache-2.0
"""One file a page: it asks the cluster, and names the template that shows the answers."""
