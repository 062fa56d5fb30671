/* SPDX-License-Identifier: Apache-2.0 */
/* The results of all kernels over a fixed set of numbers, as hashes: the same for every set, compiler and
 * processor, for ever. Prints them for comparison between machines. */
#include <inttypes.h>

#include "cases.h"
#include "support/suite.h"

#define COUNT 10007

static const struct kernels *sets[CASE_SETS_MAX];
static int set_count;

struct golden {
    const char *name;
    uint64_t hash;
};

static const struct golden goldens[] = {
    {"reduce.f32.sum", UINT64_C(0xa0872121fd738bc1)},  {"reduce.f32.prod", UINT64_C(0x7e651c3ebd47c83d)},
    {"reduce.f32.min", UINT64_C(0xfbb86a2faade012d)},  {"reduce.f32.max", UINT64_C(0x5c35990121ccff17)},
    {"reduce.f64.sum", UINT64_C(0xb844f43fc6e2aba5)},  {"reduce.f64.prod", UINT64_C(0xaeeb5205f0423396)},
    {"reduce.f64.min", UINT64_C(0xf781ee67f056afe8)},  {"reduce.f64.max", UINT64_C(0x3cfb5054aecf41d1)},
    {"reduce.f16.sum", UINT64_C(0xb043cfd39e7e658d)},  {"reduce.f16.prod", UINT64_C(0xa79f7312a322228f)},
    {"reduce.f16.min", UINT64_C(0x4ae2f991fb8ced4a)},  {"reduce.f16.max", UINT64_C(0xe94b82a4068e49ce)},
    {"reduce.bf16.sum", UINT64_C(0x79ef0085681fcd97)}, {"reduce.bf16.prod", UINT64_C(0xfc83361957d3b503)},
    {"reduce.bf16.min", UINT64_C(0x2e6d332715266f1a)}, {"reduce.bf16.max", UINT64_C(0xc8e29d7def5fec51)},
    {"reduce.i8.sum", UINT64_C(0xaa180e83123bb666)},   {"reduce.i8.prod", UINT64_C(0xf47e9ee2bea1e2e5)},
    {"reduce.i8.min", UINT64_C(0x4275b50b12b69cc4)},   {"reduce.i8.max", UINT64_C(0x3713578181adcd65)},
    {"reduce.i8.band", UINT64_C(0xee9af2598b746379)},  {"reduce.i8.bor", UINT64_C(0x296c0acef0e4cdd4)},
    {"reduce.i8.bxor", UINT64_C(0xd785ac3c1bca31a6)},  {"reduce.i32.sum", UINT64_C(0xf3a72dde164266c3)},
    {"reduce.i32.prod", UINT64_C(0xcf830778bd65b43b)}, {"reduce.i32.min", UINT64_C(0x8ec50d7bd604b52d)},
    {"reduce.i32.max", UINT64_C(0xaf0dc18cc675b248)},  {"reduce.i32.band", UINT64_C(0x7e67c01b425d2df7)},
    {"reduce.i32.bor", UINT64_C(0x9f7eb6845d0ee592)},  {"reduce.i32.bxor", UINT64_C(0xbcf8ce1241a465c4)},
    {"reduce.i64.sum", UINT64_C(0x38febc1042f1820a)},  {"reduce.i64.prod", UINT64_C(0xb477f69efbbbeb6e)},
    {"reduce.i64.min", UINT64_C(0xeb4485301b963280)},  {"reduce.i64.max", UINT64_C(0x65e6c9155b7137e2)},
    {"reduce.i64.band", UINT64_C(0x762452e181a2e3d4)}, {"reduce.i64.bor", UINT64_C(0x4de9faf1dd6844ce)},
    {"reduce.i64.bxor", UINT64_C(0x27a3993aedb46357)}, {"reduce.u8.sum", UINT64_C(0x727e9f15e3ab97e4)},
    {"reduce.u8.prod", UINT64_C(0x07e0feabaf7fc813)},  {"reduce.u8.min", UINT64_C(0x15c8248f3d04c770)},
    {"reduce.u8.max", UINT64_C(0x87f78f17eabb622f)},   {"reduce.u8.band", UINT64_C(0xeeb33a61fefa0c8d)},
    {"reduce.u8.bor", UINT64_C(0x2093ddbfc1bf8242)},   {"reduce.u8.bxor", UINT64_C(0xc61592a126f6df60)},
    {"reduce.u32.sum", UINT64_C(0xffb8c28dc5faa664)},  {"reduce.u32.prod", UINT64_C(0xf43f45c275b04117)},
    {"reduce.u32.min", UINT64_C(0x377c7de40f2266a1)},  {"reduce.u32.max", UINT64_C(0x7a4ecb96d7b08448)},
    {"reduce.u32.band", UINT64_C(0x0cc67be95871d48f)}, {"reduce.u32.bor", UINT64_C(0xb3fc3681be26c676)},
    {"reduce.u32.bxor", UINT64_C(0x756512f343b4ac78)}, {"reduce.u64.sum", UINT64_C(0x889de540afc374d7)},
    {"reduce.u64.prod", UINT64_C(0xe816fb811e1406cf)}, {"reduce.u64.min", UINT64_C(0x3eef64286a9c47d3)},
    {"reduce.u64.max", UINT64_C(0x2de12bf6aad23105)},  {"reduce.u64.band", UINT64_C(0x308dbe1fa83e26a2)},
    {"reduce.u64.bor", UINT64_C(0x49f8e8941a7a82e0)},  {"reduce.u64.bxor", UINT64_C(0x8716bdade5977c33)},
    {"widen.f32", UINT64_C(0x79cdb608c82c2312)},       {"narrow.f32", UINT64_C(0x92b005ff6d31ca54)},
    {"widen.f64", UINT64_C(0x12318082cc1b5ed8)},       {"narrow.f64", UINT64_C(0x854e469e05a01b9f)},
    {"widen.f16", UINT64_C(0xeca18d66a3c7b91f)},       {"narrow.f16", UINT64_C(0x1f7e2664728299e2)},
    {"widen.bf16", UINT64_C(0x3b19d5769d6b061b)},      {"narrow.bf16", UINT64_C(0x7417af0c705cb579)},
    {"widen.i8", UINT64_C(0x0e445934afc6bf08)},        {"narrow.i8", UINT64_C(0xdd74c291affdfc66)},
    {"widen.i32", UINT64_C(0xf919247418726b67)},       {"narrow.i32", UINT64_C(0x1fc32e3f78257e79)},
    {"widen.i64", UINT64_C(0xd9d8bdc2ea2f853a)},       {"narrow.i64", UINT64_C(0xa1aad54981ada3fa)},
    {"widen.u8", UINT64_C(0x8c292775921c22f1)},        {"narrow.u8", UINT64_C(0x5973a677a01766bf)},
    {"widen.u32", UINT64_C(0x69e8a6658ea914d8)},       {"narrow.u32", UINT64_C(0x6220e2aacb536373)},
    {"widen.u64", UINT64_C(0x1e3d1bf0d8d7645b)},       {"narrow.u64", UINT64_C(0xfdda4eaf96ca591a)},
    {"multiply.f32", UINT64_C(0x9699328c87dc2df2)},    {"multiply.f64", UINT64_C(0x10d1999309589ec9)},
    {"divide.f32", UINT64_C(0x0da7d6c0d6f28373)},      {"divide.f64", UINT64_C(0x44c68a7c5419ed7e)},
};

