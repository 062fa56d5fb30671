/* SPDX-License-Identifier: Apache-2.0 */
/* Remote calls between nodes of one process: what the header promises, one promise a test. */
#include <stdatomic.h>
#include <string.h>

#include "conform/fixture.h"

#define LARGE (1u << 20)

static struct hearth_opts within(int64_t timeout_ms)
{
    struct hearth_opts opts = opts_default();
    opts.timeout_ms = timeout_ms;
    return opts;
}

static void check_fate(enum hearth_fate wanted)
{
    check(hearth_error_fate() == wanted, "fate %s, not %s: %s", hearth_fate_name(hearth_error_fate()),
          hearth_fate_name(wanted), hearth_error_text());
}

/* ---- handlers ---- */

static void echo(void *arg, hearth_rpc *rpc, const void *request, size_t len)
{
    atomic_int *count = arg;
    if (count)
        atomic_fetch_add(count, 1);
    check_ok(hearth_rpc_reply(rpc, request, len));
}

static void fails(void *arg, hearth_rpc *rpc, const void *request, size_t len)
{
    check_ok(hearth_rpc_fail(rpc, arg));
}

/* ---- bytes ---- */

static void call_each_length(struct fixture *c, int rank, void *arg)
{
    static const size_t lengths[] = {0, 1, 64, 16000, 16384, 65536, 70000, LARGE};
    uint8_t *bytes = must_alloc(LARGE);
    uint64_t seed = 3;
    if (rank == 1)
        check_ok(hearth_rpc_register(c->nodes[1], "echo", echo, NULL, NULL));
    fixture_meet(c);
    for (size_t i = 0; i < LARGE; i++)
        bytes[i] = (uint8_t)draw(&seed);
    for (size_t i = 0; rank == 0 && i < sizeof lengths / sizeof lengths[0]; i++) {
        struct hearth_message *reply = NULL;
        if (!check_ok(hearth_rpc_call(c->world[0], 1, "echo", bytes, lengths[i], NULL, &reply)))
            continue;
        check(reply->len == lengths[i] && reply->rank == 1, "%zu bytes of rank %d", reply->len, reply->rank);
        check(reply->len == 0 || memcmp(reply->data, bytes, reply->len) == 0, "other bytes");
        hearth_message_free(reply);
    }
    free(bytes);
    fixture_meet(c);
}

TEST(a_call_is_answered_whatever_its_length)
{
    fixture_once(2, NULL, call_each_length, NULL);
}

TEST(and_with_small_chunks_and_budget)
{
    struct hearth_config config;
    config_small(&config);
    fixture_once(2, &config, call_each_length, NULL);
}

static void calls_itself(struct fixture *c, int rank, void *arg)
{
    struct hearth_message *reply = NULL;
    uint8_t bytes[100] = {7};
    check_status(hearth_rpc_call(c->world[rank], rank, "echo", bytes, 10, NULL, &reply), HEARTH_NO_SUCH_CALL);
    check_ok(hearth_rpc_register(c->nodes[rank], "echo", echo, NULL, NULL));
    for (int i = 0; i < 100; i++) {
        if (!check_ok(hearth_rpc_call(c->world[rank], rank, "echo", bytes, sizeof bytes, NULL, &reply)))
            break;
        check(reply->len == sizeof bytes && reply->rank == rank && memcmp(reply->data, bytes, 100) == 0,
              "another reply");
        hearth_message_free(reply);
    }
}

TEST(a_member_may_call_itself)
{
    fixture_once(1, NULL, calls_itself, NULL);
    fixture_once(3, NULL, calls_itself, NULL);
}

