/* SPDX-License-Identifier: Apache-2.0 */
/* The office: virtual time, letters between desks. */
#include "office.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "people.h"

static void must(bool so, const char *what)
{
    if (so)
        return;
    fprintf(stderr, "office: %s\n", what);
    abort();
}

int office_desk_of(const struct identity *id)
{
    return id->node.bytes[0];
}

static void open_desk(struct office *o, int at)
{
    struct desk *desk = &o->desks[at];

    outbox_init(&desk->box, &o->heap);
    struct jobs_setup setup = {
        .heap = &o->heap,
        .outbox = &desk->box,
        .self = person(at).id,
        .seed = 100 + (uint64_t)at,
        .now_ns = o->now_ns,
    };
    must(jobs_open(&setup, &desk->jobs) == HEARTH_OK, "no memory");
    desk->alive = true;
}

void office_open(struct office *o, int size, uint64_t seed)
{
    memset(o, 0, sizeof(*o));
    heap_init(&o->heap, 0);
    prng_init(&o->draws, seed);
    o->now_ns = 1000 * NS_PER_S;
    o->size = size;
    o->census.instance = 77;
    for (int i = 0; i < size; i++)
        open_desk(o, i);
}

void office_crash(struct office *o, int at)
{
    struct desk *desk = &o->desks[at];

    if (!desk->alive)
        return;
    jobs_close(desk->jobs);
    outbox_fini(&desk->box);
    desk->alive = false;
}

void office_close(struct office *o)
{
    for (int i = 0; i < o->size; i++)
        office_crash(o, i);
    for (int i = 0; i < o->letters; i++)
        heap_free(o->underway[i].letter);
    must(o->heap.blocks == 0, "a block is left");
}

void office_census(struct office *o, unsigned members, int leader, unsigned told, bool quorum)
{
    struct census *c = &o->census;
    struct identity old = c->size > 0 ? c->members[c->leader].id : (struct identity){0};

    c->epoch++;
    c->size = 0;
    for (int i = 0; i < o->size; i++)
        if (members >> i & 1) {
            if (i == leader)
                c->leader = c->size;
            c->members[c->size++] = person(i);
        }
    if (!identity_equal(&old, &c->members[c->leader].id))
        c->term++;
    for (int i = 0; i < o->size; i++)
        if (o->desks[i].alive && told >> i & 1)
            jobs_census(o->desks[i].jobs, c, i == leader && quorum, quorum, o->now_ns);
}

int office_wish(struct office *o, int desk, const char *job, int min, const char *settings)
{
    struct job_wish wish = {.min = min, .place_len = 4, .place = {'p', (uint8_t)desk, 'x', 'y'}};
    struct error error;

    snprintf(wish.job, sizeof(wish.job), "%s", job);
    snprintf(wish.settings, sizeof(wish.settings), "%s", settings);
    return jobs_wish(o->desks[desk].jobs, &wish, 10 + (uint64_t)desk, o->now_ns, &error);
}

/* ---- The network ---- */

static void post(struct office *o, int from, struct outbox_letter *letter)
{
    int to = office_desk_of(&letter->to);
    uint64_t delay_ns = LATENCY_NS + (o->delay_ns > 0 ? prng_below(&o->draws, o->delay_ns) : 0);

    if ((int)prng_below(&o->draws, 100) < o->lose_percent || o->cut[from] || o->cut[to]) {
        heap_free(letter);
        return;
    }
    must(o->letters < LETTERS_MAX, "too many letters under way");
    o->underway[o->letters++] = (struct underway){o->now_ns + delay_ns, from, to, letter};
}

static void collect(struct office *o, int from)
{
    struct outbox_letter *letter;

    while ((letter = outbox_take(&o->desks[from].box)) != NULL) {
        if ((int)prng_below(&o->draws, 100) < o->double_percent) {
            struct outbox_letter *again = heap_alloc(&o->heap, 1, sizeof(*again) + letter->len);
            must(again != NULL, "no memory");
            memcpy(again, letter, sizeof(*again) + letter->len);
            post(o, from, again);
        }
        post(o, from, letter);
    }
}

