/* SPDX-License-Identifier: Apache-2.0 */
/* Jobs while members come and go, leaders change and the network does what it likes; then it heals, and all
 * that wish for the same are together. A seed that fails is printed: set FIRST_SEED to it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "office.h"

#define FIRST_SEED 1
#define SEEDS      250
#define STEPS      60
#define JOBS       3
#define PAST_MAX   4096

static const char *const names[JOBS] = {"red", "green", "blue"};
static const int mins[JOBS] = {2, 3, 1};

/* What the owner of a member did last about a job, and what it was told. */
struct part {
    bool wishes;
    uint64_t formation; /* 0: none */
    bool over;
    uint64_t lost; /* ranks that it has heard of */
};

static struct office office;
static struct part parts[DESKS_MAX][JOBS];
static struct formation past[PAST_MAX]; /* every formation that anybody was told of */
static int past_count;
static uint64_t seed;
static bool quorum; /* in the census that was told last; its leader is always told */

static void broken(const char *what, int desk)
{
    fail_msg("seed %d, at %d ms: %s (desk %d)", (int)seed,
             (int)((office.now_ns - 1000 * NS_PER_S) / NS_PER_MS), what, desk);
}

static void check_formation(const struct formation *f, int desk, const struct part *part, int job)
{
    struct formation same = *f;
    int i = 0;

    if (!part->wishes)
        broken("formed without a wish", desk);
    if (f->size < mins[job])
        broken("formed with too few", desk);
    if (office_desk_of(&f->members[f->rank]) != desk)
        broken("another one's rank", desk);
    same.rank = 0;
    while (i < past_count && past[i].id != f->id)
        i++;
    if (i == PAST_MAX)
        broken("too many formations for the test", desk);
    if (i == past_count) {
        past[past_count++] = same;
        if (!quorum && f->epoch == office.census.epoch)
            broken("formed without quorum", desk);
    } else if (memcmp(&past[i], &same, sizeof(same)) != 0) {
        broken("one formation, two lists", desk);
    }
}

static void hear(struct office *o, int desk, const struct job_news *news)
{
    int job = 0;

    (void)o;
    while (job < JOBS && strcmp(names[job], news->job) != 0)
        job++;
    struct part *part = job < JOBS ? &parts[desk][job] : NULL;
    if (!part)
        broken("an unknown job", desk);
    else if (news->kind == JOB_FORMED) {
        if (part->formation != 0 || strcmp(news->formation->job, names[job]) != 0)
            broken("in two formations of a job", desk);
        check_formation(news->formation, desk, part, job);
        *part = (struct part){.formation = news->id};
    } else if (news->kind == JOB_ENDED) {
        if (part->formation != news->id || (part->over && news->lost == 0) || (part->lost & news->lost) != 0)
            broken("the end of what it is not in", desk);
        part->over = true;
        part->lost |= news->lost;
    } else if (news->kind == JOB_REFUSED) {
        broken("refused", desk);
    }
}

/* ---- What happens ---- */

static int drawn(int limit)
{
    return (int)prng_below(&office.draws, (uint64_t)limit);
}

static bool lives(int desk)
{
    return office.desks[desk].alive;
}

static void wish(int desk, int job)
{
    struct part *part = &parts[desk][job];

    if (!lives(desk) || part->wishes || (part->formation != 0 && !part->over))
        return;
    if (part->formation != 0 && drawn(2)) /* either way is right */
        jobs_end(office.desks[desk].jobs, part->formation, office.now_ns);
    if (office_wish(&office, desk, names[job], mins[job], "v=1") != HEARTH_OK)
        broken("may not wish", desk);
    *part = (struct part){.wishes = true};
}

static void let_go(int desk, int job)
{
    struct part *part = &parts[desk][job];

    if (!lives(desk))
        return;
    if (part->wishes)
        jobs_unwish(office.desks[desk].jobs, names[job], office.now_ns);
    else if (part->formation != 0)
        jobs_end(office.desks[desk].jobs, part->formation, office.now_ns);
    *part = (struct part){0};
}

static unsigned alive(void)
{
    unsigned set = 0;

    for (int i = 0; i < office.size; i++)
        set |= lives(i) ? 1u << i : 0;
    return set;
}