static void unknown_and_failing(struct fixture *c, int rank, void *arg)
{
    struct hearth_message *reply = NULL;
    uint8_t *bytes = must_alloc(2 * LARGE);
    memset(bytes, 1, 2 * LARGE);
    if (rank == 0) {
        check_error(hearth_rpc_call(c->world[0], 1, "nothing", NULL, 0, NULL, &reply), HEARTH_NO_SUCH_CALL,
                    "call of \"nothing\" at rank 1");
        check_fate(HEARTH_FATE_NOT_DELIVERED);
        check_status(hearth_rpc_call(c->world[0], 1, "nothing", bytes, 2 * LARGE, NULL, &reply),
                     HEARTH_NO_SUCH_CALL);
        check_fate(HEARTH_FATE_NOT_DELIVERED);
    }
    fixture_meet(c);
    if (rank == 1)
        check_ok(hearth_rpc_register(c->nodes[1], "fails", fails, "row 7 is not\nthere", NULL));
    fixture_meet(c);
    if (rank == 0) {
        check_error(hearth_rpc_call(c->world[0], 1, "nothing", bytes, 100, NULL, &reply), HEARTH_NO_SUCH_CALL,
                    "\"nothing\"");
        check_fate(HEARTH_FATE_NOT_DELIVERED);
        check_error(hearth_rpc_call(c->world[0], 1, "fails", bytes, 100, NULL, &reply), HEARTH_CALL_FAILED,
                    "row 7 is not?there");
        check_fate(HEARTH_FATE_DELIVERED);
        check_error(hearth_rpc_call(c->world[0], 1, "fails", bytes, LARGE + 1, NULL, &reply), HEARTH_TOO_LONG,
                    "1048577 bytes");
        check_fate(HEARTH_FATE_NOT_DELIVERED);
        check_error(hearth_rpc_call(c->world[0], 1, "fails", bytes, 2 * LARGE, NULL, &reply), HEARTH_TOO_LONG,
                    "that long");
        check_fate(HEARTH_FATE_NOT_DELIVERED);
        check(!reply, "a reply was set");
    }
    free(bytes);
    fixture_meet(c);
}

TEST(each_failure_has_its_status_and_sentence)
{
    fixture_once(2, NULL, unknown_and_failing, NULL);
}

/* ---- deadlines ---- */

struct shelf { /* calls that nobody has answered yet */
    pthread_mutex_t lock;
    hearth_rpc *rpc[512];
    atomic_int count;
};

static struct shelf shelf_make(void)
{
    return (struct shelf){.lock = PTHREAD_MUTEX_INITIALIZER};
}

static void keep(void *arg, hearth_rpc *rpc, const void *request, size_t len)
{
    struct shelf *shelf = arg;
    pthread_mutex_lock(&shelf->lock);
    int at = atomic_load(&shelf->count);
    shelf->rpc[at] = rpc;
    atomic_store(&shelf->count, at + 1);
    pthread_mutex_unlock(&shelf->lock);
}

static void wait_count(const atomic_int *count, int wanted)
{
    while (atomic_load(count) < wanted)
        sleep_ms(1);
}

static void never_answered(struct fixture *c, int rank, void *arg)
{
    struct shelf *shelf = arg;
    struct hearth_message *reply = NULL;
    struct hearth_opts opts = within(30);
    if (rank == 1)
        check_ok(hearth_rpc_register(c->nodes[1], "keep", keep, shelf, NULL));
    fixture_meet(c);
    if (rank == 0) {
        check_error(hearth_rpc_call(c->world[0], 1, "keep", "x", 1, &opts, &reply), HEARTH_TIMEOUT,
                    "call of \"keep\" at rank 1: timed out after 30 ms; it may have run");
        check_fate(HEARTH_FATE_UNKNOWN);
        check(hearth_error_rank() == 1, "rank %d", hearth_error_rank());
    }
    fixture_meet(c);
    if (rank == 1) {
        wait_count(&shelf->count, 1);
        hearth_rpc *rpc = shelf->rpc[0];
        /* The deadline counts from the call's arrival, which may be later than the caller's beginning. */
        for (int i = 0; i < 5000 && hearth_rpc_time_left(rpc) > 0; i++)
            sleep_ms(1);
        check(hearth_rpc_time_left(rpc) == 0, "time is left");
        check(hearth_rpc_rank(rpc) == 0 && hearth_rpc_group(rpc) == c->world[1], "another caller");
        int status = hearth_rpc_reply(rpc, "late", 4);
        check(status == HEARTH_TIMEOUT || status == HEARTH_CANCELLED, "%s", hearth_status_name(status));
    }
    fixture_meet(c);
}

