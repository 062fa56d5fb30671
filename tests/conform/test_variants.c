/* SPDX-License-Identifier: Apache-2.0 */
/* The v-variants: zero, uneven and giant parts, and lengths that do not fit between sender and receiver. */
#include "conform/reference.h"

static const enum kind vectors[] = {REDUCE_SCATTERV, ALL_GATHERV, GATHERV, SCATTERV, ALL_TO_ALLV};
enum { VECTORS = sizeof vectors / sizeof *vectors };

enum shape { NOTHING, ONE_HAS_ALL, ALL_BUT_ONE, GROWING, GIANT, DIAGONAL, SHAPES };

static void shape_counts(struct job *job, enum shape shape, size_t unit)
{
    int n = job->size;
    for (int i = 0; i < n * n; i++) {
        size_t who = (size_t)(i % n), from = (size_t)(i / n);
        switch (shape) {
        case NOTHING:
            job->counts[i] = 0;
            break;
        case ONE_HAS_ALL:
            job->counts[i] = who == (size_t)n - 1 ? unit : 0;
            break;
        case ALL_BUT_ONE:
            job->counts[i] = who == 0 ? 0 : unit;
            break;
        case GROWING:
            job->counts[i] = who * 7 + from;
            break;
        case GIANT:
            job->counts[i] = who == (size_t)n / 2 && from <= 1 ? unit * 200 : 1;
            break;
        default: /* what one keeps for oneself is much, what goes to others little */
            job->counts[i] = who == from ? unit : who > from;
        }
    }
}

static void run_shapes(struct fixture *c, size_t unit, uint64_t *seed)
{
    for (int i = 0; i < VECTORS * SHAPES; i++) {
        struct job job;
        job_init(&job, vectors[i / SHAPES], c->size, unit);
        job.dtype = (enum hearth_dtype)draw_below(seed, DTYPES);
        job.op = (enum hearth_op)draw_below(seed, OPS);
        if (!op_exists(job.op, job.dtype))
            job.op = HEARTH_OP_MAX;
        job.root = (int)draw_below(seed, (uint64_t)c->size);
        job.nonblocking = draw(seed) & 1;
        job.null_target = draw(seed) & 1;
        job.seed = draw(seed) >> 40;
        job.in_place = draw(seed) & 1 && job.kind != ALL_TO_ALLV;
        shape_counts(&job, (enum shape)(i % SHAPES), unit);
        job_do(&job, c);
    }
}

TEST(test_zero_uneven_and_giant_parts)
{
    uint64_t seed = 41;
    for (int size = 1; size <= 8; size++) {
        struct fixture c;
        struct hearth_config config;
        config_small(&config);
        fixture_open(&c, size, NULL);
        run_shapes(&c, 97, &seed);
        fixture_close(&c);
        fixture_open(&c, size, &config);
        run_shapes(&c, 97, &seed);
        fixture_close(&c);
    }
}

TEST(test_in_place_all_to_allv)
{
    for (int size = 1; size <= 8; size++) {
        struct fixture c;
        fixture_open(&c, size, NULL);
        for (int i = 0; i < 4; i++) {
            struct job job;
            job_init(&job, ALL_TO_ALLV, size, 3000);
            job.in_place = true;
            job.dtype = HEARTH_I32;
            job.seed = (uint64_t)(i + 1);
            job_draw_counts(&job);
            job_do(&job, &c);
        }
        fixture_close(&c);
    }
}

/* Every algorithm that gathers and scatters by counts, one part a thousand times the others. */
TEST(test_giant_part_by_every_algorithm)
{
    const enum hearth_algo algos[] = {HEARTH_ALGO_RING, HEARTH_ALGO_DIRECT};
    const enum kind kinds[] = {REDUCE_SCATTERV, ALL_GATHERV};
    for (int size = 2; size <= 5; size++) {
        struct fixture c;
        struct hearth_config config;
        config_small(&config);
        fixture_open(&c, size, &config);
        for (int i = 0; i < 8; i++) {
            struct job job;
            job_init(&job, kinds[i % 2], size, 17);
            job.opts.algo = algos[i / 2 % 2];
            job.in_place = i / 4;
            job.counts[size - 1] = 50001;
            job_do(&job, &c);
        }
        fixture_close(&c);
    }
}

/* ---- lengths that do not fit ---- */

enum { DEFECT_GATHERV, DEFECT_SCATTERV, DEFECT_ALL_TO_ALLV, DEFECTS };

struct defect {
    int what, size;
    int sender, receiver; /* whose lengths do not fit; one of them is the root of gatherv and scatterv */
    size_t sent, expected;
    size_t other; /* what all others exchange */
    int status[MEMBERS_MAX];
    char text[MEMBERS_MAX][TEXT_MAX];
};

