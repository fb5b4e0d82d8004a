# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3
"""Properties are `name 0x01 value 0x02`, repeated. One walk finds tag, unique key and keys, and whether there is anything
that Python must look at: a word that changes a message's way, or a 0x01 where none belongs."""

from libc.stdint cimport uint8_t, uint32_t
from libc.string cimport memchr, memcmp, memset

from aerobee.native.memory cimport Span, span_of

cdef extern from "marks.h" nogil:
    enum:
        MARKS_AT_ONCE
    uint32_t marks_from(const uint8_t* text, size_t at, size_t size, int* others)
    int lowest(uint32_t bits)


cdef class Texts:
    """`special` are the words that make a message special wherever they stand in its text; one that ends with 0x01 is the
    end of a name. `tags`, `unique` and `keys` are the names of the properties looked for."""

    def __cinit__(self, special, str tags not None, str unique not None, str keys not None):
        cdef Span ending
        self._kept = []
        self._tags, self._unique, self._keys = self._keep(tags), self._keep(unique), self._keep(keys)
        self.unique_name = unique.encode()
        self._ending_count = self._word_count = 0
        memset(self._ends_so, 0, sizeof(self._ends_so))
        for word in special:
            if len(word) < 2 or self._ending_count == MOST_WORDS or self._word_count == MOST_WORDS:
                raise ValueError(f"cannot look for {word!r}, or for so many words")
            if word[-1] == "\x01":
                ending = self._endings[self._ending_count] = self._keep(word[:-1])
                self._ends_so[ending.at[ending.size - 1]] = True
                self._ending_count += 1
            else:
                self._words[self._word_count] = self._keep(word)
                self._word_count += 1

    cdef Span _keep(self, str text):
        cdef bytes data = text.encode()
        self._kept.append(data)
        return span_of(data)

    cdef bint read(self, Span text, Named* named) noexcept:
        """Whether the text is ordinary; then `named` says what is in it. Of a name that is there twice the first counts."""
        cdef const uint8_t* end = text.at + text.size
        cdef const uint8_t* name = text.at
        cdef const uint8_t* value = NULL  # where the value under way began; NULL within a name
        cdef const uint8_t* mark
        cdef Span* wanted = NULL
        cdef Py_ssize_t at = 0
        cdef uint32_t marks
        cdef int word, others = 0
        named.tag.at = named.unique.at = named.keys.at = NULL
        named.tag.size = named.unique.size = named.keys.size = 0
        named.key_count = 0
        named.ends_well = text.size > 0 and end[-1] == 2
        while at < text.size:
            marks = marks_from(text.at, at, text.size, &others)
            while marks:
                mark = text.at + at + lowest(marks)
                marks &= marks - 1
                if mark[0] == 1:
                    if value != NULL or self._is_special_name(name, mark):
                        return False
                    value, wanted = mark + 1, self._wanted(name, mark, named)
                else:
                    _end_value(wanted, value, mark)
                    name, value, wanted = mark + 1, NULL, NULL
            at += MARKS_AT_ONCE
        _end_value(wanted, value, end)
        for word in range(self._word_count):
            if _is_in(self._words[word], text):
                return False
        _count_words(named)
        named.is_ascii = not others
        return True

    cdef bint _is_special_name(self, const uint8_t* name, const uint8_t* end) noexcept:
        cdef int word
        cdef Span* ending
        if name == end or not self._ends_so[end[-1]]:
            return False
        for word in range(self._ending_count):
            ending = &self._endings[word]
            if end[-1] != ending.at[ending.size - 1] or end - name < ending.size:
                continue
            if memcmp(end - ending.size, ending.at, ending.size) == 0:
                return True
        return False

    cdef Span* _wanted(self, const uint8_t* name, const uint8_t* end, Named* named) noexcept:
        """Where the value of that name goes; NULL when it is none of ours, or had one."""
        cdef Span* found = NULL
        if _is(self._tags, name, end):
            found = &named.tag
        elif _is(self._unique, name, end):
            found = &named.unique
        elif _is(self._keys, name, end):
            found = &named.keys
        return found if found != NULL and found.at == NULL else NULL


cdef void _end_value(Span* wanted, const uint8_t* value, const uint8_t* end) noexcept:
    if wanted != NULL:
        wanted.at, wanted.size = value, end - value


cdef bint _is(Span name, const uint8_t* at, const uint8_t* end) noexcept:
    return end - at == name.size and at[0] == name.at[0] and memcmp(at, name.at, name.size) == 0


cdef bint _is_in(Span word, Span text) noexcept:
    """Looked for by its last letter, which is rarer in texts than the first."""
    cdef const uint8_t* end = text.at + text.size
    cdef const uint8_t* p
    if text.size < word.size:
        return False
    p = text.at + word.size - 1
    while p < end:
        p = <const uint8_t*>memchr(p, word.at[word.size - 1], end - p)
        if p == NULL:
            return False
        p += 1
        if p[-word.size] == word.at[0] and memcmp(p - word.size, word.at, word.size) == 0:
            return True
    return False


cdef void _count_words(Named* named) noexcept:
    cdef Span rest = named.keys, word
    while next_word(&rest, &word):
        named.key_count += 1


cdef bint next_word(Span* rest, Span* word) noexcept:
    """The next word of those between blanks; False when there is none."""
    while rest.size and rest.at[0] == c" ":
        rest.at += 1
        rest.size -= 1
    word.at, word.size = rest.at, 0
    while rest.size and rest.at[0] != c" ":
        rest.at += 1
        rest.size -= 1
        word.size += 1
    return word.size > 0


# -- for tests ------------------------------------------------------------------------------------------------------


def read(Texts texts not None, bytes data not None):
    """Tag, unique key, keys as (text, words), whether it ends well; None when the text is not ordinary."""
    cdef Named named
    if not texts.read(span_of(data), &named):
        return None
    found = (_text(named.tag), _text(named.unique), _text(named.keys))
    return (*found, named.key_count, named.ends_well)


cdef object _text(Span span):
    return None if span.at == NULL else span.at[:span.size].decode(errors="replace")