TEST(a_handler_that_never_answers_does_not_outlive_the_deadline)
{
    struct shelf shelf = shelf_make();
    fixture_once(2, NULL, never_answered, &shelf);
}

/* ---- limits ---- */

static void crowded_out(struct fixture *c, int rank, void *arg)
{
    struct shelf *shelf = arg;
    struct hearth_message *replies[6] = {NULL};
    hearth_request *requests[6];
    struct hearth_rpc_limits limits;
    hearth_rpc_limits_init(&limits);
    limits.running = 2;
    limits.waiting = 3;
    if (rank == 1)
        check_ok(hearth_rpc_register(c->nodes[1], "keep", keep, shelf, &limits));
    fixture_meet(c);
    for (int i = 0; rank == 0 && i < 6; i++)
        check_ok(hearth_rpc_call_nb(c->world[0], 1, "keep", &i, sizeof i, NULL, &replies[i], &requests[i]));
    if (rank == 0) {
        check_error(hearth_request_wait(requests[5], -1), HEARTH_BUSY, "too many calls in flight");
        check_fate(HEARTH_FATE_NOT_DELIVERED);
    }
    fixture_meet(c);
    for (int i = 0; rank == 1 && i < 5; i++) {
        wait_count(&shelf->count, i + 1);
        check(atomic_load(&shelf->count) <= i + 2, "%d run at once", atomic_load(&shelf->count) - i);
        check_ok(hearth_rpc_reply(shelf->rpc[i], &i, sizeof i));
    }
    for (int i = 0; rank == 0 && i < 6; i++) {
        if (i < 5 && check_ok(hearth_request_wait(requests[i], -1)))
            check(replies[i] && replies[i]->len == sizeof i, "reply %d", i);
        hearth_request_close(requests[i]);
        hearth_message_free(replies[i]);
    }
    fixture_meet(c);
}

TEST(more_calls_than_a_handler_takes_are_refused_and_the_others_run)
{
    struct shelf shelf = shelf_make();
    fixture_once(2, NULL, crowded_out, &shelf);
}

static void long_reply(void *arg, hearth_rpc *rpc, const void *request, size_t len)
{
    static const uint8_t bytes[101];
    check_error(hearth_rpc_reply(rpc, bytes, 101), HEARTH_TOO_LONG, "limits.reply_max is 100");
}

static void too_long(struct fixture *c, int rank, void *arg)
{
    struct hearth_message *reply = NULL;
    struct hearth_rpc_limits limits;
    hearth_rpc_limits_init(&limits);
    limits.reply_max = 100;
    limits.request_max = 10;
    if (rank == 1)
        check_ok(hearth_rpc_register(c->nodes[1], "long", long_reply, NULL, &limits));
    fixture_meet(c);
    if (rank == 0) {
        check_error(hearth_rpc_call(c->world[0], 1, "long", "0123456789", 10, NULL, &reply), HEARTH_TOO_LONG,
                    "its reply has 101 bytes; the handler may reply 100");
        check_fate(HEARTH_FATE_DELIVERED);
        check_error(hearth_rpc_call(c->world[0], 1, "long", "0123456789a", 11, NULL, &reply), HEARTH_TOO_LONG,
                    "the request has 11 bytes; the handler takes at most 10");
        check_fate(HEARTH_FATE_NOT_DELIVERED);
    }
    fixture_meet(c);
}

TEST(requests_and_replies_have_a_longest_length)
{
    fixture_once(2, NULL, too_long, NULL);
}

/* ---- later, elsewhere, many ---- */

