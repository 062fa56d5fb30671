/* SPDX-License-Identifier: Apache-2.0 */
/* Members in threads agree over real sockets of this machine, or all learn why not. */
#include "bootstrap/roster.h"
#include "os/clock.h"
#include "os/thread.h"
#include "support/persons.h"
#include "support/ports.h"
#include "support/suite.h"
#include "support/watchdog.h"

#define MEMBERS_MAX 8

struct part {
    struct roster_setup setup;
    struct heap heap;
    struct thread thread;
    struct credentials *credentials;
    struct notes notes; /* of HEARTH-STRANGER */
    struct roster roster;
    struct error error;
    int status;
};

static struct part parts[MEMBERS_MAX];
static char address[SOCK_TEXT_MAX];

static void set_addr(struct net_addr *net, const char *text)
{
    struct sock_addr addr;

    assert_int_equal(sock_addr_parse(text, 0, &addr), HEARTH_OK);
    assert_true(sock_addr_to_net(&addr, net));
}

/* An address where nobody listens. */
static void address_draw(void)
{
    snprintf(address, sizeof address, "127.0.0.1:%u", (unsigned)free_port());
}

static void parts_set(int count, int size, bool given)
{
    watchdog(90, "members agree on a roster");
    memset(parts, 0, sizeof parts);
    for (int i = 0; i < count; i++) {
        struct part *p = &parts[i];
        heap_init(&p->heap, 0);
        struct log log = notes_log(&p->notes, "HEARTH-STRANGER");
        p->setup = (struct roster_setup){
            .heap = &p->heap,
            .log = log,
            .rendezvous = address,
            .job = "test",
            .rank = given ? i : -1,
            .size = size,
            .settings = 7,
            .settings_text = "chunk_bytes=1 window_bytes=2",
            .listener = -1,
            .deadline_ns = clock_real() + 30 * NS_PER_S,
            .connect_timeout_ns = 5 * NS_PER_S,
            .connect_retries = 3,
        };
        p->setup.self = (struct peer_info){
            .id.instance = 100 + (uint64_t)i, .process = 1000 + (uint32_t)i, .addr_count = 1};
        snprintf(p->setup.self.name, sizeof p->setup.self.name, "host%d", i);
        set_addr(&p->setup.self.addrs[0], "127.0.0.1:1");
        p->setup.self.addrs[0].port = (uint16_t)(5000 + i);
    }
}

static void run(void *arg)
{
    struct part *p = arg;
    p->status = roster_agree(&p->setup, &p->roster, &p->error);
}

/* The last begin first, so that whoever serves is not always first. */
static void parts_run(int count)
{
    for (int i = count - 1; i >= 0; i--)
        assert_int_equal(thread_start(&parts[i].thread, "member", run, &parts[i]), HEARTH_OK);
    for (int i = 0; i < count; i++)
        thread_join(&parts[i].thread);
    watchdog(0, NULL);
}

static void parts_agree(int count)
{
    bool seen[MEMBERS_MAX] = {false};

    for (int i = 0; i < count; i++) {
        struct roster *r = &parts[i].roster;
        if (parts[i].status != HEARTH_OK)
            fail_msg("member %d: %s", i, parts[i].error.text);
        assert_int_equal(r->size, count);
        assert_true(r->cluster != 0 && r->cluster == parts[0].roster.cluster);
        assert_false(seen[r->rank]);
        seen[r->rank] = true;
        assert_true(r->members[r->rank].id.instance == parts[i].setup.self.id.instance);
        for (int k = 0; k < count; k++) {
            struct peer_info *a = &r->members[k], *b = &parts[0].roster.members[k];
            assert_true(a->id.instance == b->id.instance);
            assert_int_equal(a->process, b->process);
            assert_string_equal(a->name, b->name);
            assert_int_equal(a->addr_count, 1);
            assert_memory_equal(&a->addrs[0], &b->addrs[0], sizeof a->addrs[0]);
        }
    }
}

/* The member gets a key, and the secret that is filled with this byte. */
static void part_arm(int i, uint8_t secret)
{
    struct part *p = &parts[i];

    p->credentials = person(&p->heap, secret, p->setup.self.id.instance);
    p->setup.credentials = p->credentials;
    p->setup.self.id.node = credentials_self(p->credentials)->node;
}

