# SPDX-License-Identifier: Apache-2.0
"""The properties text of a message: what the store takes out of it, and whether it is an ordinary one."""

from libc.stdint cimport uint8_t

from aerobee.native.memory cimport Span

cdef enum:
    MOST_WORDS = 16


cdef struct Named:
    Span tag
    Span unique
    Span keys
    bint ends_well  # with the 0x02 that some clients leave out
    bint is_ascii
    int key_count  # words of `keys`


cdef class Texts:
    cdef list _kept  # the bytes of all spans below
    cdef readonly bytes unique_name
    cdef Span _tags, _unique, _keys
    cdef Span _endings[MOST_WORDS]
    cdef int _ending_count
    cdef bint _ends_so[256]  # whether one of them has that last byte
    cdef Span _words[MOST_WORDS]
    cdef int _word_count

    cdef Span _keep(self, str text)
    cdef bint read(self, Span text, Named* named) noexcept
    cdef Span* _wanted(self, const uint8_t* name, const uint8_t* end, Named* named) noexcept
    cdef bint _is_special_name(self, const uint8_t* name, const uint8_t* end) noexcept


cdef bint next_word(Span* rest, Span* word) noexcept
