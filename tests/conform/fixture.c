/* SPDX-License-Identifier: Apache-2.0 */
/* Opens, runs and closes the nodes of a test. */
#include "conform/fixture.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <time.h>

#include "support/watchdog.h"

#define HANG_SECONDS 100u
#define METRICS_MAX  (1u << 16)

#if defined(__has_feature)
#define HAS_FEATURE(x) __has_feature(x)
#else
#define HAS_FEATURE(x) 0
#endif

bool under_asan(void)
{
#if defined(__SANITIZE_ADDRESS__) || HAS_FEATURE(address_sanitizer)
    return true;
#else
    return false;
#endif
}

bool under_tsan(void)
{
#if defined(__SANITIZE_THREAD__) || HAS_FEATURE(thread_sanitizer)
    return true;
#else
    return false;
#endif
}

int slow_factor(void)
{
    return under_tsan() ? 6 : under_asan() ? 3 : 1;
}

/* ---- the guard ---- */

/* What the watchdog says: the ranks whose threads have not returned. */
static char running[] = "these members have not returned: ................";

static void mark_running(int rank, bool runs)
{
    running[sizeof running - 1 - MEMBERS_MAX + (size_t)rank] = runs ? "0123456789abcdef"[rank] : '.';
}

/* ---- checks ---- */

static _Atomic(int) failures;

static void note_failure(const char *file, int line, const char *text)
{
    if (atomic_fetch_add(&failures, 1) < 20)
        fprintf(stderr, "%s:%d: %s\n", file, line, text);
}

bool check_note(bool good, const char *file, int line, const char *format, ...)
{
    char text[TEXT_MAX];
    va_list args;
    if (good)
        return true;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    note_failure(file, line, text);
    return false;
}

bool check_status_note(int got, int wanted, const char *file, int line, const char *call)
{
    if (got == wanted)
        return true;
    char text[TEXT_MAX * 2];
    snprintf(text, sizeof text, "%s is %s, not %s: %s", call, hearth_status_name(got),
             hearth_status_name(wanted), hearth_error_text());
    note_failure(file, line, text);
    return false;
}

bool check_text_note(const char *text, const char *word, const char *file, int line)
{
    if (strstr(text, word))
        return true;
    char note[TEXT_MAX * 2];
    snprintf(note, sizeof note, "\"%s\" does not say \"%s\"", text, word);
    note_failure(file, line, note);
    return false;
}

bool check_error_note(int got, int wanted, const char *word, const char *file, int line, const char *call)
{
    return check_status_note(got, wanted, file, line, call) &&
           check_text_note(hearth_error_text(), word, file, line);
}

bool checks_failed(void)
{
    return atomic_load(&failures) > 0;
}

void checks_end(void)
{
    int count = atomic_exchange(&failures, 0);
    if (count > 0)
        fail_msg("%d checks failed, see above", count);
}

/* ---- nodes ---- */

void config_tuned(struct hearth_config *config, struct hearth_tuning *tuning)
{
    hearth_config_init(config);
    hearth_tuning_init(tuning);
    config->tuning = tuning;
}

void config_small(struct hearth_config *config)
{
    static struct hearth_tuning tuning;
    config_tuned(config, &tuning);
    tuning.chunk_bytes = tuning.window_bytes = tuning.eager_bytes = 16384;
}

void fixture_open(struct fixture *c, int size, const struct hearth_config *config)
{
    watchdog(HANG_SECONDS * (unsigned)slow_factor(), running);
    *c = (struct fixture){.size = size};
    int status = hearth_node_open_local(config, size, c->nodes);
    if (status != HEARTH_OK)
        fail_msg("hearth_node_open_local of %d: %s", size, hearth_error_text());
    for (int i = 0; i < size; i++) {
        c->world[i] = hearth_node_world(c->nodes[i]);
        if (hearth_group_rank(c->world[i]) != i || hearth_group_size(c->world[i]) != size)
            fail_msg("node %d of %d has rank %d of %d", i, size, hearth_group_rank(c->world[i]),
                     hearth_group_size(c->world[i]));
    }
    pthread_barrier_init(&c->meeting, NULL, (unsigned)size);
}

void fixture_close(struct fixture *c)
{
    for (int i = 0; i < c->size; i++) {
        hearth_node_close(c->nodes[i]);
        c->nodes[i] = NULL;
    }
    pthread_barrier_destroy(&c->meeting);
    checks_end();
}

struct member {
    struct fixture *cluster;
    member_fn *fn;
    void *arg;
    int rank;
};

static void *member_run(void *arg)
{
    struct member *m = arg;
    m->fn(m->cluster, m->rank, m->arg);
    mark_running(m->rank, false);
    return NULL;
}

