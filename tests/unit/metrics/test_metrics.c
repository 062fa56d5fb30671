/* SPDX-License-Identifier: Apache-2.0 */
/* Histograms, counters under threads, and a text that a strict reader of Prometheus' format accepts. */
#include <ctype.h>
#include <pthread.h>

#include "metrics/metrics.h"
#include "support/suite.h"

static const char *const names[METRICS_KINDS] = {
    "all_reduce", "reduce_scatter", "all_gather", "broadcast",      "reduce",  "gather",
    "scatter",    "all_to_all",     "scan",       "exclusive_scan", "barrier",
};

/* ---- Histograms --------------------------------------------------------------------------------------- */

TEST(values_fall_into_their_bucket)
{
    static const struct {
        uint64_t value;
        int bucket;
    } cases[] = {
        {0, 0},   {1, 1},   {2, 2},           {3, 2},           {4, 3},         {7, 3},           {8, 4},
        {255, 8}, {256, 9}, {0x3fffffff, 30}, {0x40000000, 31}, {1l << 40, 31}, {UINT64_MAX, 31},
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct histogram h = {.count = 0};
        histogram_add(&h, cases[i].value);
        assert_int_equal(h.bucket[cases[i].bucket], 1);
        assert_int_equal(h.count, 1);
        assert_true(h.sum == cases[i].value);
    }
}

#define THREADS 4
#define ADDS    20000

static void *add_many(void *arg)
{
    struct histogram *h = arg;

    for (uint64_t i = 0; i < ADDS; i++)
        histogram_add(h, i % 100);
    return NULL;
}

TEST(no_addition_is_lost_under_threads)
{
    struct histogram h = {.count = 0};
    pthread_t threads[THREADS];
    uint64_t sum = 0;

    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, add_many, &h), 0);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    for (int i = 0; i < METRICS_BUCKETS; i++)
        sum += h.bucket[i];
    assert_int_equal(h.count, THREADS * ADDS);
    assert_int_equal(sum, THREADS * ADDS);
    assert_int_equal(h.sum, THREADS * (ADDS / 100) * 4950);
}

/* ---- Text --------------------------------------------------------------------------------------------- */

struct sample {
    char name[80], labels[160]; /* labels as they stand between the braces */
    double value;
};

struct page {
    char family[80], type[16]; /* of the family that is being read */
    int families;
    struct sample samples[1000];
    int count;
};

static struct heap heap;
static struct metrics m;
static struct page page;

static void read_comment(const char *line)
{
    char keyword[8], name[80];
    int at = 0;

    assert_int_equal(sscanf(line, "# %7s %79s %n", keyword, name, &at), 2);
    assert_true(line[at] != '\0');
    if (strcmp(keyword, "HELP") == 0) {
        for (int i = 0; i < page.count; i++) /* a family stands in one place only */
            assert_string_not_equal(page.samples[i].name, name);
        snprintf(page.family, sizeof page.family, "%s", name);
        page.type[0] = '\0';
        page.families++;
        return;
    }
    assert_string_equal(keyword, "TYPE");
    assert_string_equal(name, page.family);
    snprintf(page.type, sizeof page.type, "%.15s", line + at);
    assert_true(strcmp(page.type, "counter") == 0 || strcmp(page.type, "gauge") == 0 ||
                strcmp(page.type, "histogram") == 0);
}

/* Reads name="value" pairs up to the closing brace, which it returns. */
static const char *read_labels(const char *at)
{
    for (;;) {
        assert_true(isalpha((unsigned char)*at));
        while (isalnum((unsigned char)*at) || *at == '_')
            at++;
        assert_int_equal(*at++, '=');
        assert_int_equal(*at++, '"');
        for (; *at != '"'; at++) {
            assert_true(*at != '\0' && *at != '\n');
            if (*at == '\\') {
                at++;
                assert_true(*at == '\\' || *at == '"' || *at == 'n');
            }
        }
        at++;
        if (*at == '}')
            return at;
        assert_int_equal(*at++, ',');
    }
}