/* It gets a key only, and offers this secret. */
static void part_offer(int i, const uint8_t *offer)
{
    part_arm(i, 0);
    parts[i].setup.credentials = NULL;
    parts[i].setup.offer = offer;
}

static void unix_name(void)
{
    snprintf(address, sizeof address, "unix:@hearth-test-roster-%d", process_id());
}

static void parts_clear(int count)
{
    for (int i = 0; i < count; i++) {
        credentials_close(parts[i].credentials);
        if (parts[i].status == HEARTH_OK)
            roster_fini(&parts[i].roster);
        assert_int_equal(atomic_load(&parts[i].heap.blocks), 0);
    }
}

static void parts_failed(int count, int status, enum hearth_reason reason, const char *word)
{
    for (int i = 0; i < count; i++) {
        assert_int_equal(parts[i].status, status);
        assert_int_equal(parts[i].error.reason, reason);
        if (!strstr(parts[i].error.text, word))
            fail_msg("member %d: no \"%s\" in \"%s\"", i, word, parts[i].error.text);
    }
    parts_clear(count);
}

/* Members run, and all learn why not. */
static void parts_fail_because(int count, int status, enum hearth_reason reason, const char *word)
{
    parts_run(count);
    parts_failed(count, status, reason, word);
}

static void parts_fail(int count, int status, const char *word)
{
    parts_fail_because(count, status, HEARTH_REASON_NONE, word);
}

TEST(members_agree)
{
    for (int round = 0; round < 8; round++) {
        int count = 2 + round % 4;
        if (round & 1)
            unix_name();
        else
            address_draw();
        parts_set(count, count, round & 2);
        parts_run(count);
        parts_agree(count);
        for (int i = 0; i < count && (round & 2); i++)
            assert_int_equal(parts[i].roster.rank, i);
        parts_clear(count);
    }
}

TEST(a_name_leads_there_too)
{
    address_draw();
    char text[SOCK_TEXT_MAX + 16];
    snprintf(text, sizeof text, "localhost:%s", strrchr(address, ':') + 1);
    parts_set(3, 3, true);
    for (int i = 0; i < 3; i++)
        parts[i].setup.rendezvous = text;
    parts_run(3);
    parts_agree(3);
    parts_clear(3);
}

TEST(a_static_list_needs_no_ranks)
{
    char texts[3][SOCK_TEXT_MAX];
    const char *peers[3] = {texts[0], texts[1], texts[2]};
    struct sock_addr addr, bound[3];
    struct error error;

    parts_set(3, 3, false);
    assert_int_equal(sock_addr_parse("127.0.0.1:0", 0, &addr), HEARTH_OK);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(sock_listen(&addr, 16, &parts[i].setup.listener, &bound[i], &error), HEARTH_OK);
        sock_addr_text(&bound[i], texts[i], sizeof texts[i]);
        parts[i].setup.peers = peers;
        parts[i].setup.rendezvous = NULL;
    }
    parts_run(3);
    for (int i = 0; i < 3; i++) {
        if (parts[i].status != HEARTH_OK)
            fail_msg("member %d: %s", i, parts[i].error.text);
        assert_int_equal(parts[i].roster.rank, i);
        for (int k = 0; k < 3; k++) {
            struct sock_addr found = sock_addr_of(&parts[i].roster.members[k].addrs[0]);
            assert_true(k == i || sock_addr_equal(&found, &bound[k]));
        }
        sock_unlisten(parts[i].setup.listener);
    }
    parts_clear(3);

    parts_set(1, 2, false);
    const char *twice[2] = {"127.0.0.1:9", "127.0.0.1:9"};
    parts[0].setup.peers = twice;
    parts_fail(1, HEARTH_INVALID, "HEARTH_RANK");
    parts_set(1, 2, false);
    const char *none[2] = {"192.0.2.77:9", "192.0.2.78:9"};
    parts[0].setup.peers = none;
    parts_fail(1, HEARTH_INVALID, "HEARTH_RANK");
}

TEST(a_world_of_one_needs_nobody)
{
    parts_set(1, 1, false);
    parts[0].setup.rendezvous = NULL;
    parts_run(1);
    parts_agree(1);
    parts_clear(1);
}

