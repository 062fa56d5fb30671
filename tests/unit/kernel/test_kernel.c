/* SPDX-License-Identifier: Apache-2.0 */
/* The choice of a set, whole tables, and identities. */
#include <pthread.h>

#include "cases.h"
#include "support/suite.h"

static void *ask(void *answer)
{
    *(const struct kernels **)answer = kernels_best();
    return NULL;
}

/* Comes first, so that the threads are the first to ask. */
TEST(all_threads_get_the_same)
{
    enum { THREADS = 8 };
    pthread_t threads[THREADS];
    const struct kernels *answers[THREADS] = {0};
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, ask, &answers[i]), 0);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    for (int i = 0; i < THREADS; i++)
        assert_true(answers[i] && answers[i] == answers[0]);
}

TEST(the_best_is_the_last_there_is)
{
    assert_ptr_equal(kernels_best(), sets[set_count - 1]);
    assert_ptr_equal(kernels_named(kernels_best()->name), kernels_best());
    assert_string_equal(sets[0]->name, "scalar");
    assert_null(kernels_named("avx"));
    assert_null(kernels_named(""));
}

TEST(no_slot_is_empty)
{
    for (int s = 0; s < set_count; s++) {
        assert_true(sets[s]->reduce && sets[s]->widen && sets[s]->narrow);
        assert_true(sets[s]->multiply && sets[s]->divide);
        assert_true(sets[s]->copy_far && sets[s]->stream && sets[s]->stream_end);
        assert_true(sets[s]->quant && sets[s]->sift && sets[s]->matrix);
    }
}

static bool is_nan(enum hearth_dtype dtype, uint64_t bits)
{
    static const uint64_t infinity[] = {0x7f800000, UINT64_C(0x7ff0000000000000), 0x7c00, 0x7f80};
    return dtype <= HEARTH_BF16 && (bits & (UINT64_MAX >> (65 - 8 * dtype_size(dtype)))) > infinity[dtype];
}

/* x op identity is x, but for -0 + 0 and NaN, which becomes canonical. */
TEST(identities_change_nothing)
{
    enum { COUNT = 501 };
    static uint64_t x[COUNT], acc[COUNT];
    uint64_t seed = 10;
    for (int d = 0; d < DTYPE_COUNT; d++) {
        enum hearth_dtype dtype = (enum hearth_dtype)d;
        size_t size = dtype_size(dtype);
        cases_fill(&seed, dtype, x, COUNT);
        for (int op = 0; op < cases_ops(d); op++) {
            kernel_identity(dtype, op, acc, COUNT);
            kernels_best()->reduce(dtype, op, acc, acc, x, COUNT);
            for (size_t i = 0; i < COUNT; i++) {
                uint64_t before = 0, after = 0;
                memcpy(&before, (char *)x + i * size, size);
                memcpy(&after, (char *)acc + i * size, size);
                bool minus_zero = d <= HEARTH_BF16 && before == UINT64_C(1) << (8 * size - 1);
                if (is_nan(dtype, before))
                    assert_true(is_nan(dtype, after));
                else if (op == KERNEL_SUM && minus_zero)
                    assert_true(after == 0);
                else
                    assert_true(after == before);
            }
        }
    }
}

TEST(identities_fill_exactly)
{
    unsigned char bytes[80];
    for (int d = 0; d < DTYPE_COUNT; d++)
        for (size_t count = 0; count <= 8; count++) {
            size_t len = count * dtype_size((enum hearth_dtype)d);
            memset(bytes, 0xa5, sizeof bytes);
            kernel_identity((enum hearth_dtype)d, KERNEL_SUM, bytes + 3, count);
            for (size_t i = 0; i < sizeof bytes; i++)
                assert_int_equal(bytes[i], i >= 3 && i < 3 + len ? 0 : 0xa5);
        }
}

TEST(identities_by_hand)
{
    static const struct {
        enum hearth_dtype dtype;
        int op;
        uint64_t bits;
    } rows[] = {
        {HEARTH_F32, KERNEL_MIN, 0x7f800000}, {HEARTH_F16, KERNEL_MAX, 0xfc00},
        {HEARTH_BF16, KERNEL_PROD, 0x3f80},   {HEARTH_I8, KERNEL_MAX, 0x80},
        {HEARTH_U64, KERNEL_MIN, UINT64_MAX}, {HEARTH_I32, KERNEL_AND, UINT32_MAX},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        uint64_t bits = 0;
        kernel_identity(rows[i].dtype, rows[i].op, &bits, 1);
        assert_true(bits == rows[i].bits);
    }
}
