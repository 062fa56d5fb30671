/* SPDX-License-Identifier: Apache-2.0 */
/* A package from a stranger, with the checksum made right so that what lies behind it is reached: it is
 * refused, or fills the target with finite numbers and nothing beyond it. The first byte says how many
 * elements and of which type the reader expects (0: as many as the package says, if they are few). */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "compress/package.h"
#include "core/bytes.h"
#include "core/crc32c.h"
#include "kernel/kernel.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len);

#define HEADER_LEN 56
#define COUNT_MAX  8192

/* A user's codec, "raw", that takes f32 as they come: the library must find those that are not finite. */
static size_t raw_bound(void *arg, const struct hearth_codec_call *call)
{
    (void)arg;
    return call->count * sizeof(float);
}

static int raw_encode(void *arg, const struct hearth_codec_call *call, const float *values, void *bytes,
                      size_t size, size_t *len)
{
    (void)arg;
    (void)call;
    *len = size;
    memcpy(bytes, values, size);
    return 0;
}

static int raw_decode(void *arg, const struct hearth_codec_call *call, const void *bytes, size_t len,
                      float *values)
{
    if (len > raw_bound(arg, call))
        abort();
    memcpy(values, bytes, len);
    return len % sizeof(float) == 0 ? 0 : -1;
}

static void raw_register(void)
{
    struct hearth_codec_functions raw;

    hearth_codec_functions_init(&raw);
    raw.bound = raw_bound;
    raw.encode = raw_encode;
    raw.decode = raw_decode;
    if (hearth_codec_register("raw", &raw))
        abort();
}

/* Whether the package is of codec none: that one carries anything. */
static bool is_raw(const uint8_t *package)
{
    return package[3] == CODEC_NONE;
}

static bool all_finite(const void *x, size_t count, enum hearth_dtype dtype)
{
    if (dtype != HEARTH_F32)
        return true; /* narrower types may round to infinity */
    for (size_t i = 0; i < count; i++)
        if (!isfinite(((const float *)x)[i]))
            return false;
    return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    struct heap heap;
    struct error error;

    raw_register();
    if (len < 1 + HEADER_LEN)
        return 0;
    size_t package_len = len - 1;
    uint8_t *package = malloc(package_len);
    if (!package)
        return 0;
    memcpy(package, bytes + 1, package_len);
    store_u32(package + 52, crc32c(crc32c(0, package, 52), package + HEADER_LEN, package_len - HEADER_LEN));
    enum hearth_dtype dtype = (enum hearth_dtype)(bytes[0] ? bytes[0] % 4 : package[5] % 4);
    uint64_t said = load_u64(package + 32);
    size_t count = bytes[0] ? bytes[0] : said > COUNT_MAX ? COUNT_MAX : (size_t)said;
    void *target = calloc(count ? count : 1, dtype_size(dtype));
    if (target) {
        struct package_out out = {target, count, dtype};
        heap_init(&heap, 0);
        int status = package_decode(&heap, package, package_len, &out, &error);
        if (heap.blocks != 0 || (!status && !is_raw(package) && !all_finite(target, count, dtype)))
            abort();
    }
    free(target);
    free(package);
    return 0;
}
