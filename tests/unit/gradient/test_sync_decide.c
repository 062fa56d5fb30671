/* SPDX-License-Identifier: Apache-2.0 */
/* What becomes of a step when its group is followed by another: the rules one by one, and then a model of
 * members that run through everything that can be heard or lost, with the function that the library uses. */
#include "core/hash.h"
#include "gradient/sync_decide.h"
#include "support/suite.h"
#include "support/watchdog.h"

/* ---- the rules ---- */

enum { PJ = SYNC_PRESENT | SYNC_JOINED, PJR = PJ | SYNC_PREPARED };

static void expect(const struct sync_record *records, int size, const enum sync_verdict *wanted)
{
    struct sync_decision d = sync_decide(records, size);
    for (int i = 0; i < size; i++)
        if (sync_verdict(&d, &records[i]) != wanted[i])
            fail_msg("member %d: verdict %d, not %d", i, sync_verdict(&d, &records[i]), wanted[i]);
}

TEST(test_all_prepared_commit)
{
    expect((struct sync_record[]){{PJR, 5, 1, 77, 3}, {PJR, 5, 1, 77, 3}}, 2,
           (enum sync_verdict[]){SYNC_COMMIT, SYNC_COMMIT});
    /* a member without a sync, one far behind, and one of the step before do not matter */
    expect((struct sync_record[]){{PJR, 5, 1, 77, 3}, {0}, {PJ, 2, 9, 0, 2}, {PJ, 4, 8, 0, 3}}, 4,
           (enum sync_verdict[]){SYNC_COMMIT, SYNC_BEHIND, SYNC_BEHIND, SYNC_BEHIND});
}

TEST(test_one_open_aborts)
{
    expect((struct sync_record[]){{PJR, 5, 1, 77, 3}, {PJ, 5, 1, 0, 3}}, 2,
           (enum sync_verdict[]){SYNC_CONTINUE, SYNC_CONTINUE});
    expect((struct sync_record[]){{PJ, 5, 1, 0, 3}, {PJR, 5, 1, 77, 3}}, 2,
           (enum sync_verdict[]){SYNC_CONTINUE, SYNC_CONTINUE});
    /* it has heard of a later decision: so was the abort */
    expect((struct sync_record[]){{PJR, 5, 1, 77, 3}, {PJ, 5, 1, 0, 4}}, 2,
           (enum sync_verdict[]){SYNC_CONTINUE, SYNC_CONTINUE});
}

TEST(test_prepared_in_another_attempt)
{
    expect((struct sync_record[]){{PJR, 5, 1, 77, 3}, {PJR, 5, 1, 88, 4}}, 2,
           (enum sync_verdict[]){SYNC_BEHIND, SYNC_COMMIT});
    expect((struct sync_record[]){{PJR, 5, 1, 77, 3}, {PJ, 5, 1, 0, 2}}, 2,
           (enum sync_verdict[]){SYNC_COMMIT, SYNC_BEHIND});
}

TEST(test_others_have_committed)
{
    uint64_t after = sync_lineage(1, 5, 77);
    expect((struct sync_record[]){{PJ, 6, after, 0, 3}, {PJR, 5, 1, 77, 3}, {PJR, 5, 1, 76, 3}}, 3,
           (enum sync_verdict[]){SYNC_CONTINUE, SYNC_COMMIT_TAKEN, SYNC_BEHIND});
    expect((struct sync_record[]){{PJ, 7, after, 0, 3}, {PJR, 5, 1, 77, 3}}, 2,
           (enum sync_verdict[]){SYNC_CONTINUE, SYNC_BEHIND});
}

