/* SPDX-License-Identifier: Apache-2.0 */
/* The vault keeps what it is given out of core dumps and of forked children, and wipes it. */
#include <sys/wait.h>
#include <unistd.h>

#include "dumped.h"
#include "folder.h"
#include "security/vault.h"
#include "support/suite.h"

#define LEN 10000 /* several pages */

#if defined(__linux__) && !defined(HEARTH_POSIX)
static const bool has_madvise = true;
#else
static const bool has_madvise = false;
#endif

static void skip_without_madvise(void)
{
    if (has_madvise)
        return;
    print_message("skipped: POSIX has no such promise\n");
    skip();
}

TEST(memory_is_zero_and_aligned)
{
    static const size_t lens[] = {0, 1, 64, 4032, 4033, LEN};

    for (size_t i = 0; i < sizeof lens / sizeof lens[0]; i++) {
        uint8_t *memory = vault_alloc(lens[i]);
        assert_non_null(memory);
        assert_int_equal((uintptr_t)memory % 64, 0);
        for (size_t k = 0; k < lens[i]; k++)
            assert_int_equal(memory[k], 0);
        memset(memory, 0xab, lens[i]);
        vault_free(memory);
    }
    vault_free(NULL);
}

TEST(what_is_too_much_is_refused)
{
    assert_null(vault_alloc(SIZE_MAX));
    assert_null(vault_alloc(SIZE_MAX - 64));
    assert_null(vault_alloc(SIZE_MAX / 2));
}

TEST(core_dumps_leave_it_out)
{
    uint8_t *memory;

    skip_without_madvise();
    memory = vault_alloc(LEN);
    assert_true(page_has_flag(memory, "dd"));
    assert_true(page_has_flag(memory + LEN - 1, "dd"));
    assert_false(page_has_flag(state, "dd")); /* the test can tell */
    vault_free(memory);
}

static int read_and_free(void *arg)
{
    uint8_t *memory = arg;

    for (size_t i = 0; i < LEN; i++)
        if (memory[i] != 0)
            return 1;
    vault_free(memory); /* closing what was inherited does no harm */
    return 0;
}

TEST(forked_children_read_zeros)
{
    uint8_t *memory;

    skip_without_madvise();
    memory = vault_alloc(LEN);
    assert_true(page_has_flag(memory, "wf"));
    memset(memory, 0xab, LEN);
    assert_int_equal(child_run(read_and_free, memory), 0);
    assert_int_equal(memory[LEN - 1], 0xab);
    vault_free(memory);
}

TEST(wipe_leaves_nothing)
{
    uint8_t memory[100];

    memset(memory, 0xab, sizeof memory);
    wipe(memory + 1, sizeof memory - 2);
    for (size_t i = 1; i < sizeof memory - 1; i++)
        assert_int_equal(memory[i], 0);
    assert_true(memory[0] == 0xab && memory[99] == 0xab);
    wipe(memory, 0);
    wipe_stack();
}
