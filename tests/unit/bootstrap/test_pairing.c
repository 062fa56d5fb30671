/* SPDX-License-Identifier: Apache-2.0 */
/* Two ends of a pair against each other, in thousands of seeded orders of events: both keep the same
 * sockets. */
#include "bootstrap/pairing.h"
#include "support/suite.h"

#define LOWER   0
#define HIGHER  1
#define SOCKETS 4000
#define END_NS  (100 * NS_PER_S)

/* What happens next on a socket, and at which end. */
enum event { NOTHING, REFUSED, GREET, WELCOME, CONFIRM, GONE };

struct socket {
    int dialler, channel, via;
    enum event event;
    int at; /* end that the event happens at */
    int channels;
    uint64_t at_ns;
};

struct world {
    struct prng prng;
    uint64_t now_ns;
    struct pairing ends[2];
    struct dialer dialers[2];
    bool reachable[2][PAIRING_VIAS]; /* [dialler] */
    uint64_t delay_ns;               /* at most */
    struct socket sockets[SOCKETS];
    int count;
    int kept[2][MESH_CHANNELS_MAX]; /* which socket; -1 */
};

static void plan(struct world *w, struct socket *s, enum event event, int at)
{
    s->event = event;
    s->at = at;
    s->at_ns = w->now_ns + 1 + prng_below(&w->prng, w->delay_ns);
}

static struct dialer_setup dialer_setup(uint32_t misses_max, uint64_t seed)
{
    return (struct dialer_setup){
        .attempts_max = DIAL_ATTEMPTS_MAX,
        .pause_ns = PAIRING_BACKOFF_NS,
        .pause_miss_ns = PAIRING_REFUSED_NS,
        .pause_max_ns = PAIRING_BACKOFF_MAX,
        .misses_max = misses_max,
        .connect_ns = NEVER_NS,
        .handshake_ns = NEVER_NS,
        .seed = seed,
    };
}

static struct dial_target *target_of(struct pairing *p, int channel, int via)
{
    return &p->channels[channel].tries[via];
}

/* What is to be dialled now; false: nothing. */
static bool dial_one(struct pairing *p, uint64_t now_ns, int *channel, int *via)
{
    struct dial_order order;

    dialer_tick(p->setup.dialer, now_ns);
    if (!dialer_output(p->setup.dialer, &order))
        return false;
    assert_int_equal(order.why, DIAL_START);
    *channel = (int)order.target->key / PAIRING_VIAS;
    *via = (int)order.target->key % PAIRING_VIAS;
    assert_ptr_equal(order.target, target_of(p, *channel, *via));
    return true;
}

static void dial_failed(struct pairing *p, int channel, int via, enum dial_fault fault, uint64_t now_ns)
{
    if (dial_target_busy(target_of(p, channel, via)))
        dialer_failed(p->setup.dialer, target_of(p, channel, via), fault, now_ns);
}

static uint64_t due_at(const struct pairing *p)
{
    uint64_t dial_ns = dialer_deadline(p->setup.dialer), stuck_ns = pairing_due(p);

    return dial_ns < stuck_ns ? dial_ns : stuck_ns;
}

static void world_init(struct world *w, uint64_t seed, const struct pairing_setup *setup, uint64_t delay_ns)
{
    memset(w, 0, sizeof *w);
    prng_init(&w->prng, seed);
    w->delay_ns = delay_ns;
    for (int end = 0; end < 2; end++) {
        struct pairing_setup own = *setup;
        own.decides = end == LOWER;
        struct dialer_setup dialer = dialer_setup(own.connect_retries, seed * 2 + (uint64_t)end);
        uint64_t begin_ns = prng_below(&w->prng, delay_ns);
        dialer_init(&w->dialers[end], &dialer, begin_ns);
        own.dialer = &w->dialers[end];
        pairing_init(&w->ends[end], &own, begin_ns);
        for (int i = 0; i < MESH_CHANNELS_MAX; i++)
            w->kept[end][i] = -1;
        for (int i = 0; i < PAIRING_VIAS; i++)
            w->reachable[end][i] = true;
    }
}