#define GOLDENS (sizeof(goldens) / sizeof(goldens[0]))

static uint64_t fnv1a(const void *bytes, size_t len)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (size_t i = 0; i < len; i++)
        hash = (hash ^ ((const unsigned char *)bytes)[i]) * UINT64_C(0x100000001b3);
    return hash;
}

/* Printed once, by the best set; compared for all. */
static void check(const struct kernels *set, const char *name, const void *bytes, size_t len)
{
    uint64_t hash = fnv1a(bytes, len);
    if (set == kernels_best())
        printf("hash %s %016" PRIx64 "\n", name, hash);
    for (size_t i = 0; i < GOLDENS; i++)
        if (strcmp(goldens[i].name, name) == 0 && goldens[i].hash == hash)
            return;
    fail_msg("%s: %s gave %016" PRIx64, set->name, name, hash);
}

static uint64_t acc[COUNT], source[COUNT], target[COUNT];
static char name[64];

TEST(reduce)
{
    static const char *const ops[KERNEL_OPS] = {"sum", "prod", "min", "max", "band", "bor", "bxor"};
    for (int d = 0; d < DTYPE_COUNT; d++)
        for (int op = 0; op < cases_ops(d); op++) {
            uint64_t seed = (uint64_t)d;
            enum hearth_dtype dtype = (enum hearth_dtype)d;
            cases_fill(&seed, dtype, acc, COUNT);
            cases_fill(&seed, dtype, source, COUNT);
            snprintf(name, sizeof name, "reduce.%s.%s", hearth_dtype_name(dtype), ops[op]);
            for (int s = 0; s < set_count; s++) {
                memcpy(target, acc, sizeof target);
                sets[s]->reduce(dtype, op, target, target, source, COUNT);
                check(sets[s], name, target, COUNT * dtype_size(dtype));
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
            snprintf(name, sizeof name, "widen.%s", hearth_dtype_name(dtype));
            sets[s]->widen(dtype, target, acc, COUNT);
            check(sets[s], name, target, COUNT * dtype_size(wide));
            snprintf(name, sizeof name, "narrow.%s", hearth_dtype_name(dtype));
            sets[s]->narrow(dtype, target, source, COUNT);
            check(sets[s], name, target, COUNT * dtype_size(dtype));
        }
    }
}

static void check_scale(const struct kernels *set, scale_fn *scale, const char *what, enum hearth_dtype dtype)
{
    uint64_t seed = (uint64_t)dtype;
    cases_fill(&seed, dtype, target, COUNT);
    scale(dtype, target, COUNT, 0.3);
    check(set, what, target, COUNT * dtype_size(dtype));
}

TEST(scale)
{
    for (int s = 0; s < set_count; s++) {
        check_scale(sets[s], sets[s]->multiply, "multiply.f32", HEARTH_F32);
        check_scale(sets[s], sets[s]->multiply, "multiply.f64", HEARTH_F64);
        check_scale(sets[s], sets[s]->divide, "divide.f32", HEARTH_F32);
        check_scale(sets[s], sets[s]->divide, "divide.f64", HEARTH_F64);
    }
}

int main(void)
{
    set_count = cases_sets(sets);
    return suite_run();
}
