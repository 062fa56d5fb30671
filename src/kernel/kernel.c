/* SPDX-License-Identifier: Apache-2.0 */
/* The choice between the sets of kernels, and the identities of the operations. */
#include "kernel/kernel.h"

#include <assert.h>
#include <stdatomic.h>
#include <string.h>

#include "kernel/sets.h"

/* Best first. */
static const struct kernels *const all_sets[] = {
#if defined(__x86_64__)
    &kernels_avx2,
#elif defined(__aarch64__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    &kernels_neon,
#endif
    &kernels_scalar,
};

#define SET_COUNT (sizeof(all_sets) / sizeof(all_sets[0]))

static bool set_runs(const struct kernels *set)
{
    return strcmp(set->name, "avx2") != 0 || cpu_has_avx2();
}

const struct kernels *kernels_best(void)
{
    /* Threads that come at once find the same answer. The sets are constant, so no order is needed. */
    static const struct kernels *_Atomic best;
    const struct kernels *set = atomic_load_explicit(&best, memory_order_relaxed);
    if (set)
        return set;
    for (size_t i = 0; !set; i++)
        if (set_runs(all_sets[i]))
            set = all_sets[i];
    atomic_store_explicit(&best, set, memory_order_relaxed);
    return set;
}

const struct kernels *kernels_named(const char *name)
{
    for (size_t i = 0; i < SET_COUNT; i++)
        if (strcmp(all_sets[i]->name, name) == 0 && set_runs(all_sets[i]))
            return all_sets[i];
    return NULL;
}

/* The bits of one element, for KERNEL_SUM, PROD, MIN, MAX, AND, OR, XOR. */
static const uint64_t identity_bits[DTYPE_COUNT][KERNEL_OPS] = {
    [HEARTH_F32] = {0, 0x3f800000, 0x7f800000, 0xff800000},
    [HEARTH_F64] = {0, 0x3ff0000000000000, 0x7ff0000000000000, 0xfff0000000000000},
    [HEARTH_F16] = {0, 0x3c00, 0x7c00, 0xfc00},
    [HEARTH_BF16] = {0, 0x3f80, 0x7f80, 0xff80},
    [HEARTH_I8] = {0, 1, 0x7f, 0x80, UINT8_MAX, 0, 0},
    [HEARTH_I32] = {0, 1, INT32_MAX, 0x80000000, UINT32_MAX, 0, 0},
    [HEARTH_I64] = {0, 1, INT64_MAX, 0x8000000000000000, UINT64_MAX, 0, 0},
    [HEARTH_U8] = {0, 1, UINT8_MAX, 0, UINT8_MAX, 0, 0},
    [HEARTH_U32] = {0, 1, UINT32_MAX, 0, UINT32_MAX, 0, 0},
    [HEARTH_U64] = {0, 1, UINT64_MAX, 0, UINT64_MAX, 0, 0},
};

void kernel_identity(enum hearth_dtype dtype, int op, void *target, size_t count)
{
    assert((unsigned int)dtype < DTYPE_COUNT && op >= 0 && op < KERNEL_OPS);
    size_t size = dtype_size(dtype);
    char *t = target;
    if (count == 0)
        return;
    memcpy(t, &identity_bits[dtype][op], size); /* the low bytes: little endian, as everywhere here */
    for (size_t done = 1, more; done < count; done += more) {
        more = done < count - done ? done : count - done;
        memcpy(t + done * size, t, more * size);
    }
}
