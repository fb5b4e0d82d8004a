/* SPDX-License-Identifier: Apache-2.0
 *
 * Where the marks 0x01 and 0x02 of a text are, sixteen bytes a step where the processor can.
 */
#include <stddef.h>
#include <stdint.h>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

enum { MARKS_AT_ONCE = 16 };

/* A bit for each of the next sixteen bytes from `at` on, as far as the text goes: whether it is a mark. `others` is no more 0
 * when one is not ASCII. */
static inline uint32_t marks_from(const uint8_t *text, size_t at, size_t size, int *others) {
    size_t left = size - at, place;
    uint32_t found = 0;
#if defined(__SSE2__)
    if (size >= MARKS_AT_ONCE) {
        /* The last step reads back into the one before, never past the end. */
        size_t back = left < MARKS_AT_ONCE ? MARKS_AT_ONCE - left : 0;
        __m128i bytes = _mm_loadu_si128((const __m128i *)(text + at - back));
        __m128i is_mark = _mm_or_si128(_mm_cmpeq_epi8(bytes, _mm_set1_epi8(1)), _mm_cmpeq_epi8(bytes, _mm_set1_epi8(2)));
        *others |= _mm_movemask_epi8(bytes);
        return (uint32_t)_mm_movemask_epi8(is_mark) >> back;
    }
#endif
    for (place = 0; place < left && place < MARKS_AT_ONCE; place++) {
        *others |= text[at + place] & 0x80;
        if (text[at + place] == 1 || text[at + place] == 2) found |= 1u << place;
    }
    return found;
}

/* The place of the lowest bit of a number that is not 0. */
static inline int lowest(uint32_t bits) {
#if defined(__GNUC__) || defined(__clang__)
    return __builtin_ctz(bits);
#else
    int place = 0;
    for (; !(bits & 1); bits >>= 1) place++;
    return place;
#endif
}