TEST(test_who_has_not_joined_does_not_count)
{
    expect((struct sync_record[]){{SYNC_PRESENT, 9, 4, 0, 8}, {PJ, 5, 1, 0, 3}, {PJ, 5, 1, 0, 3}}, 3,
           (enum sync_verdict[]){SYNC_BEHIND, SYNC_CONTINUE, SYNC_CONTINUE});
    expect((struct sync_record[]){{SYNC_PRESENT, 0, 0, 0, 0}, {SYNC_PRESENT, 0, 0, 0, 0}}, 2,
           (enum sync_verdict[]){SYNC_CONTINUE, SYNC_CONTINUE});
    expect((struct sync_record[]){{SYNC_PRESENT, 2, 7, 0, 1}, {SYNC_PRESENT, 0, 0, 0, 0}}, 2,
           (enum sync_verdict[]){SYNC_CONTINUE, SYNC_BEHIND});
}

TEST(test_of_two_lineages_the_later)
{
    expect((struct sync_record[]){{PJ, 5, 1, 0, 3}, {PJ, 5, 2, 0, 9}, {PJ, 5, 2, 0, 9}}, 3,
           (enum sync_verdict[]){SYNC_BEHIND, SYNC_CONTINUE, SYNC_CONTINUE});
}

/* ---- a model ---- */

#define MEMBERS 4
#define STEPS   7
#define VISITED (1u << 22)
#define BIT(i)  (1u << (i))

struct actor {
    struct sync_record record;
    uint64_t promised;   /* round: it will decide in no earlier one */
    bool committed;      /* the group has decided for what it has prepared */
    uint8_t took[STEPS]; /* which attempt of each step it made use of; 0: none */
};

struct model {
    struct actor actor[MEMBERS];
    uint32_t group; /* a live one, or 0 */
    uint32_t id;    /* of the last group */
    uint32_t last;  /* members of the last one in which all have decided, live or not */
    uint32_t none;  /* so that all bytes are known */
};

static int members, depth_max;
static bool restarts; /* members are started again, and have lost what they promised */
static uint64_t *visited;
static size_t states;

static void explore(const struct model *m, int depth);

static bool is(const struct actor *a, uint64_t flags)
{
    return (a->record.flags & flags) == flags;
}

static void take(struct actor *a, bool uses)
{
    struct sync_record *r = &a->record;
    if (uses)
        a->took[r->steps] = (uint8_t)r->attempt;
    r->lineage = sync_lineage(r->lineage, r->steps, r->attempt);
    r->steps++;
    r->attempt = 0;
    r->flags &= ~(uint64_t)SYNC_PREPARED;
    a->committed = false;
}

/* No two members have made use of different attempts at a step. Where members are started again this may be:
 * one that was the only link between two groups does not remember the first. */
static void check_model(const struct model *m)
{
    if (restarts)
        return;
    for (int i = 0; i < members; i++)
        for (int k = 0; k < i; k++)
            for (int s = 0; s < STEPS; s++) {
                int a = m->actor[i].took[s], b = m->actor[k].took[s];
                if (a != 0 && b != 0 && a != b)
                    fail_msg("step %d: member %d took attempt %d, member %d attempt %d", s, i, a, k, b);
            }
}

static void unprepare(struct actor *a)
{
    a->record.flags &= ~(uint64_t)SYNC_PREPARED;
    a->record.attempt = 0;
    a->committed = false;
}

/* ---- in a live group ---- */

/* The members of a live group begin a step: who is behind takes over where the others are. */
static bool begin(struct model *m)
{
    const struct sync_record *from = NULL;
    uint64_t round = 0;
    for (int i = 0; i < members; i++) {
        const struct sync_record *r = &m->actor[i].record;
        if (!(m->group & BIT(i)))
            continue;
        if (is(&m->actor[i], PJ))
            from = r;
        round = r->round > round ? r->round : round;
    }
    struct sync_record to = from ? *from : (struct sync_record){0};
    if (to.steps == STEPS)
        return false;
    for (int i = 0; i < members; i++) {
        struct actor *a = &m->actor[i];
        if (!(m->group & BIT(i)))
            continue;
        if (is(a, PJ) && (a->record.steps != to.steps || a->record.lineage != to.lineage))
            fail_msg("members of a group have joined at different steps");
        a->record = (struct sync_record){PJ, to.steps, to.lineage, 0, round};
        a->promised = round;
    }
    return true;
}