TEST(contradictions_are_told_to_all)
{
    address_draw();
    parts_set(3, 3, true);
    parts[2].setup.size = 4;
    parts_fail_because(3, HEARTH_MISMATCH, HEARTH_REASON_SETTINGS_DIFFER,
                       "process 1002 on host2 expects 4 members");

    parts_set(3, 3, true);
    parts[1].setup.settings = 8;
    parts[1].setup.settings_text = "chunk_bytes=9 window_bytes=2";
    parts_fail_because(3, HEARTH_MISMATCH, HEARTH_REASON_SETTINGS_DIFFER,
                       "chunk_bytes=9 instead of chunk_bytes=1");

    parts_set(3, 3, true);
    parts[2].setup.rank = 1;
    parts_fail_because(3, HEARTH_MISMATCH, HEARTH_REASON_SETTINGS_DIFFER, "rank 1 was given twice");
}

TEST(another_job_is_sent_away)
{
    address_draw();
    parts_set(3, 2, true);
    parts[2].setup.rank = 1;
    parts[2].setup.job = "other";
    assert_int_equal(thread_start(&parts[0].thread, "member", run, &parts[0]), HEARTH_OK);
    run(&parts[2]);
    assert_int_equal(parts[2].status, HEARTH_MISMATCH);
    assert_non_null(strstr(parts[2].error.text, "\"other\""));
    run(&parts[1]);
    thread_join(&parts[0].thread);
    watchdog(0, NULL);
    parts_agree(2);
    parts_clear(3);
}

TEST(missing_ranks_are_named)
{
    address_draw();
    parts_set(2, 5, true);
    for (int i = 0; i < 2; i++)
        parts[i].setup.deadline_ns = clock_real() + NS_PER_S;
    parts_fail(2, HEARTH_TIMEOUT, "missing: rank 2-4");
}

TEST(nobody_there_is_said)
{
    address_draw();
    parts_set(1, 2, true);
    parts[0].setup.rank = 1;
    parts[0].setup.deadline_ns = clock_real() + 300 * NS_PER_MS;
    parts_run(1);
    assert_non_null(strstr(parts[0].error.text, address));
    parts_failed(1, HEARTH_TIMEOUT, HEARTH_REASON_UNREACHABLE, "refused");
}

/* Something else listens there. */
struct other {
    int listener;
    _Atomic(bool) stop;
    const char *words;
};

static void speak(void *arg)
{
    struct other *o = arg;
    int fds[64], count = 0;

    while (!atomic_load(&o->stop)) {
        struct sock_wait item = {.fd = o->listener, .want_recv = true};
        struct sock_addr from;
        sock_wait(&item, 1, clock_real() + 20 * NS_PER_MS);
        if (count < 64 && sock_accept(o->listener, &fds[count], &from) == HEARTH_OK) {
            struct iovec piece = {.iov_base = (void *)(uintptr_t)o->words, .iov_len = strlen(o->words)};
            if (piece.iov_len > 0)
                (void)sock_send(fds[count], &piece, 1);
            count++;
        }
    }
    while (count > 0)
        sock_close(fds[--count]);
}

TEST(other_programs_are_recognized)
{
    static const char *const words[] = {"HTTP/1.1 400 Bad Request\r\n\r\n", ""};
    struct sock_addr addr, bound;
    struct thread thread;
    struct error error;

    for (int i = 0; i < 2; i++) {
        struct other other = {.words = words[i]};
        assert_int_equal(sock_addr_parse("127.0.0.1:0", 0, &addr), HEARTH_OK);
        assert_int_equal(sock_listen(&addr, 16, &other.listener, &bound, &error), HEARTH_OK);
        sock_addr_text(&bound, address, sizeof address);
        assert_int_equal(thread_start(&thread, "other", speak, &other), HEARTH_OK);
        parts_set(2, 2, true);
        for (int k = 0; k < 2; k++)
            parts[k].setup.connect_timeout_ns = 100 * NS_PER_MS;
        parts_run(2);
        atomic_store(&other.stop, true);
        thread_join(&thread);
        sock_unlisten(other.listener);
        assert_non_null(strstr(parts[0].error.text, address));
        parts_failed(2, i == 0 ? HEARTH_PROTOCOL : HEARTH_TIMEOUT,
                     i == 0 ? HEARTH_REASON_NOT_HEARTH : HEARTH_REASON_PEER_SILENT,
                     i == 0 ? "not a rendezvous" : "did not answer");
    }
}

