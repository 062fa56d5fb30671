/* SPDX-License-Identifier: Apache-2.0 */
/* The rendezvous without sockets: members come in any order, in any pieces, leave and come again. */
#include "bootstrap/rendezvous.h"
#include "bootstrap/rendezvous_client.h"
#include "bootstrap/settings_diff.h"
#include "core/prng.h"
#include "support/persons.h"
#include "support/suite.h"
#include "support/watchdog.h"
#include "wire/meeting.h"

#define MEMBERS_MAX 9
#define START_NS    (1000 * NS_PER_S)
#define STEPS_MAX   200000

static const struct rendezvous_origin somewhere = {.local = false}, neighbour = {.local = true};
static const uint8_t secret[SECRET_LEN] = {1, 2, 3};
static const uint8_t space[NAMESPACE_LEN] = {4, 5, 6};

/* A member with a wire to the rendezvous. */
struct sim_member {
    struct roster_setup setup;
    struct rendezvous_client client;
    struct error error;
    int conn; /* -1: none */
    int status;
    uint32_t deaths_left;
};

struct sim {
    struct heap heap;
    struct notes notes;
    struct admission_log admissions;
    struct rendezvous *r;
    struct prng prng;
    struct sim_member members[MEMBERS_MAX];
    int count;
    uint64_t now_ns;
    uint64_t instances;
};

static struct sim sim; /* of the test that runs */

/* What is demanded of members. */
struct demand {
    bool handed;                           /* the secret is handed out */
    const struct credentials *credentials; /* they must prove who they are */
};

static void sim_open_for(struct sim *s, int size, uint64_t seed, const struct demand *demand)
{
    struct rendezvous_setup setup = {
        .heap = &s->heap,
        .job = "job",
        .settings_text = "a=1 b=2",
        .size = size,
        .settings = 5,
        .seed = seed,
        .deadline_ns = START_NS + 60 * NS_PER_S,
        .secret = demand->handed ? secret : NULL,
        .space = demand->handed || demand->credentials ? space : NULL,
        .credentials = demand->credentials,
        .admissions = &s->admissions,
    };
    struct error error;

    memset(s, 0, sizeof *s);
    setup.log = notes_log(&s->notes, "HEARTH-STRANGER");
    admission_log_init(&s->admissions, &setup.log, 0);
    heap_init(&s->heap, 0);
    prng_init(&s->prng, seed);
    s->now_ns = START_NS;
    assert_int_equal(rendezvous_open(&setup, &s->r, &error), HEARTH_OK);
}

static void sim_open(struct sim *s, int size, uint64_t seed)
{
    sim_open_for(s, size, seed, &(struct demand){.handed = false});
}

static struct sim_member *sim_add(struct sim *s, int size, int rank)
{
    int index = s->count++;
    struct sim_member *m = &s->members[index];

    m->setup = (struct roster_setup){
        .heap = &s->heap,
        .job = "job",
        .settings_text = "a=1 b=2",
        .size = size,
        .settings = 5,
        .deadline_ns = START_NS + 100 * NS_PER_S,
    };
    m->setup.self = (struct peer_info){.id.instance = ++s->instances, .process = 70 + (uint32_t)index};
    snprintf(m->setup.self.name, sizeof m->setup.self.name, "host%d", index);
    assert_int_equal(rendezvous_client_init(&m->client, &m->setup, rank), HEARTH_OK);
    m->conn = -1;
    m->status = HEARTH_PENDING;
    return m;
}

static void sim_close(struct sim *s)
{
    for (int i = 0; i < s->count; i++)
        rendezvous_client_fini(&s->members[i].client);
    rendezvous_close(s->r);
    assert_int_equal(atomic_load(&s->heap.blocks), 0);
}

static void member_dial(struct sim *s, struct sim_member *m)
{
    assert_int_equal(rendezvous_conn_open(s->r, &somewhere, s->now_ns, &m->conn), HEARTH_OK);
    rendezvous_client_begin(&m->client, s->now_ns);
}

static void member_hang_up(struct sim *s, struct sim_member *m)
{
    rendezvous_conn_closed(s->r, m->conn, s->now_ns);
    m->conn = -1;
}