static int defect_call(const struct defect *d, hearth_group *group, int rank, uint8_t *x, uint8_t *y)
{
    size_t to[MEMBERS_MAX], from[MEMBERS_MAX];
    for (int i = 0; i < d->size; i++) {
        to[i] = rank == d->sender && i == d->receiver ? d->sent : d->other;
        from[i] = rank == d->receiver && i == d->sender ? d->expected : d->other;
    }
    struct hearth_opts opts = opts_default();
    opts.timeout_ms = 60000;
    if (d->what == DEFECT_GATHERV)
        return hearth_gatherv(group, x, rank == d->sender ? d->sent : d->other, y, from, HEARTH_U8,
                              d->receiver, &opts);
    if (d->what == DEFECT_SCATTERV)
        return hearth_scatterv(group, x, to, y, rank == d->receiver ? d->expected : d->other, HEARTH_U8,
                               d->sender, &opts);
    return hearth_all_to_allv(group, x, to, y, from, HEARTH_U8, &opts);
}

static void defect_member(struct fixture *c, int rank, void *arg)
{
    struct defect *d = arg;
    size_t len = ((size_t)d->size + 1) * 200000;
    uint8_t *x = must_alloc(len), *y = must_alloc(len);
    memset(x, rank, len);
    d->status[rank] = defect_call(d, c->world[rank], rank, x, y);
    snprintf(d->text[rank], TEXT_MAX, "%s", hearth_error_text());
    hear_late(c->world[rank], &d->status[rank], d->text[rank]);
    free(x);
    free(y);
}

static void run_defect(struct fixture *c, struct defect *d)
{
    char pair[TEXT_MAX], receiver[32];
    fixture_run(c, defect_member, d);
    fixture_run(c, defect_member, d); /* once more: nothing of the first is left */
    snprintf(pair, sizeof pair, "rank %d sends %zu bytes", d->sender, d->sent);
    snprintf(receiver, sizeof receiver, "rank %d, which expects %zu", d->receiver, d->expected);
    for (int r = 0; r < d->size; r++) {
        check(d->status[r] == HEARTH_MISMATCH, "defect %d on %d (%d to %d, %zu for %zu): rank %d: %s: %s",
              d->what, d->size, d->sender, d->receiver, d->sent, d->expected, r,
              hearth_status_name(d->status[r]), d->text[r]);
        check_text(d->text[r], pair);
        check_text(d->text[r], receiver);
        check(strcmp(d->text[r], d->text[0]) == 0, "rank %d says \"%s\", rank 0 \"%s\"", r, d->text[r],
              d->text[0]);
    }
    checks_end();
}

TEST(test_lengths_that_do_not_fit)
{
    const struct {
        size_t sent, expected, other;
    } lengths[] = {{5, 4, 4},           {4, 5, 4},      {0, 7, 7},       {7, 0, 7},
                   {3, 0, 0},           {0, 3, 0},      {100, 90000, 1}, {90000, 100, 1},
                   {200000, 199999, 5}, {0, 100000, 0}, {100000, 0, 0},  {65000, 65001, 65000}};
    for (int size = 2; size <= 4; size++) {
        struct fixture c;
        fixture_open(&c, size, NULL);
        for (int i = 0; i < DEFECTS * (int)(sizeof lengths / sizeof *lengths); i++) {
            struct defect d = {.what = i % DEFECTS,
                               .size = size,
                               .sender = i % size,
                               .receiver = (i + 1 + i / 2 % (size - 1)) % size,
                               .sent = lengths[i / DEFECTS].sent,
                               .expected = lengths[i / DEFECTS].expected,
                               .other = lengths[i / DEFECTS].other};
            run_defect(&c, &d);
        }
        fixture_close(&c);
    }
}

/* ---- counts that all must give alike ---- */

struct lists {
    enum kind kind;
    int odd;
    int status[MEMBERS_MAX];
    char text[MEMBERS_MAX][TEXT_MAX];
};

static void lists_member(struct fixture *c, int rank, void *arg)
{
    struct lists *l = arg;
    struct job job;
    job_init(&job, l->kind, c->size, 10);
    if (rank == l->odd) { /* the same sum, other parts */
        job.counts[0]++;
        job.counts[1]--;
    }
    job_prepare(&job);
    l->status[rank] = job_call(&job, c->world[rank], rank);
    snprintf(l->text[rank], TEXT_MAX, "%s", hearth_error_text());
    job_free(&job);
}

TEST(test_lists_of_counts_that_differ)
{
    const enum kind kinds[] = {REDUCE_SCATTERV, ALL_GATHERV};
    struct fixture c;
    fixture_open(&c, 4, NULL);
    for (int i = 0; i < 8; i++) {
        struct lists l = {.kind = kinds[i % 2], .odd = i / 2};
        char who[32];
        fixture_run(&c, lists_member, &l);
        snprintf(who, sizeof who, "rank %d", l.odd);
        for (int r = 0; r < 4; r++) {
            check(l.status[r] == HEARTH_MISMATCH, "%s: rank %d: %s", kind_name(l.kind), r,
                  hearth_status_name(l.status[r]));
            check_text(l.text[r], who);
            check_text(l.text[r], "counts");
            check(strcmp(l.text[r], l.text[0]) == 0, "rank %d says \"%s\", rank 0 \"%s\"", r, l.text[r],
                  l.text[0]);
        }
        checks_end();
        fixture_works(&c);
    }
    fixture_close(&c);
}
