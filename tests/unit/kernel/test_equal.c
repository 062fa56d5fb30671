/* SPDX-License-Identifier: Apache-2.0 */
/* Every set gives the bits of scalar at all lengths up to 257 and all addresses, and touches nothing else. */
#include <sys/mman.h>
#include <unistd.h>

#include "cases.h"
#include "support/suite.h"

#define COUNT_MAX 257
#define LEN_MAX   (COUNT_MAX * 8)
#define OFFSETS   64
/* The thread sanitizer has nothing to find here and takes half a minute for it. */
#ifdef __SANITIZE_THREAD__
#define OFFSET_STEP 13
#else
#define OFFSET_STEP 1
#endif

#define GUARD 64
#define ROOM  (GUARD + OFFSETS + LEN_MAX + GUARD)

static const char guard[GUARD] = "what stands before and behind the arrays that a kernel is given";

/* One kernel of any kind, as a function of a set. `source` is not looked at by those that scale. */
struct job {
    enum { REDUCE, WIDEN, NARROW, MULTIPLY, DIVIDE } kind;
    enum hearth_dtype dtype;
    int op; /* of REDUCE */
};

static size_t target_size(struct job job)
{
    return dtype_size(job.kind == WIDEN ? cases_wide(job.dtype) : job.dtype);
}

static enum hearth_dtype source_type(struct job job)
{
    return job.kind == NARROW ? cases_wide(job.dtype) : job.dtype;
}

static void run(const struct kernels *set, struct job job, void *target, const void *source, size_t count)
{
    switch (job.kind) {
    case REDUCE:
        set->reduce(job.dtype, job.op, target, target, source, count);
        break;
    case WIDEN:
        set->widen(job.dtype, target, source, count);
        break;
    case NARROW:
        set->narrow(job.dtype, target, source, count);
        break;
    case MULTIPLY:
        set->multiply(job.dtype, target, count, 0.7);
        break;
    case DIVIDE:
        set->divide(job.dtype, target, count, 0.7);
        break;
    }
}

static void for_all_jobs(void (*check)(struct job))
{
    for (int d = 0; d < DTYPE_COUNT; d++) {
        enum hearth_dtype dtype = (enum hearth_dtype)d;
        for (int op = 0; op < cases_ops(d); op++)
            check((struct job){REDUCE, dtype, op});
        for (int kind = WIDEN; kind <= (d <= HEARTH_F64 ? DIVIDE : NARROW); kind++)
            check((struct job){(int)kind, dtype, 0});
    }
}

/* What goes in, and what scalar makes of it at an even address. Elements don't know each other, so the first
 * n of them are the answer for a length of n. */
struct example {
    char before[LEN_MAX], source[LEN_MAX], after[LEN_MAX];
};

static void example_init(struct example *e, struct job job)
{
    uint64_t seed = (uint64_t)((int)job.kind * 1000 + (int)job.dtype * 10 + job.op);
    memset(e, 0xdd, sizeof *e); /* what a conversion finds in its target */
    cases_fill(&seed, source_type(job), e->source, COUNT_MAX);
    if (job.kind != WIDEN && job.kind != NARROW)
        cases_fill(&seed, source_type(job), e->before, COUNT_MAX);
    memcpy(e->after, e->before, sizeof e->after);
    run(kernels_named("scalar"), job, e->after, e->source, COUNT_MAX);
}

static void check_at(const struct kernels *set, struct job job, const struct example *e, size_t count,
                     size_t offset)
{
    static char target[ROOM], source[ROOM];
    size_t len = count * target_size(job), source_len = count * dtype_size(source_type(job));
    size_t other_offset = (offset * 29 + count) % OFFSETS;
    char *t = target + GUARD + offset, *s = source + GUARD + other_offset;

    memcpy(t - GUARD, guard, GUARD);
    memcpy(t + len, guard, GUARD);
    memcpy(s - GUARD, guard, GUARD);
    memcpy(s + source_len, guard, GUARD);
    memcpy(t, e->before, len);
    memcpy(s, e->source, source_len);
    run(set, job, t, s, count);
    if (memcmp(t, e->after, len) || memcmp(t - GUARD, guard, GUARD) || memcmp(t + len, guard, GUARD) ||
        memcmp(s, e->source, source_len) || memcmp(s - GUARD, guard, GUARD) ||
        memcmp(s + source_len, guard, GUARD))
        fail_msg("%s, kind %d, type %d, op %d: count %zu, offset %zu", set->name, (int)job.kind,
                 (int)job.dtype, job.op, count, offset);
}