static void later(struct fixture *c, int rank, void *arg)
{
    struct shelf *shelf = arg;
    struct hearth_message *replies[64] = {NULL};
    hearth_request *requests[64];
    if (rank == 1)
        check_ok(hearth_rpc_register(c->nodes[1], "keep", keep, shelf, NULL));
    fixture_meet(c);
    if (rank == 1) { /* this thread is not one of the node's; the last comes first */
        wait_count(&shelf->count, 64);
        for (int i = 63; i >= 0; i--) {
            check(hearth_rpc_time_left(shelf->rpc[i]) > 0, "no time is left");
            check_ok(hearth_rpc_reply(shelf->rpc[i], NULL, 0));
        }
    }
    for (int i = 0; rank == 0 && i < 64; i++)
        check_ok(hearth_rpc_call_nb(c->world[0], 1, "keep", NULL, 0, NULL, &replies[i], &requests[i]));
    for (int i = 0; rank == 0 && i < 64; i++) {
        check_ok(hearth_request_wait(requests[i], -1));
        check(replies[i] && replies[i]->len == 0 && !replies[i]->data, "reply %d", i);
        hearth_request_close(requests[i]);
        hearth_message_free(replies[i]);
    }
    fixture_meet(c);
}

TEST(an_answer_may_come_later_from_another_thread)
{
    struct shelf shelf = shelf_make();
    fixture_once(2, NULL, later, &shelf);
}

#define MANY 1500

static void reply_is(hearth_request *request, struct hearth_message **reply, int value)
{
    if (check_ok(hearth_request_wait(request, -1)))
        check((*reply)->len == sizeof value && memcmp((*reply)->data, &value, sizeof value) == 0, "reply %d",
              value);
    hearth_request_close(request);
    hearth_message_free(*reply);
    *reply = NULL;
}

static void in_flight(struct fixture *c, int rank, void *arg)
{
    struct hearth_message *replies[64] = {NULL};
    hearth_request *requests[64];
    int values[64], next = (rank + 1) % c->size;
    check_ok(hearth_rpc_register(c->nodes[rank], "echo", echo, arg, NULL));
    fixture_meet(c);
    for (int i = 0; i < MANY + 64; i++) {
        int at = i % 64;
        if (i >= 64)
            reply_is(requests[at], &replies[at], i - 64);
        values[at] = i;
        if (i < MANY)
            check_ok(hearth_rpc_call_nb(c->world[rank], next, "echo", &values[at], sizeof values[at], NULL,
                                        &replies[at], &requests[at]));
    }
    fixture_meet(c);
}

TEST(every_member_has_64_calls_in_flight_and_each_runs_once)
{
    atomic_int count = 0;
    fixture_once(3, NULL, in_flight, &count);
    check(atomic_load(&count) == 3 * MANY, "%d calls ran", atomic_load(&count));
    checks_end();
}

/* ---- nested ---- */

struct relay {
    struct fixture *c;
    int rank;
};

/* Asks the next rank until the number is 0. */
static void relay(void *arg, hearth_rpc *rpc, const void *request, size_t len)
{
    const struct relay *self = arg;
    struct hearth_message *reply = NULL;
    int left;
    memcpy(&left, request, sizeof left);
    if (left-- == 0) {
        check_ok(hearth_rpc_reply(rpc, "end", 3));
        return;
    }
    hearth_group *group = hearth_rpc_group(rpc);
    if (check_ok(hearth_rpc_call(group, (self->rank + 1) % self->c->size, "relay", &left, sizeof left, NULL,
                                 &reply)))
        check_ok(hearth_rpc_reply(rpc, reply->data, reply->len));
    else
        hearth_rpc_fail(rpc, hearth_error_text());
    hearth_message_free(reply);
}

