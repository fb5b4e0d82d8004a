# SPDX-License-Identifier: Apache-2.0
"""Every request of every port as a peer puts it on the wire, and every field of its answer.

Nothing of `aerobee` makes the frames here: what both sides of our own codec would get wrong alike is seen. An exchange
is one request code, or one gRPC call, from asking to answer; the tables of exchanges are held against those of routes.
"""