static void read_sample(const char *line)
{
    struct sample *sample = &page.samples[page.count++];
    size_t len = strspn(line, "abcdefghijklmnopqrstuvwxyz_");
    const char *at = line + len;
    char *end;

    assert_true(page.count < 1000 && len < sizeof sample->name);
    memcpy(sample->name, line, len);
    sample->name[len] = '\0';
    sample->labels[0] = '\0';
    assert_int_equal(strncmp(sample->name, page.family, strlen(page.family)), 0);
    const char *suffix = sample->name + strlen(page.family);
    if (strcmp(page.type, "histogram") == 0)
        assert_true(strcmp(suffix, "_bucket") == 0 || strcmp(suffix, "_sum") == 0 ||
                    strcmp(suffix, "_count") == 0);
    else
        assert_string_equal(suffix, "");
    if (strcmp(page.type, "counter") == 0)
        assert_string_equal(sample->name + len - 6, "_total");
    if (*at == '{') {
        const char *close = read_labels(at + 1);
        snprintf(sample->labels, sizeof sample->labels, "%.*s", (int)(close - at - 1), at + 1);
        at = close + 1;
    }
    assert_int_equal(*at++, ' ');
    sample->value = strtod(at, &end);
    assert_true(end > at && *end == '\0');
}

static void read_page(const char *text)
{
    char *copy = strdup(text), *rest = copy;

    memset(&page, 0, sizeof page);
    assert_non_null(copy);
    assert_int_equal(text[strlen(text) - 1], '\n');
    for (char *line = strsep(&rest, "\n"); rest; line = strsep(&rest, "\n")) {
        if (line[0] == '#')
            read_comment(line);
        else
            read_sample(line);
    }
    free(copy);
}

static double value_of(const char *name, const char *labels)
{
    for (int i = 0; i < page.count; i++)
        if (strcmp(page.samples[i].name, name) == 0 && strcmp(page.samples[i].labels, labels) == 0)
            return page.samples[i].value;
    fail_msg("there is no %s{%s}", name, labels);
    return 0;
}

static char *text_of(const char *const *kind_names)
{
    size_t len = metrics_text(&m, &heap, kind_names, NULL, 0);
    char *text = malloc(len + 1);

    assert_non_null(text);
    assert_int_equal(metrics_text(&m, &heap, kind_names, text, len + 1), len);
    assert_int_equal(strlen(text), len);
    return text;
}

static int begin(void **state)
{
    (void)state;
    heap_init(&heap, 1 << 20);
    return metrics_init(&m, 3, &heap);
}

static int end(void **state)
{
    (void)state;
    metrics_fini(&m);
    return heap.blocks != 0;
}

TEST_WITH(the_text_says_what_was_counted, begin, end)
{
    m.kind[0].operations = 12;
    m.kind[0].bytes = UINT64_C(1) << 50;
    m.kind[10].failures = 2;
    m.frames_sent = 5;
    m.bytes_received = 6;
    m.frames_early = 7;
    m.frames_late = 8;
    m.peer[2].waited_ns = UINT64_C(1500000001);
    m.peer[1].busy_ns = UINT64_C(2500000000);
    m.peer[1].busy_bytes = 77;
    m.connection_errors = 9;
    m.uptime_ns = UINT64_C(3250000000);
    m.compression.plain_bytes = 1000;
    m.compression.sent_bytes = 250;
    m.compression.compress_ns = UINT64_C(1000000);
    m.compression.expand_ns = UINT64_C(2000000);
    for (int i = 0; i < 100; i++)
        metrics_skew(&m, 0, 1000);
    char *text = text_of(names);
    read_page(text);
    free(text);
    assert_true(value_of("hearth_operations_total", "kind=\"all_reduce\"") == 12);
    assert_true(value_of("hearth_operations_total", "kind=\"barrier\"") == 0);
    assert_true(value_of("hearth_operation_bytes_total", "kind=\"all_reduce\"") == 0x1p50);
    assert_true(value_of("hearth_operation_failures_total", "kind=\"barrier\"") == 2);
    assert_true(value_of("hearth_sent_frames_total", "") == 5);
    assert_true(value_of("hearth_received_bytes_total", "") == 6);
    assert_true(value_of("hearth_early_frames_total", "") == 7);
    assert_true(value_of("hearth_late_frames_total", "") == 8);
    assert_true(value_of("hearth_peer_wait_seconds_total", "peer=\"0\"") == 0);
    assert_true(value_of("hearth_peer_wait_seconds_total", "peer=\"2\"") == 1.500000001);
    assert_true(value_of("hearth_peer_busy_seconds_total", "peer=\"1\"") == 2.5);
    assert_true(value_of("hearth_peer_busy_bytes_total", "peer=\"1\"") == 77);
    assert_true(value_of("hearth_peer_skew_seconds_total", "peer=\"0\"") == 1e-4);
    assert_true(value_of("hearth_peer_skew_seconds", "peer=\"0\"") > 0.99e-6);
    assert_true(value_of("hearth_connection_errors_total", "") == 9);
    assert_true(value_of("hearth_uptime_seconds", "") == 3.25);
    assert_true(value_of("hearth_compression_plain_bytes_total", "") == 1000);
    assert_true(value_of("hearth_compression_sent_bytes_total", "") == 250);
    assert_true(value_of("hearth_compression_ratio", "") == 4);
    assert_true(value_of("hearth_compression_seconds_total", "") == 0.001);
    assert_true(value_of("hearth_decompression_seconds_total", "") == 0.002);
    assert_true(value_of("hearth_memory_bytes", "") == (double)heap.bytes);
    assert_true(value_of("hearth_memory_limit_bytes", "") == 1 << 20);
    assert_true(value_of("hearth_allocations_total", "") == 1);
}