static void nested(struct fixture *c, int rank, void *arg)
{
    struct relay self = {c, rank};
    struct hearth_message *reply = NULL;
    int hops = 12;
    check_ok(hearth_rpc_register(c->nodes[rank], "relay", relay, &self, NULL));
    fixture_meet(c);
    if (rank == 0 && check_ok(hearth_rpc_call(c->world[0], 1, "relay", &hops, sizeof hops, NULL, &reply)))
        check(reply->len == 3 && memcmp(reply->data, "end", 3) == 0, "another reply");
    hearth_message_free(reply);
    fixture_meet(c);
    check_ok(hearth_rpc_register(c->nodes[rank], "relay", NULL, NULL, NULL));
    check_status(hearth_rpc_register(c->nodes[rank], "relay", NULL, NULL, NULL), HEARTH_INVALID);
    fixture_meet(c);
    if (rank == 0)
        check_status(hearth_rpc_call(c->world[0], 1, "relay", &hops, sizeof hops, NULL, &reply),
                     HEARTH_NO_SUCH_CALL);
    fixture_meet(c);
}

TEST(handlers_may_call)
{
    fixture_once(3, NULL, nested, NULL);
}

/* ---- cancel ---- */

static void cancels(struct fixture *c, int rank, void *arg)
{
    struct shelf *shelf = arg;
    struct hearth_message *replies[2] = {NULL};
    hearth_request *requests[2];
    struct hearth_rpc_limits limits;
    hearth_rpc_limits_init(&limits);
    limits.running = 1;
    if (rank == 1)
        check_ok(hearth_rpc_register(c->nodes[1], "keep", keep, shelf, &limits));
    fixture_meet(c);
    for (int i = 0; rank == 0 && i < 2; i++)
        check_ok(hearth_rpc_call_nb(c->world[0], 1, "keep", &i, sizeof i, NULL, &replies[i], &requests[i]));
    wait_count(&shelf->count, 1);
    for (int i = 0; rank == 0 && i < 2; i++) {
        check_ok(hearth_request_cancel(requests[1 - i]));
        check_error(hearth_request_wait(requests[1 - i], -1), HEARTH_CANCELLED, "cancelled; it may have run");
        check(hearth_request_error_fate(requests[1 - i]) == HEARTH_FATE_UNKNOWN, "another fate");
    }
    if (rank == 1) {
        while (hearth_rpc_time_left(shelf->rpc[0]) > 0)
            sleep_ms(1);
        check_error(hearth_rpc_reply(shelf->rpc[0], NULL, 0), HEARTH_CANCELLED, "rank 0 has cancelled");
    }
    fixture_meet(c);
    for (int i = 0; rank == 0 && i < 2; i++)
        hearth_request_close(requests[i]);
    check(!replies[0] && !replies[1], "a reply was set");
    check(atomic_load(&shelf->count) == 1, "the second call ran, too");
    fixture_meet(c);
}

TEST(a_cancel_travels_and_a_call_that_waits_does_not_run)
{
    struct shelf shelf = shelf_make();
    fixture_once(2, NULL, cancels, &shelf);
}

/* ---- closing ---- */

static void closes_with_calls(struct fixture *c, int rank, void *arg)
{
    struct shelf *shelf = arg;
    struct hearth_message *replies[3] = {NULL};
    hearth_request *requests[3];
    struct hearth_rpc_limits limits;
    hearth_rpc_limits_init(&limits);
    limits.running = 2;
    if (rank == 1)
        check_ok(hearth_rpc_register(c->nodes[1], "keep", keep, shelf, &limits));
    fixture_meet(c);
    for (int i = 0; rank == 0 && i < 3; i++)
        check_ok(hearth_rpc_call_nb(c->world[0], 1, "keep", &i, sizeof i, NULL, &replies[i], &requests[i]));
    wait_count(&shelf->count, 2);
    fixture_meet(c);
    if (rank == 1) {
        hearth_node_close(c->nodes[1]);
        c->nodes[1] = NULL;
        for (int i = 0; i < 2; i++) {
            check(hearth_rpc_time_left(shelf->rpc[i]) == 0, "time is left");
            check(!hearth_rpc_group(shelf->rpc[i]), "its group is there");
            check_status(hearth_rpc_reply(shelf->rpc[i], "x", 1), HEARTH_CLOSED);
        }
    }
    for (int i = 0; rank == 0 && i < 3; i++) {
        check_error(hearth_request_wait(requests[i], -1), HEARTH_PEER_LOST,
                    i < 2 ? "it may have run" : "it did not run");
        check(hearth_request_error_fate(requests[i]) ==
                  (i < 2 ? HEARTH_FATE_UNKNOWN : HEARTH_FATE_NOT_DELIVERED),
              "call %d: another fate: %s", i, hearth_request_error(requests[i]));
        check(hearth_request_error_reason(requests[i]) == HEARTH_REASON_PEER_LEFT, "another reason");
        hearth_request_close(requests[i]);
    }
    fixture_meet(c);
}

