/* SPDX-License-Identifier: Apache-2.0
 *
 * CRC-32 by carry-less multiplication, sixteen bytes a step, where the processor can.
 *
 * The bytes are a polynomial over GF(2), the first bit the highest power; a CRC is its remainder modulo P. A block X of
 * 128 bits that is followed by n more bits stands for X * x^n, and X = H * x^64 + L, so it may be replaced by
 * H * (x^(n+64) mod P) + L * (x^n mod P), which is n bits further on and again no longer than 128 bits: it is added to
 * the block there ("folded"). Bytes after the last whole block: as many from the front of the sum are folded by one block,
 * the rest moves up. What is left at the end is one block, whose remainder is the CRC.
 *
 * Bits are reflected: bit i of a 64-bit word is the coefficient of x^(63-i). The product of two such words has one power
 * of x more than it should, so the constants have one less: x^(n+63) and x^(n-1).
 */
#include <stddef.h>
#include <stdint.h>

#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
#include <immintrin.h>

enum { REFLECTED = 33 }; /* bits of P and of its inverse: x^32 first */

static uint64_t fold_by_one[2], fold_by_four[2], fold_down[2], whole[2];

/* x^n mod P as a reflected word. */
static uint64_t power_of_x(int n) {
    uint64_t value = 1, word = 0;
    for (; n; n--) {
        value <<= 1;
        if (value >> 32) value ^= 0x104C11DB7;
    }
    for (int bit = 0; bit < 32; bit++)
        if (value >> bit & 1) word |= 1ull << (63 - bit);
    return word;
}

/* P, and the whole part of x^64 / P, with their highest power in the lowest bit. */
static void make_whole(void) {
    uint64_t rest = 0, quotient = 0;
    for (int power = 64; power >= 0; power--) {
        rest = rest << 1 | (power == 64);
        quotient <<= 1;
        if (rest >> 32) rest ^= 0x104C11DB7, quotient |= 1;
    }
    whole[0] = whole[1] = 0;
    for (int bit = 0; bit < REFLECTED; bit++) {
        whole[0] |= (quotient >> bit & 1) << (REFLECTED - 1 - bit);
        whole[1] |= (0x104C11DB7ull >> bit & 1) << (REFLECTED - 1 - bit);
    }
}

static int folding_works(void) {
    make_whole();
    fold_down[0] = power_of_x(96 - 1), fold_down[1] = power_of_x(64 - 1);
    fold_by_one[0] = power_of_x(128 + 63), fold_by_one[1] = power_of_x(128 - 1);
    fold_by_four[0] = power_of_x(512 + 63), fold_by_four[1] = power_of_x(512 - 1);
    return __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1");
}

#define FOLDING __attribute__((target("pclmul,sse4.1")))

FOLDING static inline __m128i moved_on(__m128i block, __m128i by) {
    /* The low word comes first, so it has the higher powers: H. */
    return _mm_xor_si128(_mm_clmulepi64_si128(block, by, 0x00), _mm_clmulepi64_si128(block, by, 0x11));
}

FOLDING static inline __m128i block_at(const uint8_t *data) { return _mm_loadu_si128((const __m128i *)data); }

/* For pshufb: sixteen bytes of it from 16 - n on move a block n bytes towards its end, from 16 + n on towards its start. */
static const uint8_t moves[48] = {
    128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128,
    0,   1,   2,   3,   4,   5,   6,   7,   8,   9,   10,  11,  12,  13,  14,  15,
    128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128,
};

/* block * x^32 mod P. First to 96 bits, then to 64; then Barrett's way: the top 32 of them times the inverse say how many
 * times P is in it. */
FOLDING static inline uint32_t remainder_of(__m128i block) {
    const __m128i down = _mm_set_epi64x((long long)fold_down[1], (long long)fold_down[0]);
    const __m128i by = _mm_set_epi64x((long long)whole[1], (long long)whole[0]);
    const __m128i half = _mm_set_epi64x(0, 0xFFFFFFFFll);
    block = _mm_xor_si128(_mm_clmulepi64_si128(block, down, 0x00), _mm_slli_si128(_mm_srli_si128(block, 8), 4));
    block = _mm_srli_si128(_mm_xor_si128(_mm_clmulepi64_si128(block, down, 0x10), block), 8);
    __m128i times = _mm_and_si128(_mm_clmulepi64_si128(_mm_and_si128(block, half), by, 0x00), half);
    return (uint32_t)_mm_extract_epi32(_mm_xor_si128(_mm_clmulepi64_si128(times, by, 0x10), block), 1);
}

/* The CRC of `data`, at least sixteen bytes; `crc` is the state before them. Neither is inverted. */
FOLDING static uint32_t fold(uint32_t crc, const uint8_t *data, size_t size) {
    const uint8_t *end = data + size;
    const __m128i by_one = _mm_set_epi64x((long long)fold_by_one[1], (long long)fold_by_one[0]);
    __m128i sum = _mm_xor_si128(block_at(data), _mm_cvtsi32_si128((int)crc));
    data += 16;
    if (end - data >= 112) {
        const __m128i by_four = _mm_set_epi64x((long long)fold_by_four[1], (long long)fold_by_four[0]);
        __m128i second = block_at(data), third = block_at(data + 16), fourth = block_at(data + 32);
        for (data += 48; end - data >= 64; data += 64) {
            sum = _mm_xor_si128(moved_on(sum, by_four), block_at(data));
            second = _mm_xor_si128(moved_on(second, by_four), block_at(data + 16));
            third = _mm_xor_si128(moved_on(third, by_four), block_at(data + 32));
            fourth = _mm_xor_si128(moved_on(fourth, by_four), block_at(data + 48));
        }
        sum = _mm_xor_si128(moved_on(sum, by_one), second);
        sum = _mm_xor_si128(moved_on(sum, by_one), third);
        sum = _mm_xor_si128(moved_on(sum, by_one), fourth);
    }
    for (; end - data >= 16; data += 16) sum = _mm_xor_si128(moved_on(sum, by_one), block_at(data));
    if (data != end) {
        const __m128i to_start = block_at(moves + 16 + (end - data));
        const __m128i rest = _mm_blendv_epi8(_mm_shuffle_epi8(sum, to_start), block_at(end - 16), to_start);
        sum = _mm_xor_si128(moved_on(_mm_shuffle_epi8(sum, block_at(moves + (end - data))), by_one), rest);
    }
    return remainder_of(sum);
}

#else

static int folding_works(void) { return 0; }

static uint32_t fold(uint32_t crc, const uint8_t *data, size_t size) {
    (void)data, (void)size;
    return crc;
}

#endif