/* `prepared` have all results and vote so; `heard` hear how all have voted. */
static void attempt(const struct model *before, uint32_t prepared, uint32_t heard, int depth)
{
    struct model m = *before;
    if (!begin(&m))
        return;
    for (int i = 0; i < members; i++) {
        struct actor *a = &m.actor[i];
        if (!(m.group & prepared & BIT(i)))
            continue;
        a->record.flags |= SYNC_PREPARED;
        a->record.attempt = m.id;
        if (heard & BIT(i) && prepared == m.group)
            take(a, true);
        else if (heard & BIT(i))
            unprepare(a);
    }
    if (heard != m.group)
        m.group = 0;
    check_model(&m);
    explore(&m, depth);
}

/* ---- from one group to the next ---- */

/* Those that are settled use what is committed, or not yet. */
static void act(const struct model *before, uint32_t acting, int depth)
{
    struct model m = *before;
    for (int i = 0; i < members; i++)
        if (acting & BIT(i) && m.actor[i].committed)
            take(&m.actor[i], true);
    check_model(&m);
    explore(&m, depth);
}

static void decided(const struct model *before, uint32_t next, int depth)
{
    uint64_t steps = UINT64_MAX, lineage = 0;
    for (uint32_t confirmed = next;; confirmed = (confirmed - 1) & next) {
        struct model m = *before;
        for (int i = 0; i < members; i++) {
            struct actor *a = &m.actor[i];
            a->committed = confirmed & BIT(i) && is(a, SYNC_PREPARED);
            if (!(next & BIT(i)) || !is(a, PJ))
                continue;
            const struct sync_record *r = &a->record;
            bool commits = is(a, SYNC_PREPARED);
            uint64_t to = r->steps + commits;
            uint64_t line = commits ? sync_lineage(r->lineage, r->steps, r->attempt) : r->lineage;
            if (steps != UINT64_MAX && (to != steps || line != lineage))
                fail_msg("members that are not behind are at steps %d and %d", (int)to, (int)steps);
            steps = to;
            lineage = line;
        }
        m.group = confirmed == next ? next : 0;
        /* in a live group all use it before they go on; in another one some may have */
        if (m.group != 0)
            act(&m, next, depth);
        for (uint32_t acting = confirmed;; acting = (acting - 1) & confirmed) {
            struct model dead = m;
            dead.group = 0;
            act(&dead, acting, depth);
            if (acting == 0)
                break;
        }
        if (confirmed == 0)
            break;
    }
}

/* All have promised the round and have said where they stand; some hear it. */
static void promised(const struct model *before, uint32_t next, int depth)
{
    struct sync_record records[MEMBERS];
    int size = 0;
    for (int i = 0; i < members; i++)
        if (next & BIT(i))
            records[size++] = before->actor[i].record;
    struct sync_decision d = sync_decide(records, size);
    for (uint32_t heard = next; heard != 0; heard = (heard - 1) & next) {
        struct model m = *before;
        m.last = heard == next ? next : m.last;
        for (int i = 0; i < members; i++) {
            struct actor *a = &m.actor[i];
            if (!(heard & BIT(i)))
                continue;
            enum sync_verdict verdict = sync_verdict(&d, &a->record);
            a->record.round = a->promised;
            a->record.flags |= SYNC_JOINED;
            if (verdict == SYNC_CONTINUE || verdict == SYNC_BEHIND)
                unprepare(a);
            if (verdict == SYNC_BEHIND)
                a->record.flags &= ~(uint64_t)SYNC_JOINED;
        }
        if (heard == next)
            decided(&m, next, depth);
        else
            explore(&m, depth);
    }
}