static void check_all_places(struct job job)
{
    static struct example e;
    example_init(&e, job);
    for (int s = 0; s < set_count; s++)
        for (size_t count = 0; count <= COUNT_MAX; count++)
            for (size_t offset = 0; offset < OFFSETS; offset += OFFSET_STEP)
                check_at(sets[s], job, &e, count, offset);
}

TEST(every_length_at_every_address)
{
    if (OFFSET_STEP > 1)
        printf("skipped: of %d addresses all but each %dth\n", OFFSETS, OFFSET_STEP);
    for_all_jobs(check_all_places);
}

static void check_same_region(struct job job)
{
    static char before[LEN_MAX], expected[LEN_MAX], got[LEN_MAX];
    uint64_t seed = 7;
    if (job.kind != REDUCE)
        return;
    for (size_t count = 1; count <= COUNT_MAX; count += 16) {
        cases_fill(&seed, source_type(job), before, count);
        memcpy(expected, before, sizeof expected);
        run(sets[0], job, expected, expected, count);
        for (int s = 1; s < set_count; s++) {
            memcpy(got, before, sizeof got);
            run(sets[s], job, got, got, count);
            assert_memory_equal(got, expected, count * target_size(job));
        }
    }
}

TEST(a_region_with_itself)
{
    for_all_jobs(check_same_region);
}

/* Three pages, the outer ones out of bounds: returns the middle one, of *len bytes. */
static char *fenced_page(size_t *len)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    char *pages = mmap(NULL, 3 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(pages != MAP_FAILED);
    assert_int_equal(mprotect(pages, page, PROT_NONE), 0);
    assert_int_equal(mprotect(pages + 2 * page, page, PROT_NONE), 0);
    *len = page;
    return pages + page;
}

static char *fenced_target, *fenced_source;
static size_t fenced_len;

/* Reading one byte too many, before or behind, would end the test. */
static void check_fences(struct job job)
{
    static struct example e;
    example_init(&e, job);
    for (int s = 0; s < set_count; s++)
        for (size_t count = 0; count <= 130; count++)
            for (int end = 0; end < 2; end++) {
                size_t len = count * target_size(job), source_len = count * dtype_size(source_type(job));
                char *target = end ? fenced_target + fenced_len - len : fenced_target;
                char *source = end ? fenced_source + fenced_len - source_len : fenced_source;
                memcpy(target, e.before, len);
                memcpy(source, e.source, source_len);
                run(sets[s], job, target, source, count);
                assert_memory_equal(target, e.after, len);
            }
}

TEST(nothing_is_read_beyond_the_ends)
{
    fenced_target = fenced_page(&fenced_len);
    fenced_source = fenced_page(&fenced_len);
    for_all_jobs(check_fences);
    munmap(fenced_target - fenced_len, 3 * fenced_len);
    munmap(fenced_source - fenced_len, 3 * fenced_len);
}

/* More numbers than fit above: only the arithmetic counts here. */
static void check_many_numbers(struct job job)
{
    enum { COUNT = 20000 };
    static uint64_t source[COUNT], before[COUNT], expected[COUNT], got[COUNT];
    uint64_t seed = 8;
    cases_fill(&seed, source_type(job), source, COUNT);
    memset(before, 0, sizeof before);
    if (job.kind != WIDEN && job.kind != NARROW)
        cases_fill(&seed, source_type(job), before, COUNT);
    memcpy(expected, before, sizeof expected);
    run(sets[0], job, expected, source, COUNT);
    for (int s = 1; s < set_count; s++) {
        memcpy(got, before, sizeof got);
        run(sets[s], job, got, source, COUNT);
        assert_memory_equal(got, expected, COUNT * target_size(job));
    }
}

TEST(many_numbers)
{
    for_all_jobs(check_many_numbers);
}