static void keep(struct world *w, int end, struct socket *s)
{
    assert_int_equal(w->kept[end][s->channel], -1);
    w->kept[end][s->channel] = (int)(s - w->sockets);
}

static void dial(struct world *w, int end)
{
    int channel, via;

    while (dial_one(&w->ends[end], w->now_ns, &channel, &via)) {
        assert_true(w->count < SOCKETS);
        struct socket *s = &w->sockets[w->count++];
        *s = (struct socket){.dialler = end, .channel = channel, .via = via};
        s->channels = w->ends[end].count;
        bool reached = w->reachable[end][via];
        plan(w, s, reached ? GREET : REFUSED, reached ? !end : end);
    }
}

/* The event happens; whoever drops the socket is answered by the other end's seeing it closed. */
static void happen(struct world *w, struct socket *s)
{
    struct pairing *p = &w->ends[s->at];
    bool local = s->via == PAIRING_LOCAL;
    enum pairing_verdict verdict = PAIRING_DROP;
    enum event event = s->event;

    s->event = NOTHING;
    if (event == REFUSED || event == GONE) {
        if (s->at == s->dialler)
            dial_failed(p, s->channel, s->via, event == GONE ? DIAL_CLOSED : DIAL_UNREACHABLE, w->now_ns);
        return;
    }
    if (event == GREET)
        verdict = pairing_greeted(p, s->channel, s->channels, local, NS_PER_MS, w->now_ns);
    else if (event == WELCOME)
        verdict = pairing_welcomed(p, s->channel, s->channels, s->via, NS_PER_MS, w->now_ns);
    else
        verdict = pairing_confirmed(p, s->channel, s->channels, local, w->now_ns);
    s->channels = p->count;
    if (verdict == PAIRING_KEEP)
        keep(w, s->at, s);
    if (verdict == PAIRING_DROP)
        plan(w, s, GONE, !s->at);
    else if (event == GREET)
        plan(w, s, WELCOME, !s->at);
    else if (event == WELCOME && s->at == LOWER)
        plan(w, s, CONFIRM, HIGHER);
}

static struct socket *next_event(struct world *w, uint64_t *at_ns)
{
    struct socket *next = NULL;

    for (int i = 0; i < w->count; i++) {
        struct socket *s = &w->sockets[i];
        if (s->event != NOTHING && s->at_ns <= *at_ns) {
            next = s;
            *at_ns = s->at_ns;
        }
    }
    return next;
}

/* Until both are through or nothing can come of it any more. */
static bool world_run(struct world *w)
{
    while (w->now_ns < END_NS) {
        dial(w, LOWER);
        dial(w, HIGHER);
        if (pairing_done(&w->ends[0]) && pairing_done(&w->ends[1]))
            return true;
        for (int end = 0; end < 2; end++)
            if (!pairing_done(&w->ends[end]) && pairing_hopeless(&w->ends[end], w->now_ns))
                return false;
        uint64_t due[2] = {due_at(&w->ends[0]), due_at(&w->ends[1])};
        uint64_t next_ns = due[0] < due[1] ? due[0] : due[1];
        struct socket *s = next_event(w, &next_ns);
        assert_true(next_ns != NEVER_NS);
        w->now_ns = next_ns > w->now_ns ? next_ns : w->now_ns;
        if (s)
            happen(w, s);
    }
    return false;
}

static void assert_same(const struct world *w, int channels)
{
    assert_int_equal(w->ends[0].count, channels);
    assert_int_equal(w->ends[1].count, channels);
    for (int i = 0; i < MESH_CHANNELS_MAX; i++) {
        assert_int_equal(w->kept[0][i], w->kept[1][i]);
        assert_int_equal(w->kept[0][i] >= 0, i < channels);
    }
}

static const struct pairing_setup plain = {
    .remote = true,
    .addr_count = 1,
    .connect_timeout_ns = NS_PER_S,
    .connect_retries = 3,
};