/* Moves at most `max` bytes each way. Whether anything moved. */
static bool member_move(struct sim *s, struct sim_member *m, size_t max)
{
    struct iovec out = rendezvous_client_output(&m->client);
    const uint8_t *bytes;
    size_t len = out.iov_len < max ? out.iov_len : max;

    if (len > 0) {
        rendezvous_input(s->r, m->conn, out.iov_base, len, s->now_ns);
        rendezvous_client_sent(&m->client, len);
    }
    if (rendezvous_conn_gone(s->r, m->conn)) {
        member_hang_up(s, m);
        return true;
    }
    size_t in = rendezvous_output(s->r, m->conn, &bytes);
    if (in == 0)
        return len > 0;
    in = in < max ? in : max;
    m->status = rendezvous_client_input(&m->client, bytes, in, &m->error);
    rendezvous_sent(s->r, m->conn, in, s->now_ns);
    if (m->status != HEARTH_PENDING)
        member_hang_up(s, m);
    return true;
}

/* Until nobody has anything to say. */
static void sim_settle(struct sim *s)
{
    bool moved = true;

    for (int step = 0; moved; step++) {
        assert_true(step < STEPS_MAX);
        moved = false;
        for (int i = 0; i < s->count; i++)
            if (s->members[i].conn >= 0)
                moved |= member_move(s, &s->members[i], 100000);
    }
}

static void check_agreed(struct sim *s, int size)
{
    bool seen[MEMBERS_MAX] = {false};

    for (int i = 0; i < size; i++) {
        struct sim_member *m = &s->members[i];
        const struct roster *r = &m->client.roster;
        if (m->status != HEARTH_OK)
            fail_msg("member %d: %d %s", i, m->status, m->error.text);
        assert_int_equal(r->size, size);
        assert_true(r->cluster != 0 && r->cluster == s->members[0].client.roster.cluster);
        assert_false(seen[r->rank]);
        seen[r->rank] = true;
        if (m->client.rank >= 0)
            assert_int_equal(r->rank, m->client.rank);
        for (int k = 0; k < size; k++)
            assert_true(r->members[k].id.instance == s->members[0].client.roster.members[k].id.instance);
        assert_true(r->members[r->rank].id.instance == m->setup.self.id.instance);
    }
}

/* One random thing happens. */
static void storm_step(struct sim *s)
{
    struct sim_member *m = &s->members[prng_below(&s->prng, (uint64_t)s->count)];

    if (m->status != HEARTH_PENDING)
        return;
    if (m->conn < 0) {
        member_dial(s, m);
    } else if (m->deaths_left > 0 && !rendezvous_over(s->r, NULL) && prng_below(&s->prng, 20) == 0) {
        m->deaths_left--; /* dies, and is started again */
        member_hang_up(s, m);
        if (prng_below(&s->prng, 2) == 0)
            m->setup.self.id.instance = ++s->instances;
    } else {
        member_move(s, m, 1 + (size_t)prng_below(&s->prng, 300));
    }
    s->now_ns += NS_PER_US;
    rendezvous_tick(s->r, s->now_ns);
}

TEST(any_order_any_pieces_and_deaths_end_in_one_roster)
{
    unsigned long seed = first_seed(), end = seed + repeat_count(300);

    for (; seed < end; seed++) {
        struct prng prng;
        prng_init(&prng, seed);
        int size = 1 + (int)prng_below(&prng, MEMBERS_MAX - 1);
        uint64_t mode = prng_below(&prng, 3); /* ranks given, not given, mixed */
        sim_open(&sim, size, seed);
        for (int i = 0; i < size; i++)
            sim_add(&sim, size, mode == 0 || (mode == 2 && i % 2) ? size - 1 - i : -1)->deaths_left =
                (uint32_t)prng_below(&prng, 3);
        for (int step = 0; !rendezvous_over(sim.r, NULL) || !rendezvous_quiet(sim.r); step++) {
            assert_true(step < STEPS_MAX);
            storm_step(&sim);
        }
        check_agreed(&sim, size);
        sim_close(&sim);
    }
}

TEST(ranks_go_by_arrival)
{
    static const int wanted[4] = {-1, 2, -1, -1}, expected[4] = {0, 2, 1, 3};

    sim_open(&sim, 4, 1);
    for (int i = 0; i < 4; i++) {
        member_dial(&sim, sim_add(&sim, 4, wanted[i]));
        sim_settle(&sim);
    }
    check_agreed(&sim, 4);
    for (int i = 0; i < 4; i++)
        assert_int_equal(sim.members[i].client.roster.rank, expected[i]);
    sim_close(&sim);
}

