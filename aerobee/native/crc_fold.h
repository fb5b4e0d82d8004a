/* SPDX-License-Identifier: Apache-2.0
 *
 * CRC-32 by carry-less multiplication, sixteen bytes a step, where the processor can.
 *
 * The bytes are a polynomial over GF(2), the first bit the highest power; a CRC is its remainder modulo P. A block X of
 * 128 bits that is followed by n more bits stands for X * x^n, and X = H * x^64 + L, so it may be replaced by
 * H * (x^(n+64) mod P) + L * (x^n mod P), which is n bits further on and again no longer than 128 bits: it is added to
 * the block there ("folded"). What is left at the end is one block, which a table takes like any other sixteen bytes.
 *
 * Bits are reflected: bit i of a 64-bit word is the coefficient of x^(63-i). The product of two such words has one power
 * of x more than it should, so the constants have one less: x^(n+63) and x^(n-1).
 */
#include <stddef.h>
#include <stdint.h>

#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
#include <immintrin.h>

static uint64_t fold_by_one[2], fold_by_four[2];

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

static int folding_works(void) {
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

/* Folds the whole blocks of `data`, at least one, into `block`; returns how many bytes that were. `crc` is the state before
 * them, not inverted any more. */
FOLDING static size_t fold(uint32_t crc, const uint8_t *data, size_t size, uint8_t block[16]) {
    const uint8_t *start = data, *end = data + size;
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
    _mm_storeu_si128((__m128i *)block, sum);
    return (size_t)(data - start);
}

#else

static int folding_works(void) { return 0; }

static size_t fold(uint32_t crc, const uint8_t *data, size_t size, uint8_t block[16]) {
    (void)crc, (void)data, (void)size, (void)block;
    return 0;
}

#endif