/* Delays up to 3 s: both ends dial, answers overtake each other, sockets are lost and made again. */
TEST(both_ends_keep_the_same_sockets)
{
    static struct world w;

    for (uint64_t seed = 1; seed <= 3000; seed++) {
        struct pairing_setup setup = plain;
        setup.addr_count = 1 + (int)(seed % ROSTER_ADDRS_MAX);
        setup.channels = 1 + (int)(seed % MESH_CHANNELS_MAX);
        world_init(&w, seed, &setup, seed % 3 == 0 ? 3 * NS_PER_S : seed % 3 * 40 * NS_PER_MS);
        for (int end = 0; end < 2; end++)
            for (int via = 1; via < setup.addr_count; via++)
                w.reachable[end][via] = prng_below(&w.prng, 2) == 0;
        assert_true(world_run(&w));
        assert_same(&w, setup.channels);
    }
}

TEST(the_lower_rank_dials_when_the_higher_cannot)
{
    static struct world w;

    for (uint64_t seed = 1; seed <= 200; seed++) {
        struct pairing_setup setup = plain;
        setup.channels = 4;
        world_init(&w, seed, &setup, 30 * NS_PER_MS);
        w.reachable[HIGHER][0] = false;
        assert_true(world_run(&w));
        assert_same(&w, 4);
        assert_true(w.now_ns >= PAIRING_LOWER_NS);
        assert_int_equal(w.sockets[w.kept[0][3]].dialler, LOWER);
    }
}

/* As long as members come, the one that is to be dialled waits; what it has begun goes on. */
TEST(while_members_come_the_lower_rank_waits)
{
    struct pairing_setup setup = plain;
    struct dialer_setup dialing = dialer_setup(3, 1);
    struct dialer dialer;
    struct pairing p;
    int channel, via;

    dialer_init(&dialer, &dialing, 0);
    setup.dialer = &dialer;
    setup.decides = true;
    setup.channels = 3;
    pairing_init(&p, &setup, 0);
    for (uint64_t now_ns = 0; now_ns < 10 * PAIRING_LOWER_NS; now_ns += PAIRING_LOWER_NS / 2) {
        pairing_yield(&p, now_ns);
        assert_false(dial_one(&p, now_ns, &channel, &via));
        assert_int_equal(due_at(&p), now_ns + PAIRING_LOWER_NS);
    }
    uint64_t now_ns = 11 * PAIRING_LOWER_NS;
    assert_true(dial_one(&p, now_ns, &channel, &via));
    pairing_yield(&p, now_ns);
    dial_failed(&p, channel, via, DIAL_CLOSED, now_ns);
    pairing_yield(&p, now_ns + 1);
    assert_true(due_at(&p) <= now_ns + PAIRING_BACKOFF_NS);

    /* The peer came at last: the other channels are its turn too. */
    assert_int_equal(pairing_greeted(&p, 0, 0, false, 1, now_ns), PAIRING_KEEP);
    pairing_yield(&p, now_ns + PAIRING_LOWER_NS / 2);
    assert_false(dial_one(&p, now_ns + PAIRING_LOWER_NS, &channel, &via));

    /* Whoever is to dial does not wait. */
    setup.decides = false;
    dialer_init(&dialer, &dialing, now_ns);
    pairing_init(&p, &setup, now_ns);
    pairing_yield(&p, now_ns);
    assert_true(dial_one(&p, now_ns, &channel, &via));
}

TEST(who_cannot_be_reached_at_all_is_given_up)
{
    static struct world w;

    world_init(&w, 1, &plain, NS_PER_MS);
    w.reachable[LOWER][0] = w.reachable[HIGHER][0] = false;
    assert_false(world_run(&w));
    assert_true(w.now_ns < END_NS);
    assert_int_equal(w.count, 8); /* one try and three more, from each end */
}

