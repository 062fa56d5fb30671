/* SPDX-License-Identifier: Apache-2.0 */
/* Buffers that repeat a short block: quick to fill with any type, quick to check to the last byte. */
#include "cli/bench/pattern.h"

#include <string.h>

#include "kernel/kernel.h"

/* The kernels narrow from f32 to f32, f16 and bf16, and from f64 to all others. */
void pattern_encode(enum hearth_dtype dtype, double value, void *element)
{
    const struct kernels *scalar = kernels_named("scalar");
    float single = (float)value;
    bool from_single = dtype == HEARTH_F32 || dtype == HEARTH_F16 || dtype == HEARTH_BF16;
    scalar->narrow[dtype](element, from_single ? (const void *)&single : (const void *)&value, 1);
}

/* What is there is copied behind itself: the distance doubles, so the copies are few and long. */
void pattern_fill(void *buffer, size_t len, const void *block, size_t block_len)
{
    uint8_t *bytes = buffer;
    size_t done = len < block_len ? len : block_len;
    memcpy(bytes, block, done);
    while (done < len) {
        size_t more = done < len - done ? done : len - done;
        memcpy(bytes + done, bytes, more);
        done += more;
    }
}

/* A buffer is periodic if it equals itself one period later. */
bool pattern_holds(const void *buffer, size_t len, const void *block, size_t block_len)
{
    const uint8_t *bytes = buffer;
    if (len <= block_len)
        return memcmp(bytes, block, len) == 0;
    return memcmp(bytes, block, block_len) == 0 && memcmp(bytes, bytes + block_len, len - block_len) == 0;
}
