/* SPDX-License-Identifier: Apache-2.0 */
/* Draws gradients, opens compressors. */
#include "conform/gradients.h"

#include <stdlib.h>
#include <string.h>

size_t kind_count(const struct kind *kind)
{
    size_t count = 1;
    for (int i = 0; i < kind->ndim; i++)
        count *= kind->dims[i];
    return count;
}

static void put_number(enum hearth_dtype dtype, void *data, size_t at, float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    if (dtype == HEARTH_F32)
        ((float *)data)[at] = x;
    else if (dtype == HEARTH_F64)
        ((double *)data)[at] = (double)x;
    else if (dtype == HEARTH_BF16)
        ((uint16_t *)data)[at] = (uint16_t)(bits >> 16);
    else /* f16: 1 to 2, all of them */
        ((uint16_t *)data)[at] = (uint16_t)(0x3c00 | (bits >> 13 & 0x3ff));
}

void fill(const struct kind *kind, void *data, int rank, int step)
{
    size_t count = kind_count(kind);
    uint64_t seed = hash_bytes(kind->name, strlen(kind->name)) + (uint64_t)rank * 1000 + (uint64_t)step;
    for (size_t i = 0; i < count; i++) {
        float x = (float)(int32_t)draw(&seed) / 2147483648.0F;
        put_number(kind->dtype, data, i, x * x * x);
    }
}

struct hearth_tensor tensor_of(const struct kind *kind, void *data)
{
    return (struct hearth_tensor){
        sizeof(struct hearth_tensor), kind->name, data, kind->dtype, kind->ndim, kind->dims};
}

hearth_compressor *open_compressor(hearth_group *group, const char *codec, uint64_t warmup, uint64_t ramp)
{
    struct hearth_compressor_config config;
    hearth_compressor *compressor = NULL;
    hearth_compressor_config_init(&config);
    config.codec = codec;
    config.warmup_steps = warmup;
    config.ramp_steps = ramp;
    check_ok(hearth_compressor_open(group, &config, &compressor));
    return compressor;
}

void *save(hearth_compressor *compressor, size_t *len)
{
    int64_t needed = hearth_compressor_save(compressor, NULL, 0);
    if (!check(needed > 0, "save: %s", hearth_error_text()))
        needed = 1;
    *len = (size_t)needed;
    uint8_t *bytes = must_alloc(*len);
    check(hearth_compressor_save(compressor, bytes, *len) == needed, "save again: %s", hearth_error_text());
    return bytes;
}

struct hearth_compressor_stats stats_of(hearth_compressor *compressor, const char *name)
{
    struct hearth_compressor_stats stats = {.size = sizeof stats};
    check_ok(hearth_compressor_stats(compressor, name, &stats));
    return stats;
}