/* The meeting fails for the two members, with these words. */
static void fails_for_all(struct sim *s, int status, const char *word)
{
    struct error error;

    for (int i = 0; i < s->count; i++)
        member_dial(s, &s->members[i]);
    sim_settle(s);
    for (int i = 0; i < s->count; i++) {
        assert_int_equal(s->members[i].status, status);
        assert_true(s->members[i].client.refused);
        if (!strstr(s->members[i].error.text, word))
            fail_msg("no \"%s\" in \"%s\"", word, s->members[i].error.text);
    }
    assert_true(rendezvous_over(s->r, &error));
    assert_int_equal(error.status, status);
    sim_close(s);
}

TEST(contradictions_end_it_for_all)
{
    sim_open(&sim, 3, 1);
    sim_add(&sim, 3, 0);
    sim_add(&sim, 2, 1);
    fails_for_all(&sim, HEARTH_MISMATCH, "process 71 on host1 expects 2 members, others expect 3");

    sim_open(&sim, 3, 1);
    sim_add(&sim, 3, 1);
    sim_add(&sim, 3, 1);
    fails_for_all(&sim, HEARTH_MISMATCH,
                  "rank 1 was given twice: to process 70 on host0 and to process 71 on host1");

    sim_open(&sim, 3, 1);
    sim_add(&sim, 3, -1);
    struct sim_member *m = sim_add(&sim, 3, -1);
    m->setup.settings = 6;
    m->setup.settings_text = "a=1 b=3";
    fails_for_all(&sim, HEARTH_MISMATCH, "b=3 instead of b=2");

    sim_open(&sim, 2, 1);
    sim_add(&sim, 2, 0);
    sim_add(&sim, 2, 1)->setup.channels = INT32_MAX; /* more than it may have files open */
    fails_for_all(&sim, HEARTH_LIMIT, "rank 1, process 71 on host1, cannot take part: the connections to 1");
}

TEST(one_too_many_and_another_job_harm_only_themselves)
{
    sim_open(&sim, 2, 1);
    struct sim_member *first = sim_add(&sim, 2, -1), *stray = sim_add(&sim, 2, -1);
    stray->setup.job = "other";
    member_dial(&sim, first);
    member_dial(&sim, stray);
    sim_settle(&sim);
    assert_int_equal(first->status, HEARTH_PENDING);
    assert_int_equal(stray->status, HEARTH_MISMATCH);
    assert_non_null(strstr(stray->error.text, "\"other\""));

    struct sim_member *second = sim_add(&sim, 2, -1), *third = sim_add(&sim, 2, -1);
    member_dial(&sim, second);
    member_dial(&sim, third);
    member_move(&sim, second, 100000);
    member_move(&sim, third, 100000);
    sim_settle(&sim);
    assert_int_equal(third->status, HEARTH_LIMIT);
    assert_int_equal(first->status, HEARTH_OK);
    assert_int_equal(second->status, HEARTH_OK);
    sim_close(&sim);
}

TEST(versions_must_meet)
{
    struct meeting_register in = {
        .version_min = 900, .version_max = 901, .rank = 1, .size = 2, .settings = 5, .job = "job"};
    uint8_t bytes[MESSAGE_HEADER_LEN + MEETING_SMALL_MAX];
    struct error error;
    int conn;

    sim_open(&sim, 2, 1);
    member_dial(&sim, sim_add(&sim, 2, 0));
    sim_settle(&sim);
    in.member.id.instance = 77;
    size_t len = meeting_register_encode(&in, bytes + MESSAGE_HEADER_LEN, MEETING_SMALL_MAX);
    message_seal(MEETING_REGISTER, bytes + MESSAGE_HEADER_LEN, len, NULL, 0, bytes);
    assert_int_equal(rendezvous_conn_open(sim.r, &somewhere, sim.now_ns, &conn), HEARTH_OK);
    rendezvous_input(sim.r, conn, bytes, MESSAGE_HEADER_LEN + len, sim.now_ns);
    assert_true(rendezvous_over(sim.r, &error));
    assert_int_equal(error.status, HEARTH_PROTOCOL);
    assert_non_null(strstr(error.text, "900 to 901"));
    sim_settle(&sim);
    assert_int_equal(sim.members[0].status, HEARTH_PROTOCOL);
    sim_close(&sim);
}