/* Another census, with a leader that lives; some learn of it late. */
static void change(void)
{
    unsigned members = 0, told = 0;
    int leader;

    for (int i = 0; i < office.size; i++)
        if (lives(i) && !office.cut[i] && drawn(8) > 0)
            members |= 1u << i;
    for (int i = 0; i < office.size; i++)
        if (drawn(4) > 0)
            told |= 1u << i;
    if (members == 0)
        return;
    leader = drawn(office.size);
    if (drawn(3) > 0) /* mostly the one that leads */
        leader = office_desk_of(&office.census.members[office.census.leader].id);
    while (!(members >> leader & 1))
        leader = (leader + 1) % office.size;
    quorum = drawn(6) > 0;
    office_census(&office, members, leader, told | 1u << leader, quorum);
}

static void step(void)
{
    int desk = drawn(office.size), job = drawn(JOBS);

    switch (drawn(10)) {
    case 0:
    case 1:
        change();
        break;
    case 2:
        office.cut[desk] = !office.cut[desk];
        break;
    case 3:
        if (drawn(8) == 0 && __builtin_popcount(alive()) > 3) {
            office_crash(&office, desk);
            memset(parts[desk], 0, sizeof(parts[desk]));
        }
        break;
    case 4:
        let_go(desk, job);
        break;
    default:
        wish(desk, job);
        break;
    }
}

/* ---- When all is well again ---- */

/* Everybody that was told of an end, or of none, agrees with everybody else in its formation. */
static void check_ends(unsigned members)
{
    for (int d = 0; d < office.size; d++)
        for (int j = 0; j < JOBS; j++) {
            const struct part *part = &parts[d][j];
            if (!(members >> d & 1) || part->formation == 0 || part->over)
                continue;
            int i = 0;
            while (past[i].id != part->formation)
                i++;
            for (int r = 0; r < past[i].size; r++) {
                int other = office_desk_of(&past[i].members[r]);
                if (!(members >> other & 1) || parts[other][j].formation != part->formation ||
                    parts[other][j].over)
                    broken("does not know that it is over", d);
            }
        }
}

static void check_together(unsigned members, int job)
{
    uint64_t id = 0;

    for (int d = 0; d < office.size; d++) {
        if (!(members >> d & 1))
            continue;
        if (parts[d][job].formation == 0 || parts[d][job].over)
            broken("is not in a formation at the end", d);
        if (id != 0 && parts[d][job].formation != id)
            broken("is in another formation than the rest", d);
        id = parts[d][job].formation;
    }
}

static void play(uint64_t with)
{
    seed = with;
    memset(parts, 0, sizeof(parts));
    past_count = 0;
    quorum = true;
    office_open(&office, 3 + (int)(seed % 6), seed);
    office.news = hear;
    office.lose_percent = drawn(3) * 15;
    office.double_percent = drawn(3) * 15;
    office.delay_ns = (uint64_t)drawn(3) * 150 * NS_PER_MS;
    office_census(&office, alive(), 0, alive(), true);
    for (int i = 0; i < STEPS; i++) {
        step();
        office_run(&office, (uint64_t)drawn(drawn(4) == 0 ? 900 : 40) * NS_PER_MS);
    }
    /* It heals, but letters are still lost. */
    unsigned members = alive();
    memset(office.cut, 0, sizeof(office.cut));
    int leader = drawn(office.size);
    while (!(members >> leader & 1))
        leader = (leader + 1) % office.size;
    quorum = true;
    office_census(&office, members, leader, members, true);
    office_run(&office, 8 * NS_PER_S);
    check_ends(members);
    /* All let go of everything and wish again, but for one job, which nobody wishes for any more. With a
     * network that loses a wish for longer than the others wait, somebody may be late: no more of that. */
    office.lose_percent = 0;
    office.delay_ns = 0;
    office_run(&office, NS_PER_S);
    for (int d = 0; d < office.size; d++)
        for (int j = 0; j < JOBS; j++) {
            let_go(d, j);
            if (j < JOBS - 1)
                wish(d, j);
        }
    office_run(&office, 12 * NS_PER_S);
    for (int round = 0; round < 3; round++) { /* those who were still called to something older */
        for (int d = 0; d < office.size; d++)
            for (int j = 0; j < JOBS - 1; j++)
                if (parts[d][j].over)
                    wish(d, j);
        office_run(&office, 8 * NS_PER_S);
    }
    for (int j = 0; j < JOBS - 1; j++)
        if (__builtin_popcount(members) >= mins[j])
            check_together(members, j);
    office_close(&office);
}

static void seeds_keep_the_rules(void **state)
{
    int formations = 0;

    (void)state;
    for (uint64_t s = FIRST_SEED; s < FIRST_SEED + SEEDS; s++) {
        play(s);
        formations += past_count;
    }
    assert_true(formations > SEEDS * 4); /* it was not all idle */
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(seeds_keep_the_rules)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
