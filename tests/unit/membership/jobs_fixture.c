/* SPDX-License-Identifier: Apache-2.0 */
/* The office: virtual time, messages between members. */
#include "jobs_fixture.h"

#include "people.h"
#include "support/suite.h"

static void must(bool so, const char *what)
{
    if (so)
        return;
    fprintf(stderr, "office: %s\n", what);
    abort();
}

int jobs_fixture_of(const struct identity *id)
{
    return id->node.bytes[0];
}

static void open_control_socket(struct jobs_fixture *o, int at)
{
    struct control_socket *control = &o->members[at];

    outbox_init(&control->box, &o->heap);
    struct jobs_setup setup = {
        .heap = &o->heap,
        .outbox = &control->box,
        .self = person(at).id,
        .seed = 100 + (uint64_t)at,
        .now_ns = o->now_ns,
    };
    must(jobs_open(&setup, &control->jobs) == HEARTH_OK, "no memory");
    control->alive = true;
}

void jobs_fixture_open(struct jobs_fixture *o, int size, uint64_t seed)
{
    memset(o, 0, sizeof *o);
    heap_init(&o->heap, 0);
    prng_init(&o->draws, seed);
    o->now_ns = 1000 * NS_PER_S;
    o->size = size;
    o->view.instance = 77;
    for (int i = 0; i < size; i++)
        open_control_socket(o, i);
}

void jobs_fixture_crash(struct jobs_fixture *o, int at)
{
    struct control_socket *control = &o->members[at];

    if (!control->alive)
        return;
    jobs_close(control->jobs);
    outbox_fini(&control->box);
    control->alive = false;
}

void jobs_fixture_close(struct jobs_fixture *o)
{
    for (int i = 0; i < o->size; i++)
        jobs_fixture_crash(o, i);
    for (int i = 0; i < o->messages; i++)
        heap_free(o->underway[i].message);
    must(o->heap.blocks == 0, "a block is left");
}

void jobs_fixture_view(struct jobs_fixture *o, unsigned members, int leader, unsigned told, bool quorum)
{
    struct view *c = &o->view;
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
        if (o->members[i].alive && told >> i & 1)
            jobs_view(o->members[i].jobs, c, i == leader && quorum, quorum, o->now_ns);
}

int jobs_fixture_request(struct jobs_fixture *o, int control, const char *job, int min, const char *settings)
{
    struct job_request request = {.min = min, .place_len = 4, .place = {'p', (uint8_t)control, 'x', 'y'}};
    struct error error;

    snprintf(request.job, sizeof request.job, "%s", job);
    snprintf(request.settings, sizeof request.settings, "%s", settings);
    return jobs_request(o->members[control].jobs, &request, 10 + (uint64_t)control, o->now_ns, &error);
}

/* ---- The network ---- */

static void post(struct jobs_fixture *o, int from, struct outbox_message *message)
{
    int to = jobs_fixture_of(&message->to);
    uint64_t delay_ns = LATENCY_NS + (o->delay_ns > 0 ? prng_below(&o->draws, o->delay_ns) : 0);

    if ((int)prng_below(&o->draws, 100) < o->lose_percent || o->cut[from] || o->cut[to]) {
        heap_free(message);
        return;
    }
    must(o->messages < MESSAGES_MAX, "too many messages under way");
    o->underway[o->messages++] = (struct underway){o->now_ns + delay_ns, from, to, message};
}

static void collect(struct jobs_fixture *o, int from)
{
    struct outbox_message *message;

    while ((message = outbox_take(&o->members[from].box))) {
        if ((int)prng_below(&o->draws, 100) < o->double_percent) {
            struct outbox_message *again = heap_alloc(&o->heap, 1, sizeof *again + message->len);
            must(again, "no memory");
            memcpy(again, message, sizeof *again + message->len);
            post(o, from, again);
        }
        post(o, from, message);
    }
}

static void deliver(struct jobs_fixture *o)
{
    for (int i = 0; i < o->messages; i++) {
        struct underway u = o->underway[i];
        const char *what = "";
        if (u.at_ns > o->now_ns)
            continue;
        o->underway[i--] = o->underway[--o->messages];
        if (o->members[u.to].alive) {
            struct identity from = person(u.from).id;
            must(jobs_input(o->members[u.to].jobs,
                            &(struct received){&from, u.message->kind, u.message->payload, u.message->len},
                            o->now_ns, &what) == HEARTH_OK,
                 what);
        }
        heap_free(u.message);
    }
}

/* ---- Time ---- */

static void read_news(struct jobs_fixture *o, int at)
{
    struct control_socket *control = &o->members[at];
    struct job_news news;

    while (control->alive && jobs_news(control->jobs, &news)) {
        if (news.kind == JOB_FORMED) {
            control->group = *news.spec;
            control->ended = false;
            control->formed_count++;
        } else if (news.kind == JOB_ENDED) {
            control->ended |= news.id == control->group.id;
            control->ended_count++;
            memcpy(control->ended_text, news.text, sizeof news.text);
        } else if (news.kind == JOB_REFUSED) {
            control->refused_count++;
            control->refused = news.reason;
            memcpy(control->refused_text, news.text, sizeof news.text);
        } else {
            control->wanted_count++;
            memcpy(control->wanted, news.job, sizeof news.job);
        }
        if (o->news)
            o->news(o, at, &news);
    }
}

static uint64_t next_event(const struct jobs_fixture *o, uint64_t end_ns)
{
    uint64_t next_ns = end_ns;

    for (int i = 0; i < o->messages; i++)
        if (o->underway[i].at_ns < next_ns)
            next_ns = o->underway[i].at_ns;
    for (int i = 0; i < o->size; i++)
        if (o->members[i].alive && jobs_deadline(o->members[i].jobs) < next_ns)
            next_ns = jobs_deadline(o->members[i].jobs);
    return next_ns > o->now_ns ? next_ns : o->now_ns;
}

void jobs_fixture_run(struct jobs_fixture *o, uint64_t ns)
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
            if (!o->members[i].alive)
                continue;
            if (jobs_deadline(o->members[i].jobs) <= o->now_ns)
                jobs_tick(o->members[i].jobs, o->now_ns);
            collect(o, i);
            read_news(o, i);
        }
    }
}

/* ---- What is so ---- */

void jobs_fixture_assert_group(const struct jobs_fixture *o, unsigned members)
{
    const struct group_spec *first = NULL;

    for (int i = 0; i < o->size; i++) {
        const struct group_spec *group = &o->members[i].group;
        bool in = group->id != 0 && !o->members[i].ended;
        assert_int_equal(in, members >> i & 1);
        if (!in)
            continue;
        first = first ? first : group;
        assert_int_equal(group->id, first->id);
        assert_int_equal(group->size, __builtin_popcount(members));
        assert_memory_equal(group->members, first->members, sizeof group->members);
        assert_int_equal(jobs_fixture_of(&group->members[group->rank]), i);
        for (int r = 0; r < group->size; r++) {
            int other = jobs_fixture_of(&group->members[r]);
            assert_true(members >> other & 1);
            assert_int_equal(group->place_len[r], 4);
            assert_int_equal(group->place[r][1], other);
            assert_int_equal(group->done[r], 10 + other);
        }
    }
}

const char *jobs_fixture_why_not(const struct jobs_fixture *o, int control, const char *job)
{
    static char text[JOB_TEXT_MAX];

    jobs_why_not(o->members[control].jobs, job, text, sizeof text);
    return text;
}