TEST(missing_members_are_named_at_the_deadline)
{
    sim_open(&sim, 7, 1);
    for (int i = 0; i < 3; i++)
        member_dial(&sim, sim_add(&sim, 7, i * 2));
    sim_settle(&sim);
    sim.now_ns = rendezvous_deadline(sim.r);
    assert_true(sim.now_ns == START_NS + 60 * NS_PER_S);
    rendezvous_tick(sim.r, sim.now_ns - 1);
    assert_false(rendezvous_over(sim.r, NULL));
    rendezvous_tick(sim.r, sim.now_ns);
    sim_settle(&sim);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(sim.members[i].status, HEARTH_TIMEOUT);
        assert_int_equal(sim.members[i].error.rank, 1);
        assert_non_null(strstr(sim.members[i].error.text, "missing: rank 1, 3, 5, 6"));
    }
    sim_close(&sim);

    sim_open(&sim, 3, 1);
    struct sim_member *m = sim_add(&sim, 3, -1);
    m->setup.deadline_ns = START_NS + 10 * NS_PER_S; /* its patience counts */
    member_dial(&sim, m);
    sim_settle(&sim);
    assert_true(rendezvous_deadline(sim.r) == START_NS + 9 * NS_PER_S);
    rendezvous_tick(sim.r, START_NS + 9 * NS_PER_S);
    sim_settle(&sim);
    assert_int_equal(m->status, HEARTH_TIMEOUT);
    assert_non_null(strstr(m->error.text, "1 of 3 members"));
    sim_close(&sim);
}

TEST(whoever_does_not_confirm_is_named)
{
    const uint8_t *bytes;
    size_t len;

    sim_open(&sim, 2, 1);
    member_dial(&sim, sim_add(&sim, 2, 0));
    struct sim_member *mute = sim_add(&sim, 2, 1);
    member_dial(&sim, mute);
    member_move(&sim, mute, 100000);
    member_move(&sim, &sim.members[0], 100000);
    /* It takes its roster and says nothing more. */
    while ((len = rendezvous_output(sim.r, mute->conn, &bytes)) > 0)
        rendezvous_sent(sim.r, mute->conn, len, sim.now_ns);
    int conn = mute->conn;
    mute->conn = -1;
    sim_settle(&sim);
    rendezvous_tick(sim.r, rendezvous_deadline(sim.r));
    sim_settle(&sim);
    assert_int_equal(sim.members[0].status, HEARTH_TIMEOUT);
    assert_int_equal(sim.members[0].error.rank, 1);
    assert_non_null(strstr(sim.members[0].error.text, "process 71 on host1"));
    rendezvous_conn_closed(sim.r, conn, sim.now_ns);
    sim_close(&sim);
}

TEST(garbage_closes_its_connection_only)
{
    uint8_t bytes[600];

    sim_open(&sim, 2, 1);
    struct sim_member *m = sim_add(&sim, 2, 0);
    member_dial(&sim, m);
    sim_settle(&sim);
    for (int round = 0; round < 200; round++) {
        int conn;
        for (size_t i = 0; i < sizeof bytes; i++)
            bytes[i] = (uint8_t)prng_u64(&sim.prng);
        if (round % 2) /* looks good at first */
            memcpy(bytes, (uint8_t[]){'H', 'M', MESSAGE_VERSION, MEETING_REGISTER, 100, 0, 0, 0}, 8);
        assert_int_equal(rendezvous_conn_open(sim.r, &somewhere, sim.now_ns, &conn), HEARTH_OK);
        rendezvous_input(sim.r, conn, bytes, sizeof bytes, sim.now_ns);
        assert_true(rendezvous_conn_gone(sim.r, conn));
        rendezvous_conn_closed(sim.r, conn, sim.now_ns);
    }
    member_dial(&sim, sim_add(&sim, 2, 1));
    sim_settle(&sim);
    check_agreed(&sim, 2);
    sim_close(&sim);
}