/* Cumulative buckets in rising order, +Inf equal to the count; one row of them for each kind that ran. */
TEST_WITH(histograms_are_cumulative, begin, end)
{
    const char *const bucket = "hearth_operation_duration_seconds_bucket";
    double last = 0, bound = 0;
    int buckets = 0;

    histogram_add(&m.kind[1].duration_us, 0);
    histogram_add(&m.kind[1].duration_us, 3);
    histogram_add(&m.kind[1].duration_us, 1500000);
    histogram_add(&m.kind[1].duration_us, UINT64_C(1) << 40);
    char *text = text_of(names);
    read_page(text);
    free(text);
    for (int i = 0; i < page.count; i++) {
        const struct sample *s = &page.samples[i];
        if (strcmp(s->name, bucket) != 0)
            continue;
        const char *le = strstr(s->labels, ",le=\"");
        assert_non_null(le);
        double value = strtod(le + 5, NULL);
        assert_true(value > bound && s->value >= last);
        bound = value;
        last = s->value;
        buckets++;
    }
    assert_int_equal(buckets, METRICS_BUCKETS);
    assert_true(value_of(bucket, "kind=\"reduce_scatter\",le=\"0.000001\"") == 1);
    assert_true(value_of(bucket, "kind=\"reduce_scatter\",le=\"0.000004\"") == 2);
    assert_true(value_of(bucket, "kind=\"reduce_scatter\",le=\"1.048576\"") == 2);
    assert_true(value_of(bucket, "kind=\"reduce_scatter\",le=\"2.097152\"") == 3);
    assert_true(value_of(bucket, "kind=\"reduce_scatter\",le=\"+Inf\"") == 4);
    assert_true(value_of("hearth_operation_duration_seconds_count", "kind=\"reduce_scatter\"") == 4);
    assert_true(value_of("hearth_operation_duration_seconds_sum", "kind=\"reduce_scatter\"") ==
                1099513.127779);
}

TEST_WITH(labels_are_escaped, begin, end)
{
    const char *odd[METRICS_KINDS];

    memcpy(odd, names, sizeof odd);
    odd[0] = "a\"b\\c\nd";
    char *text = text_of(odd);
    read_page(text);
    assert_non_null(strstr(text, "hearth_operations_total{kind=\"a\\\"b\\\\c\\nd\"} 0\n"));
    free(text);
}

/* Of a buffer that is too small as much is used as fits, and the length is told all the same. */
TEST_WITH(short_buffers_are_kept, begin, end)
{
    char *whole = text_of(names);
    size_t len = strlen(whole);

    for (size_t size = 0; size < len + 3; size += size < 300 ? 1 : 97) {
        char *part = malloc(size + 1);
        assert_non_null(part);
        memset(part, 0x7e, size + 1);
        assert_int_equal(metrics_text(&m, &heap, names, part, size), len);
        assert_int_equal(part[size], 0x7e);
        if (size > 0) {
            size_t kept = size - 1 < len ? size - 1 : len;
            assert_int_equal(strlen(part), kept);
            assert_memory_equal(part, whole, kept);
        }
        free(part);
    }
    free(whole);
}

TEST(no_memory_is_an_error)
{
    heap_init(&heap, 0);
    heap.fail_after = 0;
    assert_int_equal(metrics_init(&m, 4, &heap), HEARTH_NO_MEMORY);
    metrics_fini(&m);
    heap.fail_after = -1;
    assert_int_equal(metrics_init(&m, 0, &heap), HEARTH_OK);
    metrics_fini(&m);
    assert_int_equal(heap.blocks, 0);
}
