/* SPDX-License-Identifier: Apache-2.0 */
/* What a meter makes of lines that are steady, begin slowly, have a bucket, or are looked at late. The curves
 * are made up. */
#include "cluster/probe_meter.h"
#include "core/prng.h"
#include "support/suite.h"

#define WIRE 1.055 /* told for each byte that came */

/* A line: `bucket` bytes at `fast`, all others at `rate`; TCP sends nothing faster than it has doubled. */
struct line {
    double rate, fast, bucket; /* bytes per second, bytes */
    double round_trip_s;       /* 0: TCP is at full speed at once */
    double late_s;             /* how late one looks, at most */
    double loads;              /* bytes of a message: only whole ones are seen */
};

static struct meter meter;

/* Bytes that have come by then. */
static double came(const struct line *line, double t)
{
    double by_line = t * line->fast <= line->bucket
                         ? t * line->fast
                         : line->bucket + (t - line->bucket / line->fast) * line->rate;
    double by_tcp = 0;

    if (line->round_trip_s <= 0)
        return by_line;
    double window = 14480;
    for (double at = 0; at <= t && by_tcp < by_line; at += line->round_trip_s, window *= 2)
        by_tcp += window;
    return by_tcp < by_line ? by_tcp : by_line;
}

static double told_mbit(const struct line *line, double total)
{
    struct probe_result result;
    struct prng prng;
    double t = 0.001, seen = 0;

    memset(&meter, 0, sizeof meter);
    prng_init(&prng, 7);
    meter_mark(&meter, 0, 1);
    while (seen < total) {
        double bytes = came(line, t);
        bytes -= line->loads > 0 ? bytes - line->loads * (double)(uint64_t)(bytes / line->loads) : 0;
        seen = bytes < total ? bytes : total;
        meter_mark(&meter, (uint64_t)seen, (uint64_t)(t * 1e9));
        t += 20e-6 + line->late_s * prng_unit(&prng);
    }
    meter_result(&meter, &result);
    assert_true(result.bytes <= (uint64_t)total);
    return result.mbit_x10 / 10.0 / WIRE;
}

static void within(const struct line *line, double total, double percent)
{
    double mbit = told_mbit(line, total), wanted = line->rate * 8 / 1e6;

    if (mbit < wanted * (1 - percent / 100) || mbit > wanted * (1 + percent / 100))
        fail_msg("%.2f Mbit/s told, %.2f are so", mbit, wanted);
}

TEST(steady_lines)
{
    static const double rates[] = {125e3, 1.25e6, 12.5e6, 125e6, 1.25e9};

    for (int i = 0; i < 5; i++) {
        struct line line = {.rate = rates[i], .fast = rates[i], .loads = 16384};
        double total = rates[i] * 0.2;
        within(&line, total < 262144 ? 262144 : total > 8e6 ? 8e6 : total, 5);
    }
}

TEST(late_looks_do_not_matter)
{
    struct line line = {.rate = 125e6, .fast = 125e6, .loads = 16384, .late_s = 0.004};

    within(&line, 8e6, 3);
    line.late_s = 0.01;
    within(&line, 8e6, 5);
}

TEST(buckets_run_ahead)
{
    static const double buckets[] = {131072, 500e3, 1e6, 1.5e6};

    for (int i = 0; i < 4; i++) {
        struct line line = {.rate = 12.5e6, .fast = 1.25e9, .bucket = buckets[i], .loads = 16384};
        within(&line, 2.5e6, 5);
        line = (struct line){.rate = 125e6, .fast = 1.25e9, .bucket = 3 * buckets[i], .loads = 16384};
        within(&line, 8e6, 5);
    }
}

TEST(tcp_begins_slowly)
{
    static const double trips[] = {0.001, 0.005, 0.01, 0.02};

    for (int i = 0; i < 4; i++) {
        struct line line = {.rate = 12.5e6, .fast = 12.5e6, .loads = 16384, .round_trip_s = trips[i]};
        within(&line, 2.5e6, 8);
    }
}

TEST(too_little_tells_nothing)
{
    struct line line = {.rate = 12.5e6, .fast = 12.5e6};
    struct probe_result result;

    assert_true(told_mbit(&line, 40000) == 0);
    memset(&meter, 0, sizeof meter);
    meter_result(&meter, &result);
    assert_int_equal(result.mbit_x10, 0);
    for (uint64_t i = 0; i < 3000; i++) /* no time passes, and more marks than there are places */
        meter_mark(&meter, i * METER_STEP, 5);
    assert_int_equal(meter.count, METER_MARKS_MAX);
    meter_result(&meter, &result);
    assert_int_equal(result.mbit_x10, 0);
}
