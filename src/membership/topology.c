/* SPDX-License-Identifier: Apache-2.0 */
/* The table of paths: follows the view, is sent to all members, decoded with checks. */
#include "membership/topology.h"

#include <string.h>

#define PPM 1000000u

const char *path_kind_name(enum path_kind kind)
{
    static const char *const names[] = {"unknown", "same host", "wire", "wireless", "tunnel", "other"};

    return (unsigned)kind < sizeof names / sizeof names[0] ? names[kind] : names[PATH_UNKNOWN];
}

void topology_reset(struct topology *t, const struct view *view)
{
    memset(t, 0, sizeof *t);
    t->instance = view->instance;
    t->epoch = view->epoch;
    t->size = view->size;
}

void topology_follow(struct topology *t, const struct view *old, const struct view *view)
{
    struct topology before = *t; /* 64 KiB; any member may have another index */
    int was[VIEW_MEMBERS_MAX];

    for (int i = 0; i < view->size; i++) {
        was[i] = view_find(old, &view->members[i].id);
        if (was[i] >= before.size)
            was[i] = -1;
    }
    topology_reset(t, view);
    for (int i = 0; i < view->size; i++)
        for (int j = 0; j < view->size; j++)
            if (was[i] >= 0 && was[j] >= 0)
                *topology_path(t, i, j) = *topology_path(&before, was[i], was[j]);
}

/* (weight * new + (of - weight) * old) / of; a value that was not known before is the new one. */
static uint32_t blend(uint32_t old, uint32_t new, uint32_t weight, uint32_t of)
{
    if (old == 0)
        return new;
    return (uint32_t)(((uint64_t)weight * new + (uint64_t)(of - weight) * old) / of);
}

void path_merge(struct path_measure *into, const struct path_measure *sample)
{
    if (sample->mbit_x10 > 0) {
        uint32_t quality = (uint32_t)into->quality + (sample->quality > 0 ? sample->quality : 1);
        into->mbit_x10 = blend(into->mbit_x10, sample->mbit_x10, 2, 3);
        into->quality = (uint8_t)(quality < 255 ? quality : 255);
        into->age_s = sample->age_s;
    }
    if (sample->round_trip_us > 0) { /* loss is valid together with it */
        into->loss_ppm = into->round_trip_us > 0
                             ? (uint32_t)((sample->loss_ppm + (uint64_t)4 * into->loss_ppm) / 5)
                             : sample->loss_ppm;
        into->round_trip_us = blend(into->round_trip_us, sample->round_trip_us, 1, 5);
    }
    if (sample->kind != PATH_UNKNOWN)
        into->kind = sample->kind;
}

/* ---- Bytes ---- */

static bool path_known(const struct path_measure *path)
{
    return path->mbit_x10 || path->round_trip_us || path->loss_ppm || path->kind || path->quality ||
           path->age_s;
}

static size_t bits_len(int size)
{
    return ((size_t)size * (size_t)size + 7) / 8;
}

static bool bit_get(const uint8_t *bits, size_t at)
{
    return bits[at / 8] >> at % 8 & 1;
}

size_t topology_encode(const struct topology *t, void *target, size_t size)
{
    struct writer w = writer_of(target, size);
    uint8_t bits[VIEW_MEMBERS_MAX * VIEW_MEMBERS_MAX / 8] = {0};
    size_t n = (size_t)t->size;

    for (size_t at = 0; at < n * n; at++)
        if (at / n != at % n && path_known(&t->paths[at / n * VIEW_MEMBERS_MAX + at % n]))
            bits[at / 8] = (uint8_t)(bits[at / 8] | 1u << at % 8);
    put_u64(&w, t->instance);
    put_u64(&w, t->epoch);
    put_u32(&w, (uint32_t)t->size);
    put_bytes(&w, bits, bits_len(t->size));
    for (size_t at = 0; at < n * n; at++) {
        const struct path_measure *path = &t->paths[at / n * VIEW_MEMBERS_MAX + at % n];
        if (!bit_get(bits, at))
            continue;
        put_u32(&w, path->mbit_x10);
        put_u32(&w, path->round_trip_us);
        put_u32(&w, path->loss_ppm);
        put_u8(&w, path->kind);
        put_u8(&w, path->quality);
        put_u16(&w, path->age_s);
    }
    return w.bad ? 0 : size - (size_t)(w.end - w.at);
}

