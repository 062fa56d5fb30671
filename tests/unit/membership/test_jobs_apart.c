/* SPDX-License-Identifier: Apache-2.0 */
/* Members that cannot be joined with each other: as few as can be are left out. */
#include "jobs_fixture.h"
#include "people.h"
#include "support/suite.h"

#define ALL    0xfffu
#define SETTLE (300 * NS_PER_MS)
#define SOON   (60 * NS_PER_MS) /* a few ways there and back */

static struct jobs_fixture fixture;
static struct control_socket *const members = fixture.members;

static int open_many(void **state)
{
    jobs_fixture_open(&fixture, FIXTURE_MEMBERS_MAX, 1);
    jobs_fixture_view(&fixture, 0xf, 0, ALL, true);
    jobs_fixture_run(&fixture, SOON);
    return 0;
}

static int close_jobs_fixture(void **state)
{
    jobs_fixture_close(&fixture);
    return 0;
}

/* Requests for the job; bits of `apart`: whom it could not be joined with. */
static void request(int control, int min, unsigned apart)
{
    struct identity ids[JOB_UNREACHED_MAX];
    int count = 0;

    for (int i = 0; i < fixture.size && count < JOB_UNREACHED_MAX; i++)
        if (apart >> i & 1)
            ids[count++] = person(i).id;
    assert_int_equal(jobs_fixture_request(&fixture, control, "train", min, "v=1"), HEARTH_OK);
    jobs_unreached(members[control].jobs, "train", ids, count, fixture.now_ns);
}

TEST_WITH(of_a_pair_the_one_that_came_later_is_left_out, open_many, close_jobs_fixture)
{
    request(0, 2, 0);
    request(1, 2, 1u << 2); /* one of the two has noticed: that is enough */
    request(2, 2, 0);
    request(3, 2, 0);
    jobs_fixture_run(&fixture, SETTLE + SOON);
    jobs_fixture_assert_group(&fixture, 0xb);
    assert_string_equal(jobs_fixture_why_not(&fixture, 2, "train"),
                        "it runs with 3 members, without node-2, which could not be joined with node-1, and "
                        "takes new ones when it forms again");
    for (int i = 0; i < 4; i++) /* its group could only leave it out again */
        assert_int_equal(members[i].wanted_count, 0);
    jobs_fixture_run(&fixture, 601 * NS_PER_S);
    for (int i = 0; i < 4; i++)
        assert_int_equal(members[i].wanted_count, i != 2);
}

TEST_WITH(who_is_apart_from_several_is_left_out_alone, open_many, close_jobs_fixture)
{
    request(0, 2, 0xe); /* the most senior */
    request(1, 2, 0);
    request(2, 2, 1);
    request(3, 2, 0);
    jobs_fixture_run(&fixture, SETTLE + SOON);
    jobs_fixture_assert_group(&fixture, 0xe);
}

TEST_WITH(it_is_not_formed_with_too_few, open_many, close_jobs_fixture)
{
    for (int i = 0; i < 4; i++)
        request(i, 4, i == 3 ? 1u << 1 : 0);
    jobs_fixture_run(&fixture, 3 * NS_PER_S);
    jobs_fixture_assert_group(&fixture, 0);
    assert_string_equal(jobs_fixture_why_not(&fixture, 0, "train"),
                        "4 are there, but 3 of 4 without node-3, which could not be joined with node-1");
    jobs_unreached(members[3].jobs, "train", NULL, 0, fixture.now_ns); /* there is a way again */
    jobs_fixture_run(&fixture, SOON);
    jobs_fixture_assert_group(&fixture, 0xf);
}

/* Against all subsets: never more than needed, and no pair stays. */
TEST_WITH(as_few_as_can_be, open_many, close_jobs_fixture)
{
    for (uint64_t seed = 1; seed <= 40; seed++) {
        unsigned apart[FIXTURE_MEMBERS_MAX] = {0}, in = 0;
        int size = 4 + (int)(seed % 6), fewest = size;
        struct prng draws;

        prng_init(&draws, seed);
        jobs_fixture_close(&fixture);
        jobs_fixture_open(&fixture, size, seed);
        jobs_fixture_view(&fixture, (1u << size) - 1, (int)(seed % (uint64_t)size), ALL, true);
        for (int pairs = (int)prng_below(&draws, 8); pairs > 0; pairs--) {
            int a = (int)prng_below(&draws, (uint64_t)size), b = (int)prng_below(&draws, (uint64_t)size);
            apart[a] |= a != b ? 1u << b : 0;
        }
        for (unsigned out = 0; out < 1u << size; out++) {
            bool good = true;
            for (int i = 0; i < size; i++)
                good &= out >> i & 1 || (apart[i] & ~out) == 0;
            fewest = good && __builtin_popcount(out) < fewest ? __builtin_popcount(out) : fewest;
        }
        for (int i = 0; i < size; i++)
            request(i, 1, apart[i]);
        jobs_fixture_run(&fixture, SETTLE + SOON);
        for (int i = 0; i < size; i++)
            in |= members[i].group.id != 0 ? 1u << i : 0;
        for (int i = 0; i < size; i++)
            assert_true(!(in >> i & 1) || (apart[i] & in) == 0);
        assert_int_equal(__builtin_popcount(in), size - fewest);
        jobs_fixture_assert_group(&fixture, in);
    }
}