TEST(strangers_do_not_disturb)
{
    struct sock_addr addr;
    struct error error;
    int fds[200], count = 0;

    address_draw();
    assert_int_equal(sock_addr_parse(address, 0, &addr), HEARTH_OK);
    parts_set(2, 2, true);
    assert_int_equal(thread_start(&parts[0].thread, "member", run, &parts[0]), HEARTH_OK);
    for (int tries = 0; tries < 10000 && count < 200; tries++) {
        struct sock_wait item = {.want_send = true};
        struct iovec piece = {.iov_base = (char[]){"garbage garbage garbage"}, .iov_len = 20};
        if (sock_dial(&addr, NULL, &fds[count], &error) != HEARTH_OK)
            continue;
        item.fd = fds[count];
        sock_wait(&item, 1, clock_real() + NS_PER_S);
        if (sock_dialled(fds[count], &addr, &error) != HEARTH_OK) {
            sock_close(fds[count]); /* it does not listen yet */
            sock_wait(NULL, 0, clock_real() + NS_PER_MS);
            continue;
        }
        if (count % 3 == 0)
            (void)sock_send(fds[count], &piece, 1);
        count++;
    }
    assert_int_equal(count, 200);
    assert_int_equal(thread_start(&parts[1].thread, "member", run, &parts[1]), HEARTH_OK);
    thread_join(&parts[0].thread);
    thread_join(&parts[1].thread);
    watchdog(0, NULL);
    parts_agree(2);
    while (count > 0)
        sock_close(fds[--count]);
    parts_clear(2);
}

TEST(members_with_a_secret_agree)
{
    for (int local = 0; local < 2; local++) {
        if (local)
            unix_name();
        else
            address_draw();
        parts_set(4, 4, local);
        for (int i = 0; i < 4; i++)
            part_arm(i, 7);
        parts_run(4);
        parts_agree(4);
        for (int i = 0; i < 4; i++) {
            const struct roster *r = &parts[i].roster;
            assert_true(node_id_equal(&r->members[r->rank].id.node, &parts[i].setup.self.id.node));
            assert_true(node_id_equal(&r->members[0].id.node, &parts[0].roster.members[0].id.node));
            assert_int_equal(r->has_secret, local);
            assert_int_equal(r->secret[5], local ? 7 : 0);
        }
        parts_clear(4);
    }
}

TEST(whoever_serves_hands_out_the_secret)
{
    static const uint8_t offers[3][SECRET_LEN] = {{0x10}, {0x11}, {0x12}};

    unix_name();
    for (int armed = 0; armed < 2; armed++) {
        parts_set(3, 3, true);
        for (int i = 0; i < 3; i++)
            part_offer(i, offers[i]);
        if (armed) { /* rank 0 serves, and has one of its own: that counts */
            credentials_close(parts[0].credentials);
            part_arm(0, 9);
        }
        parts_run(3);
        parts_agree(3);
        for (int i = 0; i < 3; i++) {
            assert_true(parts[i].roster.has_secret);
            assert_int_equal(parts[i].roster.secret[0], armed ? 9 : 0x10);
        }
        parts_clear(3);
        uint8_t zero[SECRET_LEN] = {0};
        assert_memory_equal(parts[1].roster.secret, zero, sizeof zero);
    }
    parts_set(1, 2, true);
    part_offer(0, offers[0]);
    address_draw();
    parts_fail(1, HEARTH_INVALID, "hearth init");
}

/* Rank 0 waits for rank 1. What comes in its place is told why not, and named; then rank 1 comes. */
static void stray(int status, enum hearth_reason reason, const char *word, const char *complaint)
{
    parts[2].setup.rank = 1;
    parts[1].setup.connect_retries = 0;
    assert_int_equal(thread_start(&parts[0].thread, "member", run, &parts[0]), HEARTH_OK);
    run(&parts[1]);
    run(&parts[2]);
    thread_join(&parts[0].thread);
    watchdog(0, NULL);
    if (parts[1].status != status || !strstr(parts[1].error.text, word) ||
        !strstr(parts[0].notes.last, complaint))
        fail_msg("%d \"%s\" (expected %d, \"%s\"); \"%s\"", parts[1].status, parts[1].error.text, status,
                 word, parts[0].notes.last);
    assert_int_equal(parts[1].error.reason, reason);
    assert_int_equal(parts[0].notes.warnings, 1);
    assert_int_equal(parts[0].status, HEARTH_OK);
    assert_int_equal(parts[2].status, HEARTH_OK);
    assert_true(parts[2].roster.cluster == parts[0].roster.cluster);
    parts_clear(3);
}

