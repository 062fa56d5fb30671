/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the parts of a cluster from few measures. */
#include "cluster/probe_sketch.h"

#include <string.h>

#define FIRST_HOSTS 3

/* The faster of the two directions: only one may be measured. */
static uint32_t speed_between(const struct topology *table, int a, int b)
{
    uint32_t there = table->paths[a * VIEW_MEMBERS_MAX + b].mbit_x10;
    uint32_t back = table->paths[b * VIEW_MEMBERS_MAX + a].mbit_x10;

    return there > back ? there : back;
}

static bool tried_between(const struct schedule *s, int a, int b)
{
    return s->pairs[a * VIEW_MEMBERS_MAX + b].tried || s->pairs[b * VIEW_MEMBERS_MAX + a].tried;
}

static void join(int *part, int count, int a, int b)
{
    int low = part[a] < part[b] ? part[a] : part[b], high = part[a] < part[b] ? part[b] : part[a];

    for (int i = 0; i < count; i++)
        if (part[i] == high)
            part[i] = low;
}

static int last_of_first_hosts(const struct schedule *s)
{
    int hosts = 0;

    for (int i = 0; i < s->size; i++) {
        int same = 0;
        while (s->members[same].host_id != s->members[i].host_id)
            same++;
        hosts += same == i && schedule_measures(&s->members[i]);
        if (hosts == FIRST_HOSTS)
            return i;
    }
    return s->size - 1;
}

void sketch_make(const struct schedule *s, const struct topology *table, struct sketch *sketch)
{
    uint32_t fastest = 0;

    memset(sketch, 0, sizeof *sketch);
    sketch->third = last_of_first_hosts(s);
    for (int a = 0; a < s->size; a++) {
        sketch->part[a] = a;
        for (int b = 0; b < a; b++)
            fastest = speed_between(table, a, b) > fastest ? speed_between(table, a, b) : fastest;
    }
    for (int a = 0; a < s->size; a++)
        for (int b = 0; b < a; b++) {
            bool fast = fastest > 0 && (uint64_t)speed_between(table, a, b) * 2 >= fastest;
            if (fast || s->members[a].host_id == s->members[b].host_id)
                join(sketch->part, s->size, a, b);
        }
    for (int a = 0; a < s->size; a++)
        sketch->sizes[sketch->part[a]]++;
    for (int a = 0; a < s->size; a++)
        for (int b = 0; b < s->size; b++)
            sketch->seen[sketch->part[a]][sketch->part[b]] |= tried_between(s, a, b);
}

int sketch_merit(const struct schedule *s, const struct sketch *sketch, int from, int to)
{
    bool first = from <= sketch->third && to <= sketch->third;
    int a = sketch->part[from], b = sketch->part[to];

    if (tried_between(s, from, to))
        return 0;
    if (first)
        return SKETCH_MERIT_MAX;
    return a != b && !sketch->seen[a][b] ? sketch->sizes[a] : 0;
}