/* Strangers are bounded by connect/half_open.h; here come only connections whose first message is there. */
TEST(refused_connections_are_bounded_in_number_and_time)
{
    struct rendezvous_client stray;
    int conn, first = -1;

    sim_open(&sim, 2, 1);
    struct sim_member *m = sim_add(&sim, 2, 0), *other = sim_add(&sim, 2, 1);
    other->setup.job = "other";
    member_dial(&sim, m);
    sim_settle(&sim);
    assert_int_equal(rendezvous_client_init(&stray, &other->setup, 1), HEARTH_OK);
    for (int i = 1; i < rendezvous_limit(sim.r); i++) {
        assert_int_equal(rendezvous_conn_open(sim.r, &somewhere, sim.now_ns, &conn), HEARTH_OK);
        rendezvous_client_begin(&stray, sim.now_ns);
        struct iovec out = rendezvous_client_output(&stray);
        rendezvous_input(sim.r, conn, out.iov_base, out.iov_len, sim.now_ns);
        first = first < 0 ? conn : first;
        assert_true(rendezvous_conn_gone(sim.r, first) == (i + 1 == rendezvous_limit(sim.r)));
    }
    rendezvous_client_fini(&stray);
    int one_more;
    assert_int_equal(rendezvous_conn_open(sim.r, &somewhere, sim.now_ns, &one_more), HEARTH_LIMIT);
    assert_false(rendezvous_conn_gone(sim.r, m->conn));
    assert_true(rendezvous_deadline(sim.r) == START_NS + RENDEZVOUS_LEAVE_NS);
    rendezvous_tick(sim.r, START_NS + RENDEZVOUS_LEAVE_NS);
    for (int i = 0; i < rendezvous_limit(sim.r); i++) {
        assert_true(rendezvous_conn_gone(sim.r, i) == (i != m->conn));
        if (i != m->conn)
            rendezvous_conn_closed(sim.r, i, sim.now_ns);
    }
    member_dial(&sim, sim_add(&sim, 2, 1));
    sim_settle(&sim);
    assert_int_equal(m->status, HEARTH_OK);
    assert_int_equal(sim.members[2].status, HEARTH_OK);
    sim_close(&sim);
}

/* A member that has a key, and comes through this kind of connection. */
static struct sim_member *sim_add_keyed(struct sim *s, int size, const struct rendezvous_origin *origin)
{
    struct sim_member *m = sim_add(s, size, -1);

    memset(m->setup.self.id.node.bytes, (int)m->setup.self.id.instance, NODE_ID_LEN);
    m->client.wants_secret = origin->local;
    assert_int_equal(rendezvous_conn_open(s->r, origin, s->now_ns, &m->conn), HEARTH_OK);
    rendezvous_client_begin(&m->client, s->now_ns);
    return m;
}

/* One that has proven to be itself. */
static struct sim_member *sim_add_proven(struct sim *s, struct identity *proven)
{
    struct sim_member *m = sim_add_keyed(s, 2, &(struct rendezvous_origin){.peer = proven});

    *proven = m->setup.self.id;
    return m;
}

static void refused(const struct sim *s, const struct sim_member *m, int status, const char *word)
{
    assert_int_equal(m->status, status);
    if (!strstr(m->error.text, word))
        fail_msg("no \"%s\" in \"%s\"", word, m->error.text);
    assert_true(m->client.refused);
    assert_false(m->client.has_secret);
    assert_false(rendezvous_over(s->r, NULL));
}

TEST(the_secret_is_handed_out_to_neighbours)
{
    sim_open_for(&sim, 2, 1, &(struct demand){.handed = true});
    struct sim_member *stray = sim_add_keyed(&sim, 2, &neighbour);
    stray->setup.self.id.node = (struct node_id){{0}}; /* it is plain */
    rendezvous_client_begin(&stray->client, sim.now_ns);
    sim_settle(&sim);
    refused(&sim, stray, HEARTH_MISMATCH, "the others encrypt, process 70 on host0 is plain");
    assert_int_equal(sim.notes.warnings, 1);

    struct sim_member *far = sim_add_keyed(&sim, 2, &somewhere); /* never, whatever made it come here */
    sim_settle(&sim);
    assert_false(far->client.has_secret);
    member_hang_up(&sim, far);

    for (int i = 0; i < 2; i++)
        (void)sim_add_keyed(&sim, 2, &neighbour);
    sim_settle(&sim);
    for (int i = 2; i < 4; i++) {
        assert_int_equal(sim.members[i].status, HEARTH_OK);
        assert_true(sim.members[i].client.has_secret);
        assert_memory_equal(sim.members[i].client.secret, secret, SECRET_LEN);
        for (int k = 0; k < 2; k++)
            assert_int_equal(sim.members[i].client.roster.members[k].id.node.bytes[9], 3 + k);
    }
    sim_close(&sim);
}