TEST(who_does_not_belong_is_told_and_named)
{
    for (int i = 0; i < 4; i++) {
        address_draw();
        parts_set(3, 2, true);
        for (int k = 0; k < 3 && i != 1; k += 2)
            part_arm(k, 1);
        if (i != 0)
            part_arm(1, i == 2 ? 2 : 1);
        if (i == 0) {
            stray(HEARTH_MISMATCH, HEARTH_REASON_SETTINGS_DIFFER, "others encrypt, this process is plain",
                  "it is plain");
        } else if (i == 1) {
            stray(HEARTH_PROTOCOL, HEARTH_REASON_SETTINGS_DIFFER, "it is plain, and we encrypt",
                  "it encrypts");
        } else if (i == 2) {
            stray(HEARTH_PEER_LOST, HEARTH_REASON_SECRET_DIFFERS, "hearth join TOKEN", "another secret");
        } else {
            parts[1].setup.self.id.node = parts[2].setup.self.id.node;
            stray(HEARTH_PROTOCOL, HEARTH_REASON_NONE, "speaks for another member",
                  "speaks for another member");
        }
    }
}

TEST(a_member_whose_key_was_revoked_is_told_and_named)
{
    address_draw();
    parts_set(3, 2, true);
    part_arm(1, 1);
    part_arm(2, 1);
    parts[0].credentials = person_against(&parts[0].heap, 1, 100, &parts[1].setup.self.id.node);
    parts[0].setup.credentials = parts[0].credentials;
    parts[0].setup.self.id.node = credentials_self(parts[0].credentials)->node;
    stray(HEARTH_PEER_LOST, HEARTH_REASON_KEY_REFUSED, "revoked our key (hearth trust)",
          "was revoked (hearth trust)");
}

TEST(a_neighbour_who_does_not_belong_is_told)
{
    static const uint8_t offer[SECRET_LEN] = {3};

    unix_name();
    for (int i = 0; i < 4; i++) {
        parts_set(3, 2, true);
        for (int k = 0; k < 3 && i != 1; k += 2) {
            if (i == 3)
                part_offer(k, offer);
            else
                part_arm(k, 1);
        }
        if (i == 1)
            part_offer(1, offer);
        else if (i != 0)
            part_arm(1, 2);
        stray(HEARTH_MISMATCH, i < 2 ? HEARTH_REASON_SETTINGS_DIFFER : HEARTH_REASON_SECRET_DIFFERS,
              i == 0   ? "the others encrypt, process 1001 on host1 is plain"
              : i == 1 ? "the others are plain, process 1001 on host1 encrypts"
                       : "HEARTH_SECRET_FILE",
              "sent away");
    }
}

TEST(wrong_setups_are_refused)
{
    parts_set(1, 0, false);
    parts_fail(1, HEARTH_INVALID, "0 members");
    parts_set(1, 2, false);
    parts[0].setup.rank = 2;
    parts_fail(1, HEARTH_INVALID, "rank 2");
    parts_set(1, 2, false);
    parts[0].setup.job = "a\tb";
    parts_fail(1, HEARTH_INVALID, "job: byte 1 is 0x09");
    char job[5001] = "";
    memset(job, 'j', sizeof job - 1);
    parts_set(1, 2, false);
    parts[0].setup.job = job;
    parts_fail(1, HEARTH_INVALID, "job has 5000 characters");
    parts_set(1, 2, false);
    parts[0].setup.rendezvous = NULL;
    parts_fail(1, HEARTH_INVALID, "rendezvous");
}

TEST(memory_that_runs_out_is_said)
{
    int status = HEARTH_NO_MEMORY;

    for (int allowed = 0; status == HEARTH_NO_MEMORY; allowed++) {
        assert_true(allowed < 100);
        address_draw();
        parts_set(1, 2, true);
        parts[0].setup.deadline_ns = clock_real() + 100 * NS_PER_MS;
        atomic_store(&parts[0].heap.fail_after, allowed);
        parts_run(1);
        status = parts[0].status;
        if (status == HEARTH_NO_MEMORY)
            parts_failed(1, HEARTH_NO_MEMORY, HEARTH_REASON_NONE, "memory");
    }
    parts_failed(1, HEARTH_TIMEOUT, HEARTH_REASON_NONE, "missing: rank 1");
}
