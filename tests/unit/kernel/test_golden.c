/* SPDX-License-Identifier: Apache-2.0 */
/* The results of all kernels over a fixed set of numbers, as hashes: the same for every set, compiler and
 * processor, for ever. Prints them for comparison between machines. */
#include <inttypes.h>

#include "cases.h"
#include "support/suite.h"

#define COUNT 10007

/* [type][operation], in the order of their numbers. */
static const uint64_t reduced[DTYPE_COUNT][KERNEL_OPS] = {
    [HEARTH_F32] = {0xa0872121fd738bc1, 0x7e651c3ebd47c83d, 0xfbb86a2faade012d, 0x5c35990121ccff17},
    [HEARTH_F64] = {0xb844f43fc6e2aba5, 0xaeeb5205f0423396, 0xf781ee67f056afe8, 0x3cfb5054aecf41d1},
    [HEARTH_F16] = {0xb043cfd39e7e658d, 0xa79f7312a322228f, 0x4ae2f991fb8ced4a, 0xe94b82a4068e49ce},
    [HEARTH_BF16] = {0x79ef0085681fcd97, 0xfc83361957d3b503, 0x2e6d332715266f1a, 0xc8e29d7def5fec51},
    [HEARTH_I8] = {0xaa180e83123bb666, 0xf47e9ee2bea1e2e5, 0x4275b50b12b69cc4, 0x3713578181adcd65,
                   0xee9af2598b746379, 0x296c0acef0e4cdd4, 0xd785ac3c1bca31a6},
    [HEARTH_I32] = {0xf3a72dde164266c3, 0xcf830778bd65b43b, 0x8ec50d7bd604b52d, 0xaf0dc18cc675b248,
                    0x7e67c01b425d2df7, 0x9f7eb6845d0ee592, 0xbcf8ce1241a465c4},
    [HEARTH_I64] = {0x38febc1042f1820a, 0xb477f69efbbbeb6e, 0xeb4485301b963280, 0x65e6c9155b7137e2,
                    0x762452e181a2e3d4, 0x4de9faf1dd6844ce, 0x27a3993aedb46357},
    [HEARTH_U8] = {0x727e9f15e3ab97e4, 0x07e0feabaf7fc813, 0x15c8248f3d04c770, 0x87f78f17eabb622f,
                   0xeeb33a61fefa0c8d, 0x2093ddbfc1bf8242, 0xc61592a126f6df60},
    [HEARTH_U32] = {0xffb8c28dc5faa664, 0xf43f45c275b04117, 0x377c7de40f2266a1, 0x7a4ecb96d7b08448,
                    0x0cc67be95871d48f, 0xb3fc3681be26c676, 0x756512f343b4ac78},
    [HEARTH_U64] = {0x889de540afc374d7, 0xe816fb811e1406cf, 0x3eef64286a9c47d3, 0x2de12bf6aad23105,
                    0x308dbe1fa83e26a2, 0x49f8e8941a7a82e0, 0x8716bdade5977c33},
};

static const uint64_t widened[DTYPE_COUNT] = {
    0x79cdb608c82c2312, 0x12318082cc1b5ed8, 0xeca18d66a3c7b91f, 0x3b19d5769d6b061b, 0x0e445934afc6bf08,
    0xf919247418726b67, 0xd9d8bdc2ea2f853a, 0x8c292775921c22f1, 0x69e8a6658ea914d8, 0x1e3d1bf0d8d7645b};

static const uint64_t narrowed[DTYPE_COUNT] = {
    0x92b005ff6d31ca54, 0x854e469e05a01b9f, 0x1f7e2664728299e2, 0x7417af0c705cb579, 0xdd74c291affdfc66,
    0x1fc32e3f78257e79, 0xa1aad54981ada3fa, 0x5973a677a01766bf, 0x6220e2aacb536373, 0xfdda4eaf96ca591a};

static const uint64_t multiplied[] = {[HEARTH_F32] = 0x9699328c87dc2df2, [HEARTH_F64] = 0x10d1999309589ec9};
static const uint64_t divided[] = {[HEARTH_F32] = 0x0da7d6c0d6f28373, [HEARTH_F64] = 0x44c68a7c5419ed7e};

static uint64_t fnv1a(const void *bytes, size_t len)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (size_t i = 0; i < len; i++)
        hash = (hash ^ ((const unsigned char *)bytes)[i]) * UINT64_C(0x100000001b3);
    return hash;
}

static uint64_t acc[COUNT], source[COUNT], target[COUNT];

/* Printed once, by the best set; compared for all. `op`: "" or with a dot in front. */
static void check(const struct kernels *set, const char *kernel, enum hearth_dtype dtype, const char *op,
                  size_t size, uint64_t golden)
{
    uint64_t hash = fnv1a(target, COUNT * size);
    const char *type = hearth_dtype_name(dtype);
    if (set == kernels_best())
        printf("hash %s.%s%s %016" PRIx64 "\n", kernel, type, op, hash);
    if (hash != golden)
        fail_msg("%s: %s.%s%s gave %016" PRIx64, set->name, kernel, type, op, hash);
}

TEST(reduce)
{
    static const char *const ops[KERNEL_OPS] = {".sum", ".prod", ".min", ".max", ".band", ".bor", ".bxor"};
    for (int d = 0; d < DTYPE_COUNT; d++)
        for (int op = 0; op < cases_ops(d); op++) {
            uint64_t seed = (uint64_t)d;
            enum hearth_dtype dtype = (enum hearth_dtype)d;
            cases_fill(&seed, dtype, acc, COUNT);
            cases_fill(&seed, dtype, source, COUNT);
            for (int s = 0; s < set_count; s++) {
                memcpy(target, acc, sizeof target);
                sets[s]->reduce(dtype, op, target, target, source, COUNT);
                check(sets[s], "reduce", dtype, ops[op], dtype_size(dtype), reduced[d][op]);
            }
        }
}

TEST(convert)
{
    for (int d = 0; d < DTYPE_COUNT; d++) {
        uint64_t seed = (uint64_t)d;
        enum hearth_dtype dtype = (enum hearth_dtype)d, wide = cases_wide(dtype);
        cases_fill(&seed, dtype, acc, COUNT);
        cases_fill(&seed, wide, source, COUNT);
        for (int s = 0; s < set_count; s++) {
            sets[s]->widen(dtype, target, acc, COUNT);
            check(sets[s], "widen", dtype, "", dtype_size(wide), widened[d]);
            sets[s]->narrow(dtype, target, source, COUNT);
            check(sets[s], "narrow", dtype, "", dtype_size(dtype), narrowed[d]);
        }
    }
}

TEST(scale)
{
    for (int s = 0; s < set_count; s++)
        for (int d = HEARTH_F32; d <= HEARTH_F64; d++)
            for (int divides = 0; divides < 2; divides++) {
                uint64_t seed = (uint64_t)d;
                enum hearth_dtype dtype = (enum hearth_dtype)d;
                cases_fill(&seed, dtype, target, COUNT);
                (divides ? sets[s]->divide : sets[s]->multiply)(dtype, target, COUNT, 0.3);
                check(sets[s], divides ? "divide" : "multiply", dtype, "", dtype_size(dtype),
                      divides ? divided[d] : multiplied[d]);
            }
}