void fixture_run(struct fixture *c, member_fn *fn, void *arg)
{
    pthread_t threads[MEMBERS_MAX];
    struct member members[MEMBERS_MAX];
    for (int i = 0; i < c->size; i++) {
        mark_running(i, true);
        members[i] = (struct member){c, fn, arg, i};
        if (pthread_create(&threads[i], NULL, member_run, &members[i]) != 0)
            abort();
    }
    for (int i = 0; i < c->size; i++)
        pthread_join(threads[i], NULL);
    checks_end();
}

void fixture_meet(struct fixture *c)
{
    pthread_barrier_wait(&c->meeting);
}

/* Barriers, until the news must have come: finder, arbiter, all, arbiter, all; and each of these messages may
 * come just after a member has entered the next barrier. */
void hear_late(hearth_group *group, int *status, char text[TEXT_MAX])
{
    for (int i = 0; i < 8; i++) {
        int next = hearth_barrier(group, NULL);
        if (next == HEARTH_MISMATCH && *status == HEARTH_OK) {
            *status = next;
            snprintf(text, TEXT_MAX, "%s", hearth_error_text());
            next = hearth_barrier(group, NULL);
        }
        check_ok(next);
    }
}

static void works(struct fixture *c, int rank, void *arg)
{
    int64_t one = rank + 1, sum = 0;
    check_ok(hearth_barrier(c->world[rank], NULL));
    check_ok(hearth_all_reduce(c->world[rank], &one, &sum, 1, HEARTH_I64, HEARTH_OP_SUM, NULL));
    check(sum == c->size * (c->size + 1) / 2, "rank %d: sum is %" PRId64, rank, sum);
}

void fixture_works(struct fixture *c)
{
    fixture_run(c, works, NULL);
}

void fixture_once(int size, const struct hearth_config *config, member_fn *fn, void *arg)
{
    struct fixture c;
    fixture_open(&c, size, config);
    fixture_run(&c, fn, arg);
    fixture_close(&c);
}

void fixture_often(int times, int size, const struct hearth_config *config, member_fn *fn, void *arg)
{
    struct fixture c;
    fixture_open(&c, size, config);
    for (int i = 0; i < times; i++) {
        fixture_run(&c, fn, arg);
        fixture_works(&c);
    }
    fixture_close(&c);
}

/* ---- small things ---- */

uint64_t draw(uint64_t *seed) /* splitmix64 */
{
    uint64_t x = *seed += UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

uint64_t draw_below(uint64_t *seed, uint64_t limit)
{
    return draw(seed) % limit;
}

uint64_t hash_bytes(const void *bytes, size_t len) /* FNV-1a, eight bytes at a time */
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325) ^ len;
    const uint8_t *at = bytes;
    for (; len >= 8; at += 8, len -= 8) {
        uint64_t word;
        memcpy(&word, at, 8);
        hash = (hash ^ word) * UINT64_C(0x100000001b3);
        hash ^= hash >> 32;
    }
    for (; len > 0; at++, len--)
        hash = (hash ^ *at) * UINT64_C(0x100000001b3);
    return hash;
}

void *must_alloc(size_t len)
{
    void *memory = malloc(len > 0 ? len : 1);
    if (!memory)
        abort();
    return memory;
}

uint64_t metric(hearth_node *node, const char *name)
{
    char *text = must_alloc(METRICS_MAX);
    uint64_t value = UINT64_MAX;
    size_t len = strlen(name);
    int64_t whole = hearth_node_metrics_text(node, text, METRICS_MAX);
    check(whole > 0 && whole < METRICS_MAX, "metrics text of %" PRId64 " bytes", whole);
    for (const char *line = text; line && *line != '\0';) {
        if (strncmp(line, name, len) == 0 && line[len] == ' ')
            value = strtoull(line + len, NULL, 10);
        line = strchr(line, '\n');
        line = line ? line + 1 : NULL;
    }
    free(text);
    check(value != UINT64_MAX, "there is no metric %s", name);
    return value;
}

uint64_t cluster_memory(const struct fixture *c)
{
    uint64_t sum = 0;
    for (int i = 0; i < c->size; i++)
        sum += metric(c->nodes[i], "hearth_memory_bytes");
    return sum;
}

void sleep_ms(int ms)
{
    struct timespec time = {ms / 1000, (long)(ms % 1000) * 1000000};
    nanosleep(&time, NULL);
}

struct hearth_opts opts_default(void)
{
    struct hearth_opts opts;
    hearth_opts_init(&opts);
    return opts;
}

int sum_in_place(hearth_group *group, int32_t *x, size_t count, const struct hearth_opts *opts)
{
    return hearth_all_reduce(group, x, x, count, HEARTH_I32, HEARTH_OP_SUM, opts);
}

int sum_in_place_nb(hearth_group *group, int32_t *x, size_t count, const struct hearth_opts *opts,
                    hearth_request **request)
{
    return hearth_all_reduce_nb(group, x, x, count, HEARTH_I32, HEARTH_OP_SUM, opts, request);
}