static bool path_get(struct reader *r, struct path_measure *path)
{
    path->mbit_x10 = get_u32(r);
    path->round_trip_us = get_u32(r);
    path->loss_ppm = get_u32(r);
    path->kind = get_u8(r);
    path->quality = get_u8(r);
    path->age_s = get_u16(r);
    return !r->bad && path->loss_ppm <= PPM && path->kind <= PATH_OTHER && path_known(path);
}

int topology_decode(struct topology *t, const void *source, size_t len)
{
    struct reader r = reader_of(source, len);
    uint8_t bits[VIEW_MEMBERS_MAX * VIEW_MEMBERS_MAX / 8];

    memset(t, 0, sizeof *t);
    t->instance = get_u64(&r);
    t->epoch = get_u64(&r);
    uint32_t size = get_u32(&r);
    if (r.bad || t->instance == 0 || t->epoch == 0 || size == 0 || size > VIEW_MEMBERS_MAX)
        return HEARTH_PROTOCOL;
    get_bytes(&r, bits, bits_len((int)size));
    if (r.bad)
        return HEARTH_PROTOCOL;
    for (size_t at = 0; at < bits_len((int)size) * 8; at++) {
        size_t from = at / size, to = at % size;
        if (!bit_get(bits, at))
            continue;
        if (from >= size || from == to || !path_get(&r, &t->paths[from * VIEW_MEMBERS_MAX + to]))
            return HEARTH_PROTOCOL;
    }
    if (reader_left(&r) > 0)
        return HEARTH_PROTOCOL;
    t->size = (int)size;
    return HEARTH_OK;
}

/* ---- slow lines ---- */

/* Members of a group, as topology_slow_line gets them. */
struct lines {
    const struct topology *t;
    const int *members;
    const uint64_t *hosts;
    int count;
};

/* The fastest path from a host to each member, or from each member to the host. */
static void host_paths(const struct lines *l, uint64_t host, bool out, uint32_t best[static VIEW_MEMBERS_MAX])
{
    for (int i = 0; i < l->count; i++) {
        best[i] = 0;
        for (int k = 0; k < l->count; k++) {
            int from = l->members[out ? k : i], to = l->members[out ? i : k];
            uint32_t speed = l->t->paths[from * VIEW_MEMBERS_MAX + to].mbit_x10;
            best[i] = l->hosts[k] == host && speed > best[i] ? speed : best[i];
        }
    }
}

struct line_speed {
    uint32_t most;  /* upper bound; UINT32_MAX: not all of its paths were measured */
    uint32_t least; /* measured */
};

/* Members of one host share a line: the speed of one of them holds for all. */
static struct line_speed direction_speed(const struct lines *l, uint64_t host, bool out)
{
    struct line_speed line = {0, 0};
    uint32_t best[VIEW_MEMBERS_MAX];

    host_paths(l, host, out, best);
    for (int i = 0; i < l->count; i++) {
        uint32_t speed = 0;
        for (int k = 0; k < l->count; k++)
            speed = l->hosts[k] == l->hosts[i] && best[k] > speed ? best[k] : speed;
        if (l->hosts[i] == host)
            continue;
        line.least = speed > line.least ? speed : line.least;
        line.most = speed == 0 ? UINT32_MAX : line.most;
    }
    line.most = line.most > line.least ? line.most : line.least;
    return line;
}

/* The slower of the two directions. */
static struct line_speed line_of(const struct lines *l, uint64_t host)
{
    struct line_speed out = direction_speed(l, host, true), in = direction_speed(l, host, false);

    return (struct line_speed){.most = out.most < in.most ? out.most : in.most,
                               .least = out.least < in.least ? out.least : in.least};
}

struct slow_line topology_slow_line(const struct topology *t, const int *members, const uint64_t *hosts,
                                    int count)
{
    const struct lines lines = {t, members, hosts, count};
    struct slow_line slow = {.place = -1, .mbit_x10 = UINT32_MAX, .next_mbit_x10 = UINT32_MAX};

    for (int i = 0; i < count; i++) {
        uint32_t speed = line_of(&lines, hosts[i]).most;
        if (speed < slow.mbit_x10) {
            slow.place = i;
            slow.mbit_x10 = speed;
        }
    }
    for (int i = 0; i < count && slow.place >= 0; i++) {
        uint32_t speed = line_of(&lines, hosts[i]).least;
        if (hosts[i] != hosts[slow.place] && speed < slow.next_mbit_x10)
            slow.next_mbit_x10 = speed;
    }
    if (slow.next_mbit_x10 == UINT32_MAX || slow.next_mbit_x10 / 2 <= slow.mbit_x10)
        slow.place = -1;
    return slow;
}