TEST(a_node_closes_with_calls_in_flight)
{
    struct shelf shelf = shelf_make();
    fixture_once(2, NULL, closes_with_calls, &shelf);
}

static void closes_at_the_caller(struct fixture *c, int rank, void *arg)
{
    struct shelf *shelf = arg;
    struct hearth_message *reply = NULL;
    hearth_request *request;
    if (rank == 1)
        check_ok(hearth_rpc_register(c->nodes[1], "keep", keep, shelf, NULL));
    fixture_meet(c);
    if (rank == 0) {
        check_ok(hearth_rpc_call_nb(c->world[0], 1, "keep", NULL, 0, NULL, &reply, &request));
        wait_count(&shelf->count, 1);
        hearth_node_close(c->nodes[0]); /* its requests go with it */
        c->nodes[0] = NULL;
    } else {
        wait_count(&shelf->count, 1);
        while (hearth_rpc_time_left(shelf->rpc[0]) > 0)
            sleep_ms(1);
        check_error(hearth_rpc_reply(shelf->rpc[0], "x", 1), HEARTH_PEER_LOST, "rank 0");
    }
    check(!reply, "a reply was set");
    fixture_meet(c);
}

TEST(the_caller_closes)
{
    struct shelf shelf = shelf_make();
    fixture_once(2, NULL, closes_at_the_caller, &shelf);
}

/* A handler that waits for a message that never comes. */
static void waits(void *arg, hearth_rpc *rpc, const void *request, size_t len)
{
    atomic_int *count = arg;
    char byte;
    hearth_group *group = hearth_rpc_group(rpc);
    atomic_fetch_add(count, 1);
    check_status(hearth_recv(group, 0, 99, &byte, 1, NULL, NULL), HEARTH_CLOSED);
    check_ok(hearth_rpc_fail(rpc, "nothing came"));
}

static void closes_under_a_handler(struct fixture *c, int rank, void *arg)
{
    atomic_int *count = arg;
    struct hearth_message *reply = NULL;
    if (rank == 1)
        check_ok(hearth_rpc_register(c->nodes[1], "waits", waits, count, NULL));
    fixture_meet(c);
    if (rank == 0) {
        check_error(hearth_rpc_call(c->world[0], 1, "waits", NULL, 0, NULL, &reply), HEARTH_CALL_FAILED,
                    "nothing came");
    } else {
        wait_count(count, 1);
        sleep_ms(5);
        hearth_node_close(c->nodes[1]);
        c->nodes[1] = NULL;
    }
    fixture_meet(c);
}

TEST(a_close_ends_what_handlers_wait_for_and_their_answers_arrive)
{
    atomic_int count = 0;
    fixture_once(2, NULL, closes_under_a_handler, &count);
}

/* ---- groups ---- */