TEST(a_secret_where_none_is_expected_is_refused)
{
    for (int handed = 0; handed < 2; handed++) {
        sim_open_for(&sim, 2, 1, &(struct demand){.handed = handed});
        struct sim_member *m = sim_add_keyed(&sim, 2, &neighbour);
        m->client.wants_secret = !handed;
        if (!handed)
            m->setup.self.id.node = (struct node_id){{0}};
        rendezvous_client_begin(&m->client, sim.now_ns);
        sim_settle(&sim);
        refused(&sim, m, HEARTH_MISMATCH, handed ? "others encrypt" : "others are plain");
        sim_close(&sim);
    }
}

TEST(another_secret_is_refused)
{
    sim_open_for(&sim, 2, 1, &(struct demand){.handed = true});
    struct sim_member *m = sim_add_keyed(&sim, 2, &neighbour);
    struct credentials *other = person(&sim.heap, 9, m->setup.self.id.instance);
    m->setup.credentials = other;
    rendezvous_client_begin(&m->client, sim.now_ns);
    sim_settle(&sim);
    refused(&sim, m, HEARTH_MISMATCH, "hearth join TOKEN");
    assert_int_equal(sim.notes.warnings, 1);

    uint8_t out[MESSAGE_HEADER_LEN + MEETING_WELCOME_MAX]; /* and if the rendezvous does not see it */
    struct meeting_welcome welcome = {.present = 1, .size = 2, .has_secret = true};
    rendezvous_client_begin(&m->client, sim.now_ns);
    size_t len = meeting_welcome_encode(&welcome, out + MESSAGE_HEADER_LEN, MEETING_WELCOME_MAX);
    message_seal(MEETING_WELCOME, out + MESSAGE_HEADER_LEN, len, NULL, 0, out);
    m->status = rendezvous_client_input(&m->client, out, sizeof out, &m->error);
    refused(&sim, m, HEARTH_MISMATCH, "hearth join TOKEN");
    credentials_close(other);
    sim_close(&sim);
}

/* A node that has the secret claims to be another: only its connection is refused. */
TEST(a_member_cannot_speak_for_another)
{
    struct heap heap;
    struct credentials *own;

    heap_init(&heap, 0);
    own = person(&heap, 1, 1);
    sim_open_for(&sim, 2, 1, &(struct demand){.credentials = own});
    struct identity proven[4];
    struct sim_member *first = sim_add_proven(&sim, &proven[0]);
    sim_settle(&sim);
    for (int i = 0; i < 3; i++) {
        struct sim_member *eve = i < 2 ? sim_add_proven(&sim, &proven[1 + i])
                                       : sim_add_keyed(&sim, 2, &somewhere); /* which has proven nothing */
        if (i == 0)
            eve->setup.self.id.node = first->setup.self.id.node;
        if (i == 1)
            eve->setup.self.id.instance = 1;
        rendezvous_client_begin(&eve->client, sim.now_ns);
        sim_settle(&sim);
        refused(&sim, eve, HEARTH_PROTOCOL, "speaks for another member");
    }
    assert_int_equal(sim.notes.lines, 3);
    assert_int_equal(sim.notes.warnings, 1);
    struct sim_member *second = sim_add_proven(&sim, &proven[3]);
    second->setup.self.id.instance = proven[3].instance = 1; /* at another node: another member */
    rendezvous_client_begin(&second->client, sim.now_ns);
    sim_settle(&sim);
    assert_int_equal(first->status, HEARTH_OK);
    assert_int_equal(second->status, HEARTH_OK);
    sim_close(&sim);
    credentials_close(own);
}

TEST(texts_are_cut)
{
    char text[24];
    static const int places[] = {-1, -1, 0, -1, 0, -1, -1, -1, 0};

    missing_text(places, 9, text, sizeof text);
    assert_string_equal(text, "0, 1, 3, 5-7");
    missing_text(places, 9, text, 8);
    assert_string_equal(text, "0, 1...");
    settings_diff_text("a=1 b=2", "a=1 b=2", text, sizeof text);
    assert_string_equal(text, "they look the same b...");
    settings_diff_text("a=1", "a=1 b=2", text, sizeof text);
    assert_string_equal(text, "nothing instead of b=2");
}