TEST(members_of_a_host_use_one_local_socket)
{
    static struct world w;
    struct pairing_setup setup = plain;

    setup.local = true;
    setup.channels = 5;
    for (uint64_t seed = 1; seed <= 300; seed++) {
        world_init(&w, seed, &setup, 2 * NS_PER_S);
        assert_true(world_run(&w));
        assert_same(&w, 1);
        assert_true(w.ends[0].kept_local && w.ends[1].kept_local);
        assert_int_equal(w.sockets[w.kept[0][0]].via, PAIRING_LOCAL);
    }
}

TEST(where_the_local_via_fails_tcp_is_used)
{
    static struct world w;
    struct pairing_setup setup = plain;
    int channel, via;

    setup.local = true;
    setup.channels = 2;
    world_init(&w, 7, &setup, NS_PER_MS);
    w.now_ns = NS_PER_MS;
    assert_true(dial_one(&w.ends[HIGHER], w.now_ns, &channel, &via));
    assert_int_equal(via, PAIRING_LOCAL);
    assert_false(dial_one(&w.ends[HIGHER], w.now_ns, &channel, &via));
    dial_failed(&w.ends[HIGHER], 0, PAIRING_LOCAL, DIAL_SYSTEM, w.now_ns);
    assert_true(pairing_fall_back(&w.ends[HIGHER], w.now_ns));
    assert_false(pairing_fall_back(&w.ends[HIGHER], w.now_ns));
    assert_true(world_run(&w));
    assert_same(&w, 2);
    assert_false(w.ends[LOWER].kept_local);

    setup.remote = false;
    world_init(&w, 7, &setup, NS_PER_MS);
    assert_false(pairing_fall_back(&w.ends[HIGHER], 0));
    assert_int_equal(pairing_greeted(&w.ends[LOWER], 0, 0, false, 1, 0), PAIRING_DROP);
}

TEST(wrong_numbers_of_channels_are_dropped)
{
    struct dialer_setup dialing = dialer_setup(3, 1);
    struct pairing_setup setup = plain;
    struct dialer dialer;
    struct pairing p;

    dialer_init(&dialer, &dialing, 0);
    setup.dialer = &dialer;
    pairing_init(&p, &setup, 0);
    assert_int_equal(pairing_welcomed(&p, 0, 0, 0, 1, 0), PAIRING_DROP);
    assert_int_equal(pairing_welcomed(&p, 0, MESH_CHANNELS_MAX + 1, 0, 1, 0), PAIRING_DROP);
    assert_int_equal(pairing_welcomed(&p, 0, 3, 0, 1, 0), PAIRING_KEEP);
    assert_int_equal(pairing_confirmed(&p, 1, 4, false, 0), PAIRING_DROP);
    assert_int_equal(pairing_confirmed(&p, 1, 3, false, 0), PAIRING_KEEP);
    assert_int_equal(pairing_greeted(&p, 1, 3, false, 1, 0), PAIRING_DROP);
    assert_int_equal(pairing_greeted(&p, 2, 3, false, 1, 0), PAIRING_OFFER);
    assert_int_equal(pairing_greeted(&p, 3, 4, false, 1, 0), PAIRING_DROP);
    assert_int_equal(pairing_greeted(&p, 0, 0, true, 1, 0), PAIRING_DROP);
}

TEST(distance_decides_the_number_of_channels)
{
    struct pairing_setup setup = plain;

    setup.rate_bytes_per_s = 125e6;
    assert_int_equal(pairing_channels(&setup, 0), 2);
    assert_int_equal(pairing_channels(&setup, 2 * NS_PER_MS - 1), 2);
    assert_int_equal(pairing_channels(&setup, 2 * NS_PER_MS), 2);
    assert_int_equal(pairing_channels(&setup, 5 * NS_PER_MS), 3);   /* 625 kB */
    assert_int_equal(pairing_channels(&setup, 20 * NS_PER_MS), 6);  /* 2.5 MB */
    assert_int_equal(pairing_channels(&setup, 200 * NS_PER_MS), 9); /* 25 MB */
    setup.channels = 4;
    assert_int_equal(pairing_channels(&setup, 200 * NS_PER_MS), 4);
}
