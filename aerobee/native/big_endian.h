/* SPDX-License-Identifier: Apache-2.0
 *
 * Big-endian numbers in memory: one load or store and a swap where the compiler knows how, else byte by byte.
 */
#ifndef AEROBEE_BIG_ENDIAN_H
#define AEROBEE_BIG_ENDIAN_H

#include <stdint.h>
#include <string.h>

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__

static inline uint16_t get16(const uint8_t *p) {
    uint16_t value;
    memcpy(&value, p, 2);
    return __builtin_bswap16(value);
}

static inline uint32_t get32(const uint8_t *p) {
    uint32_t value;
    memcpy(&value, p, 4);
    return __builtin_bswap32(value);
}

static inline uint64_t get64(const uint8_t *p) {
    uint64_t value;
    memcpy(&value, p, 8);
    return __builtin_bswap64(value);
}

static inline uint8_t *put16(uint8_t *p, uint32_t value) {
    uint16_t swapped = __builtin_bswap16((uint16_t)value);
    memcpy(p, &swapped, 2);
    return p + 2;
}

static inline uint8_t *put32(uint8_t *p, uint32_t value) {
    value = __builtin_bswap32(value);
    memcpy(p, &value, 4);
    return p + 4;
}

static inline uint8_t *put64(uint8_t *p, uint64_t value) {
    value = __builtin_bswap64(value);
    memcpy(p, &value, 8);
    return p + 8;
}

#else

static inline uint16_t get16(const uint8_t *p) { return (uint16_t)(p[0] << 8 | p[1]); }

static inline uint32_t get32(const uint8_t *p) { return (uint32_t)get16(p) << 16 | get16(p + 2); }

static inline uint64_t get64(const uint8_t *p) { return (uint64_t)get32(p) << 32 | get32(p + 4); }

static inline uint8_t *put16(uint8_t *p, uint32_t value) {
    p[0] = (uint8_t)(value >> 8), p[1] = (uint8_t)value;
    return p + 2;
}

static inline uint8_t *put32(uint8_t *p, uint32_t value) { return put16(put16(p, value >> 16), value); }

static inline uint8_t *put64(uint8_t *p, uint64_t value) {
    return put32(put32(p, (uint32_t)(value >> 32)), (uint32_t)value);
}

#endif
#endif
