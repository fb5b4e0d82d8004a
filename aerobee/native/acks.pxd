# SPDX-License-Identifier: Apache-2.0
"""The receipt of a popped message."""

from libc.stdint cimport int64_t

from aerobee.native.memory cimport Span

cdef enum:
    NUMBERS = 4  # a receipt begins with: start offset, pop time, invisible time, revive queue


cdef bint read_receipt(Span text, int64_t* numbers) noexcept