static void reform(const struct model *before, uint32_t next, int depth)
{
    uint64_t round = 0;
    for (int i = 0; i < members; i++)
        if (next & BIT(i) && before->actor[i].promised > round)
            round = before->actor[i].promised;
    for (uint32_t heard = next; heard != 0; heard = (heard - 1) & next) {
        struct model m = *before;
        m.id++;
        m.group = 0;
        for (int i = 0; i < members; i++) {
            if (next & BIT(i))
                m.actor[i].committed = false;
            if (heard & BIT(i))
                m.actor[i].promised = round + 1;
        }
        if (heard == next)
            promised(&m, next, depth);
        else
            explore(&m, depth);
    }
}

/* A cluster that is not split: in the next group is a member that has the model out of the last one in which
 * all have decided, or if all of those are lost, of the latest decision; if nobody has the model any
 * more, one with the most steps. */
static bool connected(const struct model *m, uint32_t next)
{
    bool any = false, in = false;
    uint64_t most = 0;
    for (int i = 0; i < members; i++) {
        if (is(&m->actor[i], PJ) && m->last & next & BIT(i))
            return true;
        any = any || is(&m->actor[i], PJ);
    }
    for (int i = 0; i < members; i++) {
        const struct sync_record *r = &m->actor[i].record;
        if (is(&m->actor[i], PJ) && m->last & BIT(i))
            return false;
        uint64_t rank = any ? r->round : r->steps;
        if ((any && !is(&m->actor[i], PJ)) || rank < most)
            continue;
        in = (in && rank == most) || next & BIT(i);
        most = rank;
    }
    return in;
}

/* ---- running through it ---- */

/* True: it has been seen with as much left to do. */
static bool seen(const struct model *m, int depth)
{
    uint64_t hash = hash64((uint64_t)depth, m, sizeof *m);
    for (size_t i = hash % VISITED;; i = (i + 1) % VISITED) {
        if (visited[i] == hash)
            return true;
        if (visited[i] != 0)
            continue;
        if (++states > VISITED / 4 * 3)
            fail_msg("too many states");
        visited[i] = hash;
        return false;
    }
}

static void restart(const struct model *before, int member, int depth)
{
    struct model m = *before;
    m.actor[member] = (struct actor){.record = {.flags = SYNC_PRESENT}};
    m.group = 0;
    explore(&m, depth + 1);
}

static void explore(const struct model *m, int depth)
{
    if (depth == depth_max || seen(m, depth))
        return;
    uint32_t all = BIT(members) - 1;
    for (uint32_t prepared = m->group; prepared != 0; prepared = (prepared - 1) & m->group)
        for (uint32_t heard = m->group;; heard = (heard - 1) & m->group) {
            attempt(m, prepared, heard, depth + 1);
            if (heard == 0)
                break;
        }
    for (uint32_t next = 1; next <= all; next++)
        if (connected(m, next))
            reform(m, next, depth + 1);
    for (int i = 0; restarts && i < members; i++)
        restart(m, i, depth);
}

static void run_model(int count, int depth, bool started_again)
{
    restarts = started_again;
    members = count;
    depth_max = depth;
    states = 0;
    visited = calloc(VISITED, sizeof *visited);
    assert_non_null(visited);
    struct model m = {.group = BIT(count) - 1, .id = 1, .last = BIT(count) - 1};
    for (int i = 0; i < count; i++)
        m.actor[i].record = (struct sync_record){.flags = SYNC_PRESENT};
    explore(&m, 0);
    print_message("%d members, %d events deep: %zu states\n", count, depth, states);
    free(visited);
}

TEST(test_everything_that_can_be_heard_or_lost)
{
    int deeper = repeat_count(1) > 1;
    run_model(2, 6, false);
    run_model(3, 5 + deeper, false);
    run_model(4, 3 + deeper, false);
    run_model(3, 3 + deeper, true);
}