static void deliver(struct office *o)
{
    for (int i = 0; i < o->letters; i++) {
        struct underway u = o->underway[i];
        const char *what = "";
        if (u.at_ns > o->now_ns)
            continue;
        o->underway[i--] = o->underway[--o->letters];
        if (o->desks[u.to].alive) {
            struct identity from = person(u.from).id;
            must(jobs_input(o->desks[u.to].jobs, &from, u.letter->kind, u.letter->payload, u.letter->len,
                            o->now_ns, &what) == HEARTH_OK,
                 what);
        }
        heap_free(u.letter);
    }
}

/* ---- Time ---- */

static void read_news(struct office *o, int at)
{
    struct desk *desk = &o->desks[at];
    struct job_news news;

    while (desk->alive && jobs_news(desk->jobs, &news)) {
        if (news.kind == JOB_FORMED) {
            desk->group = *news.formation;
            desk->ended = false;
            desk->formed_count++;
        } else if (news.kind == JOB_ENDED) {
            desk->ended |= news.id == desk->group.id;
            desk->ended_count++;
            memcpy(desk->ended_text, news.text, sizeof(news.text));
        } else if (news.kind == JOB_REFUSED) {
            desk->refused_count++;
            memcpy(desk->refused_text, news.text, sizeof(news.text));
        } else {
            desk->wanted_count++;
            memcpy(desk->wanted, news.job, sizeof(news.job));
        }
        if (o->news)
            o->news(o, at, &news);
    }
}

static uint64_t next_event(const struct office *o, uint64_t end_ns)
{
    uint64_t next_ns = end_ns;

    for (int i = 0; i < o->letters; i++)
        if (o->underway[i].at_ns < next_ns)
            next_ns = o->underway[i].at_ns;
    for (int i = 0; i < o->size; i++)
        if (o->desks[i].alive && jobs_deadline(o->desks[i].jobs) < next_ns)
            next_ns = jobs_deadline(o->desks[i].jobs);
    return next_ns > o->now_ns ? next_ns : o->now_ns;
}

void office_run(struct office *o, uint64_t ns)
{
    uint64_t end_ns = o->now_ns + ns;
    int idle = 0;

    while (o->now_ns < end_ns) {
        uint64_t next_ns = next_event(o, end_ns);
        idle = next_ns == o->now_ns ? idle + 1 : 0;
        must(idle < 1000, "time does not pass");
        o->now_ns = next_ns;
        deliver(o);
        for (int i = 0; i < o->size; i++) {
            if (!o->desks[i].alive)
                continue;
            if (jobs_deadline(o->desks[i].jobs) <= o->now_ns)
                jobs_tick(o->desks[i].jobs, o->now_ns);
            collect(o, i);
            read_news(o, i);
        }
    }
}

/* ---- What is so ---- */

void office_assert_group(const struct office *o, unsigned members)
{
    const struct formation *first = NULL;

    for (int i = 0; i < o->size; i++) {
        const struct formation *group = &o->desks[i].group;
        bool in = group->id != 0 && !o->desks[i].ended;
        assert_int_equal(in, members >> i & 1);
        if (!in)
            continue;
        first = first ? first : group;
        assert_int_equal(group->id, first->id);
        assert_int_equal(group->size, __builtin_popcount(members));
        assert_memory_equal(group->members, first->members, sizeof(group->members));
        assert_int_equal(office_desk_of(&group->members[group->rank]), i);
        for (int r = 0; r < group->size; r++) {
            int other = office_desk_of(&group->members[r]);
            assert_true(members >> other & 1);
            assert_int_equal(group->place_len[r], 4);
            assert_int_equal(group->place[r][1], other);
            assert_int_equal(group->done[r], 10 + other);
        }
    }
}

const char *office_why_not(const struct office *o, int desk, const char *job)
{
    static char text[JOB_TEXT_MAX];

    jobs_why_not(o->desks[desk].jobs, job, text, sizeof(text));
    return text;
}