static void in_split_groups(struct fixture *c, int rank, void *arg)
{
    hearth_group *half;
    struct shelf *shelf = arg;
    struct hearth_message *reply = NULL;
    hearth_request *request;
    check_ok(hearth_rpc_register(c->nodes[rank], "keep", keep, shelf, NULL));
    check_ok(hearth_group_split(c->world[rank], rank % 2, -rank, NULL, &half));
    fixture_meet(c);
    if (rank == 0) { /* ranks are those of the group: 2 is rank 0 of it */
        check_ok(hearth_rpc_call_nb(half, 0, "keep", NULL, 0, NULL, &reply, &request));
        wait_count(&shelf->count, 1);
        check(hearth_rpc_rank(shelf->rpc[0]) == 1, "rank %d", hearth_rpc_rank(shelf->rpc[0]));
    }
    fixture_meet(c);
    if (rank == 2) {
        check(hearth_rpc_group(shelf->rpc[0]) == half, "another group");
        hearth_group_close(half);
        check(!hearth_rpc_group(shelf->rpc[0]), "the group is there");
        check(hearth_rpc_time_left(shelf->rpc[0]) == 0, "time is left");
        check_error(hearth_rpc_reply(shelf->rpc[0], NULL, 0), HEARTH_CANCELLED, "closed");
    } else {
        fixture_meet(c);
        hearth_group_close(half); /* cancels */
    }
    if (rank == 2)
        fixture_meet(c);
    if (rank == 0) {
        check_status(hearth_request_wait(request, -1), HEARTH_CANCELLED);
        hearth_request_close(request);
    }
    fixture_meet(c);
}

TEST(groups_may_close_with_calls_in_flight)
{
    struct shelf shelf = shelf_make();
    fixture_once(4, NULL, in_split_groups, &shelf);
}

/* ---- arguments ---- */

TEST(arguments_are_checked)
{
    struct fixture c;
    struct hearth_message *reply = NULL;
    struct hearth_rpc_limits limits;
    char name[65];
    memset(name, 'n', 64);
    name[64] = '\0';
    hearth_rpc_limits_init(&limits);
    fixture_open(&c, 1, NULL);
    hearth_node *node = c.nodes[0];
    hearth_group *world = c.world[0];
    check_error(hearth_rpc_register(NULL, "a", echo, NULL, NULL), HEARTH_INVALID, "node is NULL");
    check_error(hearth_rpc_register(node, NULL, echo, NULL, NULL), HEARTH_INVALID, "name is NULL");
    check_error(hearth_rpc_register(node, "", echo, NULL, NULL), HEARTH_INVALID, "1 to 63");
    check_error(hearth_rpc_register(node, name, echo, NULL, NULL), HEARTH_INVALID, "1 to 63");
    check_error(hearth_rpc_register(node, "a\n", echo, NULL, NULL), HEARTH_INVALID, "printable");
    check_ok(hearth_rpc_register(node, name + 1, echo, NULL, &limits));
    check_error(hearth_rpc_register(node, name + 1, echo, NULL, NULL), HEARTH_INVALID, "already");
    limits.running = 0;
    check_error(hearth_rpc_register(node, "b", echo, NULL, &limits), HEARTH_INVALID, "limits.running");
    limits.size = 0;
    check_status(hearth_rpc_register(node, "b", echo, NULL, &limits), HEARTH_INVALID);
    check_error(hearth_rpc_call(NULL, 0, "a", NULL, 0, NULL, &reply), HEARTH_INVALID, "group is NULL");
    check_error(hearth_rpc_call(world, 1, "a", NULL, 0, NULL, &reply), HEARTH_INVALID, "rank is 1");
    check_error(hearth_rpc_call(world, 0, name, NULL, 0, NULL, &reply), HEARTH_INVALID, "1 to 63");
    check_error(hearth_rpc_call(world, 0, "a", NULL, 1, NULL, &reply), HEARTH_INVALID, "request is NULL");
    check_error(hearth_rpc_call(world, 0, "a", NULL, 0, NULL, NULL), HEARTH_INVALID, "reply is NULL");
    check_error(hearth_rpc_call_nb(world, 0, "a", NULL, 0, NULL, &reply, NULL), HEARTH_INVALID, "pending");
    check_error(hearth_rpc_reply(NULL, NULL, 0), HEARTH_INVALID, "rpc is NULL");
    check_error(hearth_rpc_fail(NULL, NULL), HEARTH_INVALID, "rpc is NULL");
    check(hearth_rpc_rank(NULL) == -1 && !hearth_rpc_group(NULL) && hearth_rpc_time_left(NULL) == 0, "NULL");
    fixture_close(&c);
    checks_end();
}
