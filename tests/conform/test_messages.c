/* SPDX-License-Identifier: Apache-2.0 */
/* Messages between nodes of one process: what the header promises, one promise a test. */
#include <string.h>

#include "conform/fixture.h"
#include "support/fake_device.h"

#define LARGE (1u << 20)

static void fill(uint8_t *bytes, size_t len, uint64_t seed)
{
    for (size_t i = 0; i < len; i++)
        bytes[i] = (uint8_t)draw(&seed);
}

static bool is_filled(const uint8_t *bytes, size_t len, uint64_t seed)
{
    for (size_t i = 0; i < len; i++)
        if (bytes[i] != (uint8_t)draw(&seed))
            return false;
    return true;
}

static struct hearth_received fresh(void)
{
    return (struct hearth_received){.size = sizeof(struct hearth_received)};
}

static struct hearth_opts within(int64_t timeout_ms)
{
    struct hearth_opts opts = opts_default();
    opts.timeout_ms = timeout_ms;
    return opts;
}

/* ---- bytes ---- */

static const size_t lengths[] = {0, 1, 4, 256, 257, 4096, 16384, 16385, 65536, 65537, LARGE, 5 * LARGE + 3};
#define LENGTHS (sizeof lengths / sizeof lengths[0])

static void send_each(struct fixture *c, int rank, void *arg)
{
    uint8_t *bytes = must_alloc(6 * LARGE);
    for (size_t i = 0; i < LENGTHS; i++) {
        if (rank == 0) {
            fill(bytes, lengths[i], i + 1);
            check_ok(hearth_send(c->world[0], 1, 7, bytes, lengths[i], NULL));
            continue;
        }
        struct hearth_received got = fresh();
        check_ok(hearth_recv(c->world[1], 0, 7, bytes, 6 * LARGE, NULL, &got));
        check(got.rank == 0 && got.tag == 7 && got.len == lengths[i], "%zu bytes of rank %d", got.len,
              got.rank);
        check(is_filled(bytes, lengths[i], i + 1), "other bytes in a message of %zu", lengths[i]);
    }
    free(bytes);
}

TEST(messages_of_every_length_arrive)
{
    fixture_once(2, NULL, send_each, NULL);
}

TEST(and_with_small_chunks_and_budget)
{
    struct hearth_config config;
    config_small(&config);
    fixture_once(2, &config, send_each, NULL);
}

static void early_then_late(struct fixture *c, int rank, void *arg)
{
    uint8_t *bytes = must_alloc(LARGE);
    hearth_request *requests[3];
    if (rank == 0) {
        fill(bytes, LARGE, 3);
        for (int i = 0; i < 3; i++)
            check_ok(
                hearth_send_nb(c->world[0], 1, 1, bytes + i, i == 1 ? LARGE - 2 : 10, NULL, &requests[i]));
        fixture_meet(c);
        check_ok(hearth_request_wait_all(requests, 3, -1));
        for (int i = 0; i < 3; i++)
            hearth_request_close(requests[i]);
    } else {
        fixture_meet(c); /* everything is unexpected */
        uint8_t *whole = must_alloc(LARGE);
        fill(whole, LARGE, 3);
        for (int i = 0; i < 3; i++) {
            struct hearth_received got = fresh();
            check_ok(hearth_recv(c->world[1], 0, 1, bytes, LARGE, NULL, &got));
            check(got.len == (i == 1 ? LARGE - 2 : 10), "message %d has %zu bytes", i, got.len);
            check(memcmp(bytes, whole + i, got.len) == 0, "message %d has other bytes", i);
        }
        free(whole);
    }
    free(bytes);
}

TEST(messages_of_one_tag_are_received_in_order_whatever_their_length)
{
    fixture_once(2, NULL, early_then_late, NULL);
}

static void reversed(struct fixture *c, int rank, void *arg)
{
    int32_t value = 0;
    if (rank == 0) {
        for (value = 0; value < 50; value++)
            check_ok(hearth_send(c->world[0], 1, (uint64_t)value, &value, sizeof value, NULL));
        return;
    }
    for (int tag = 49; tag >= 0; tag--) {
        check_ok(hearth_recv(c->world[1], 0, (uint64_t)tag, &value, sizeof value, NULL, NULL));
        check(value == tag, "tag %d brought %d", tag, value);
    }
}

TEST(tags_may_be_received_in_any_order)
{
    fixture_once(2, NULL, reversed, NULL);
}

static void any(struct fixture *c, int rank, void *arg)
{
    int64_t value = 0;
    if (rank != 0) {
        for (int i = 0; i < 20; i++) {
            value = rank * 1000 + i;
            check_ok(hearth_send(c->world[rank], 0, (uint64_t)(i % 3), &value, sizeof value, NULL));
        }
        return;
    }
    int64_t next[MEMBERS_MAX][3] = {{0}};
    for (int i = 0; i < 20 * (c->size - 1); i++) {
        struct hearth_received got = fresh();
        check_ok(hearth_recv(c->world[0], HEARTH_ANY_RANK, HEARTH_ANY_TAG, &value, sizeof value, NULL, &got));
        if (!check(got.rank > 0 && got.rank < c->size && got.tag < 3, "rank %d, tag %d", got.rank,
                   (int)got.tag))
            return;
        int64_t number = value - got.rank * 1000;
        check(number % 3 == (int64_t)got.tag, "a message with another tag");
        check(number >= next[got.rank][got.tag], "message %d of rank %d out of order", (int)number, got.rank);
        next[got.rank][got.tag] = number + 1;
    }
}

TEST(any_rank_and_any_tag_keep_the_order)
{
    fixture_once(4, NULL, any, NULL);
}

static void to_self(struct fixture *c, int rank, void *arg)
{
    uint8_t a[100], b[100] = {0};
    hearth_request *request;
    struct hearth_received got = fresh();
    fill(a, sizeof a, 9);
    check_ok(hearth_send(c->world[rank], rank, 1, a, sizeof a, NULL)); /* short: needs no receive */
    check_ok(hearth_recv(c->world[rank], rank, 1, b, sizeof b, NULL, &got));
    check(got.rank == rank && memcmp(a, b, sizeof a) == 0, "another message");
    uint8_t *big = must_alloc(LARGE), *back = must_alloc(LARGE);
    fill(big, LARGE, 10);
    check_ok(hearth_send_nb(c->world[rank], rank, 2, big, LARGE, NULL, &request));
    check_status(hearth_request_test(request), HEARTH_PENDING);
    check_ok(hearth_recv(c->world[rank], HEARTH_ANY_RANK, HEARTH_ANY_TAG, back, LARGE, NULL, &got));
    check_ok(hearth_request_wait(request, -1));
    check(memcmp(big, back, LARGE) == 0, "other bytes");
    hearth_request_close(request);
    check_ok(hearth_recv_nb(c->world[rank], rank, 3, b, sizeof b, NULL, NULL, &request));
    check_ok(hearth_send(c->world[rank], rank, 3, a, sizeof a, NULL));
    check_ok(hearth_request_wait(request, -1));
    hearth_request_close(request);
    check_ok(hearth_send_nb(c->world[rank], rank, 4, big, LARGE, NULL, &request));
    hearth_request_close(request); /* cancels */
    struct hearth_opts opts = within(0);
    check_status(hearth_probe(c->world[rank], rank, 4, &opts, &got), HEARTH_PENDING);
    free(big);
    free(back);
}

TEST(a_member_may_send_to_itself)
{
    fixture_once(1, NULL, to_self, NULL);
    fixture_once(2, NULL, to_self, NULL);
}

/* ---- parts ---- */

static void parts(struct fixture *c, int rank, void *arg)
{
    static const size_t out[] = {4, 0, 300000, 1, 2, 200000}, in[] = {100, 250000, 0, 250000, 7};
    uint8_t *bytes = must_alloc(LARGE);
    struct hearth_iovec v[8];
    size_t at = 0;
    if (rank == 0) {
        fill(bytes, LARGE, 5);
        for (size_t i = 0; i < 6; at += out[i], i++)
            v[i] = (struct hearth_iovec){bytes + at, out[i]};
        check_ok(hearth_sendv(c->world[0], 1, 1, v, 6, NULL));
        check_ok(hearth_sendv(c->world[0], 1, 1, v, 2, NULL));
    } else {
        for (size_t i = 0; i < 5; at += in[i], i++)
            v[i] = (struct hearth_iovec){bytes + at, in[i]};
        hearth_request *request;
        struct hearth_received got = fresh();
        check_ok(hearth_recvv_nb(c->world[1], 0, 1, v, 5, NULL, &got, &request));
        memset(v, 0, sizeof v); /* the array is copied */
        check_ok(hearth_request_wait(request, -1));
        hearth_request_close(request);
        check(got.len == 500007 && is_filled(bytes, 500007, 5), "%zu bytes", got.len);
        struct hearth_iovec two[2] = {{bytes, 1}, {bytes + 1, 3}};
        check_ok(hearth_recvv(c->world[1], 0, 1, two, 2, NULL, &got));
        check(got.len == 4 && is_filled(bytes, 4, 5), "%zu bytes", got.len);
    }
    free(bytes);
}

TEST(parts_are_one_message)
{
    fixture_once(2, NULL, parts, NULL);
}

/* ---- lengths that do not fit ---- */

static void too_long(struct fixture *c, int rank, void *arg)
{
    uint8_t *bytes = must_alloc(LARGE);
    memset(bytes, 1, LARGE);
    for (size_t len = 100; len <= LARGE; len = len == 100 ? LARGE : LARGE + 1) {
        if (rank == 0) {
            struct hearth_opts opts = opts_default();
            opts.flags = HEARTH_FLAG_SYNC_SEND;
            check_error(hearth_send(c->world[0], 1, 1, bytes, len, &opts), HEARTH_TOO_LONG, "room for 99");
            check(hearth_error_fate() == HEARTH_FATE_NOT_DELIVERED, "fate %d", (int)hearth_error_fate());
        } else {
            uint8_t room[100] = {0};
            char both[80];
            snprintf(both, sizeof both, "has %zu bytes, the receive has room for 99", len);
            check_error(hearth_recv(c->world[1], 0, 1, room, 99, NULL, NULL), HEARTH_TOO_LONG, both);
            check(hearth_error_rank() == 0, "rank %d", hearth_error_rank());
            for (size_t i = 0; i < sizeof room; i++)
                check(room[i] == 0, "byte %zu was written", i);
        }
    }
    check_ok(hearth_barrier(c->world[rank], NULL));
    free(bytes);
}

TEST(a_message_longer_than_the_buffer_is_an_error_on_both_sides)
{
    fixture_once(2, NULL, too_long, NULL);
}

/* ---- messages of unknown length, probes ---- */

static void unknown(struct fixture *c, int rank, void *arg)
{
    uint8_t *bytes = must_alloc(LARGE);
    for (size_t i = 0; i < 4; i++) {
        size_t len = (size_t[]){0, 5, 70000, LARGE}[i];
        if (rank == 0) {
            fill(bytes, len, i);
            check_ok(hearth_send(c->world[0], 1, i, bytes, len, NULL));
            continue;
        }
        struct hearth_received got = fresh();
        struct hearth_message *message = NULL;
        check_ok(hearth_probe(c->world[1], HEARTH_ANY_RANK, i, NULL, &got));
        check(got.len == len && got.rank == 0 && got.tag == i, "%zu bytes", got.len);
        check_ok(hearth_message_recv(c->world[1], 0, HEARTH_ANY_TAG, NULL, &message));
        check(message->len == len && message->rank == 0 && message->tag == i, "%zu bytes", message->len);
        check(is_filled(message->data, len, i), "other bytes");
        hearth_message_free(message);
    }
    free(bytes);
}

TEST(a_message_of_any_length_can_be_probed_and_taken)
{
    fixture_once(2, NULL, unknown, NULL);
}

/* ---- synchronous sends ---- */

static void synchronous(struct fixture *c, int rank, void *arg)
{
    int32_t value = 42;
    hearth_request *request;
    struct hearth_opts opts = opts_default();
    opts.flags = HEARTH_FLAG_SYNC_SEND;
    if (rank == 0) {
        check_ok(hearth_send_nb(c->world[0], 1, 1, &value, sizeof value, &opts, &request));
        check_status(hearth_request_wait(request, 20), HEARTH_PENDING);
        fixture_meet(c);
        check_ok(hearth_request_wait(request, -1));
        hearth_request_close(request);
    } else {
        fixture_meet(c);
        check_ok(hearth_recv(c->world[1], 0, 1, &value, sizeof value, NULL, NULL));
    }
}

TEST(a_synchronous_send_ends_when_it_was_received)
{
    fixture_once(2, NULL, synchronous, NULL);
}

/* ---- a receiver that posts nothing ---- */

static void ahead(struct fixture *c, int rank, void *arg)
{
    enum { COUNT = 10000 };
    static hearth_request *requests[COUNT];
    uint8_t *bytes = must_alloc(2000);
    struct hearth_opts opts = within(300 * slow_factor());
    if (rank == 0) {
        memset(bytes, 3, 2000);
        for (int i = 0; i < COUNT; i++)
            check_ok(hearth_send_nb(c->world[0], 1, 5, bytes, 2000, &opts, &requests[i]));
        /* Another tag, another member and collectives are not held up. */
        check_ok(hearth_send(c->world[0], 1, 6, bytes, 2000, NULL));
        check_ok(hearth_barrier(c->world[0], NULL));
        int timeouts = 0;
        for (int i = 0; i < COUNT; i++) {
            int status = hearth_request_wait(requests[i], -1);
            timeouts += status == HEARTH_TIMEOUT;
            if (status == HEARTH_TIMEOUT) {
                check(hearth_request_error_rank(requests[i]) == 1, "another rank");
                check_text(hearth_request_error(requests[i]), "rank 1 has not received it");
                check(hearth_request_error_fate(requests[i]) == HEARTH_FATE_NOT_DELIVERED, "another fate");
            }
            hearth_request_close(requests[i]);
        }
        check(timeouts > COUNT / 2, "%d of %d sends waited", timeouts, COUNT);
    } else {
        check_ok(hearth_recv(c->world[1], 0, 6, bytes, 2000, NULL, NULL));
        check_ok(hearth_barrier(c->world[1], NULL));
        uint64_t held = metric(c->nodes[1], "hearth_memory_bytes");
        check(held < 8u << 20, "%llu bytes held for messages that are not received",
              (unsigned long long)held);
    }
    fixture_meet(c);
    free(bytes);
}

TEST(a_receiver_that_posts_nothing_holds_up_one_tag_and_little_memory)
{
    fixture_once(2, NULL, ahead, NULL);
}

/* ---- cancel, timeout ---- */

static void cancels(struct fixture *c, int rank, void *arg)
{
    uint8_t *bytes = must_alloc(LARGE);
    hearth_request *request;
    struct hearth_opts short_time = within(30);
    if (rank == 0) {
        fill(bytes, LARGE, 1);
        check_ok(hearth_send_nb(c->world[0], 1, 1, bytes, LARGE, NULL, &request));
        check_ok(hearth_request_cancel(request));
        check_status(hearth_request_test(request), HEARTH_CANCELLED);
        check(hearth_request_error_fate(request) == HEARTH_FATE_NOT_DELIVERED, "another fate");
        hearth_request_close(request);
        check_error(hearth_send(c->world[0], 1, 2, bytes, LARGE, &short_time), HEARTH_TIMEOUT, "rank 1");
        fixture_meet(c);
        check_ok(hearth_send(c->world[0], 1, 3, bytes, LARGE, NULL)); /* after a cancelled receive */
        check_ok(hearth_send(c->world[0], 1, 1, bytes, 10, NULL));
    } else {
        check_error(hearth_recv(c->world[1], 0, 99, bytes, 10, &short_time, NULL), HEARTH_TIMEOUT,
                    "rank 0 has sent nothing");
        check_ok(hearth_recv_nb(c->world[1], 0, 3, bytes, LARGE, NULL, NULL, &request));
        check_ok(hearth_request_cancel(request));
        check_status(hearth_request_test(request), HEARTH_CANCELLED);
        hearth_request_close(request);
        fixture_meet(c);
        check_ok(hearth_recv(c->world[1], 0, 3, bytes, LARGE, NULL, NULL));
        struct hearth_received got = fresh();
        check_ok(hearth_recv(c->world[1], 0, 1, bytes, LARGE, NULL, &got)); /* not the cancelled one */
        check(got.len == 10, "%zu bytes", got.len);
        struct hearth_opts now = within(0);
        check_status(hearth_probe(c->world[1], HEARTH_ANY_RANK, HEARTH_ANY_TAG, &now, NULL), HEARTH_PENDING);
    }
    free(bytes);
}

TEST(cancelled_and_late_messages_leave_both_sides_usable)
{
    fixture_once(2, NULL, cancels, NULL);
}

/* ---- members that go ---- */

static void leaves(struct fixture *c, int rank, void *arg)
{
    int32_t value = 7;
    if (rank == 1) {
        check_ok(hearth_send(c->world[1], 0, 1, &value, sizeof value, NULL));
        hearth_node_close(c->nodes[1]);
        c->nodes[1] = NULL;
        fixture_meet(c);
        return;
    }
    fixture_meet(c);
    value = 0;
    if (rank == 0) {
        check_ok(hearth_recv(c->world[0], 1, 1, &value, sizeof value, NULL, NULL));
        check(value == 7, "%d", value);
        check_error(hearth_recv(c->world[0], 1, 1, &value, sizeof value, NULL, NULL), HEARTH_PEER_LOST,
                    "rank 1 has left");
        check(hearth_error_reason() == HEARTH_REASON_PEER_LEFT, "another reason");
        check_error(hearth_send(c->world[0], 1, 1, &value, sizeof value, NULL), HEARTH_PEER_LOST, "rank 1");
        check(hearth_error_fate() == HEARTH_FATE_NOT_DELIVERED, "another fate");
        check_ok(hearth_send(c->world[0], 2, 1, &value, sizeof value, NULL)); /* the others go on */
    } else {
        check_ok(hearth_recv(c->world[2], 0, 1, &value, sizeof value, NULL, NULL));
    }
}

TEST(a_member_that_leaves_leaves_its_messages)
{
    fixture_once(3, NULL, leaves, NULL);
}

/* ---- codecs ---- */

static void coded(struct fixture *c, int rank, void *arg)
{
    enum { COUNT = 100000 };
    static const char *const codecs[] = {"fp16", "bf16", "int8", "none"};
    float *x = must_alloc(COUNT * sizeof *x);
    for (size_t k = 0; k < 4; k++) {
        struct hearth_opts opts = opts_default();
        uint64_t sent, received, sent_after;
        if (rank == 0) {
            for (int i = 0; i < COUNT; i++)
                x[i] = (float)(i % 1000) / 1000 - 0.5f;
            opts.codec = codecs[k];
            check_ok(hearth_group_traffic(c->world[0], &sent, &received));
            check_ok(hearth_send(c->world[0], 1, 1, x, COUNT * sizeof *x, &opts));
            check_ok(hearth_group_traffic(c->world[0], &sent_after, &received));
            double share = (double)(sent_after - sent) / (COUNT * sizeof *x);
            check(k == 3 || share < 0.52, "%s sent %g of the bytes", codecs[k], share);
            continue;
        }
        struct hearth_received got = fresh();
        if (k == 2) {
            struct hearth_message *message;
            check_ok(hearth_message_recv(c->world[1], 0, 1, &opts, &message));
            memcpy(x, message->data, message->len);
            got.len = message->len;
            hearth_message_free(message);
        } else {
            check_ok(hearth_recv(c->world[1], 0, 1, x, COUNT * sizeof *x, &opts, &got));
        }
        check(got.len == COUNT * sizeof *x, "%zu bytes", got.len);
        for (int i = 0; i < COUNT; i++) {
            float wanted = (float)(i % 1000) / 1000 - 0.5f, off = x[i] - wanted;
            if (!check(off < 0.005f && off > -0.005f, "%s: %g, not %g", codecs[k], (double)x[i],
                       (double)wanted))
                break;
        }
    }
    struct hearth_opts opts = opts_default();
    opts.dtype = rank == 0 ? HEARTH_F64 : HEARTH_F32;
    opts.codec = rank == 0 ? "bf16" : NULL;
    opts.flags = HEARTH_FLAG_SYNC_SEND;
    if (rank == 0)
        check_error(hearth_send(c->world[0], 1, 1, x, 800, &opts), HEARTH_MISMATCH, "f64");
    else
        check_error(hearth_recv(c->world[1], 0, 1, x, 800, &opts, NULL), HEARTH_MISMATCH, "expects f32");
    free(x);
}

TEST(a_codec_halves_the_bytes_and_type_and_count_are_checked)
{
    fixture_once(2, NULL, coded, NULL);
}

/* ---- groups ---- */

static void split(struct fixture *c, int rank, void *arg)
{
    hearth_group *half = NULL;
    int32_t value = rank;
    check_ok(hearth_group_split(c->world[rank], rank % 2, -rank, NULL, &half));
    int own = hearth_group_rank(half), other = 1 - own;
    struct hearth_received got = fresh();
    check_ok(hearth_send(half, other, 1, &value, sizeof value, NULL)); /* perhaps before the other has it */
    check_ok(hearth_send(c->world[rank], (rank + 2) % 4, 1, &(int32_t){100}, sizeof value, NULL));
    check_ok(hearth_recv(half, HEARTH_ANY_RANK, HEARTH_ANY_TAG, &value, sizeof value, NULL, &got));
    check(value == (rank + 2) % 4 && got.rank == other, "%d of rank %d", value, got.rank);
    hearth_group_close(half);
    check_ok(hearth_recv(c->world[rank], (rank + 2) % 4, 1, &value, sizeof value, NULL, NULL));
    check(value == 100, "%d", value);
}

TEST(messages_of_different_groups_never_match)
{
    fixture_once(4, NULL, split, NULL);
}

/* ---- arguments ---- */

TEST(bad_arguments_are_named)
{
    struct fixture c;
    hearth_request *request;
    fixture_open(&c, 2, NULL);
    hearth_group *g = c.world[0];
    struct hearth_opts opts = opts_default();
    check_error(hearth_send(NULL, 0, 0, NULL, 0, NULL), HEARTH_INVALID, "send: group is NULL");
    check_error(hearth_send(g, 2, 0, NULL, 0, NULL), HEARTH_INVALID, "rank is 2");
    check_error(hearth_send(g, HEARTH_ANY_RANK, 0, NULL, 0, NULL), HEARTH_INVALID, "rank is -2");
    check_error(hearth_send(g, 1, HEARTH_ANY_TAG, NULL, 0, NULL), HEARTH_INVALID, "HEARTH_ANY_TAG");
    check_error(hearth_send(g, 1, 0, NULL, 5, NULL), HEARTH_INVALID, "len is 5");
    check_error(hearth_recv(g, 5, 0, NULL, 0, NULL, NULL), HEARTH_INVALID, "recv: rank is 5");
    check_error(hearth_recv(g, 1, 0, NULL, 0, NULL, &(struct hearth_received){0}), HEARTH_INVALID,
                "received");
    check_error(hearth_send_nb(g, 1, 0, NULL, 0, NULL, NULL), HEARTH_INVALID, "request is NULL");
    check_error(hearth_message_recv_nb(g, 1, 0, NULL, NULL, &request), HEARTH_INVALID, "message is NULL");
    check_error(hearth_sendv(g, 1, 0, NULL, 1, NULL), HEARTH_INVALID, "parts is NULL");
    check_error(hearth_sendv(g, 1, 0, &(struct hearth_iovec){NULL, 3}, 1, NULL), HEARTH_INVALID, "parts[0]");
    check_error(hearth_sendv(g, 1, 0, NULL, 1025, NULL), HEARTH_INVALID, "1025 parts");
    opts.priority = (enum hearth_priority)9;
    check_error(hearth_send(g, 1, 0, NULL, 0, &opts), HEARTH_INVALID, "opts.priority");
    opts = opts_default();
    opts.codec = "int9";
    check_error(hearth_send(g, 1, 0, "1234", 4, &opts), HEARTH_INVALID, "int9");
    opts.codec = "bf16";
    check_error(hearth_send(g, 1, 0, "1234", 3, &opts), HEARTH_INVALID, "not a multiple of 4");
    checks_end();
    fixture_close(&c);
}

/* ---- callbacks, descriptors ---- */

static void note_done(void *arg, int status)
{
    *(_Atomic(int) *)arg = status == HEARTH_OK ? 1 : -1;
}

static void requests(struct fixture *c, int rank, void *arg)
{
    int32_t value = 5;
    hearth_request *request;
    if (rank == 0) {
        fixture_meet(c);
        check_ok(hearth_send(c->world[0], 1, 1, &value, sizeof value, NULL));
        return;
    }
    _Atomic(int) done = 0;
    struct hearth_opts opts = opts_default();
    opts.done = note_done;
    opts.done_arg = &done;
    check_ok(hearth_recv_nb(c->world[1], 0, 1, &value, sizeof value, &opts, NULL, &request));
    check(hearth_request_fd(request) >= 0, "no descriptor");
    fixture_meet(c);
    check_ok(hearth_request_wait(request, -1));
    check(done == 1, "the callback says %d", done);
    hearth_request_close(request);
}

TEST(requests_have_callbacks_and_descriptors)
{
    fixture_once(2, NULL, requests, NULL);
}

/* ---- device memory ---- */

static void on_device(struct fixture *c, int rank, void *arg)
{
    struct fake_device *device = arg;
    hearth_group *group = c->world[rank];
    uint8_t *seen = fake_device_alloc(device, LARGE);
    uint8_t *own = fake_device_address(device, seen);
    struct hearth_received got = fresh();
    check_ok(hearth_group_set_memory(group, &device->memory));
    struct hearth_iovec two[2] = {{own, 100}, {own + 100, LARGE - 100}};
    if (rank == 0) {
        fill(seen, LARGE, 4);
        check_ok(hearth_send(group, 1, 1, own, LARGE, NULL));
        check_ok(hearth_sendv(group, 1, 1, two, 2, NULL));
        struct hearth_opts opts = opts_default();
        opts.codec = "bf16";
        for (size_t i = 0; i < LARGE / sizeof(float); i++)
            ((float *)seen)[i] = 0.5f;
        check_ok(hearth_send(group, 1, 1, own, 400, &opts));
        fixture_meet(c);
    } else {
        check_ok(hearth_recv(group, 0, 1, own, LARGE, NULL, &got));
        check(got.len == LARGE && is_filled(seen, LARGE, 4), "other bytes on the device");
        memset(seen, 0, LARGE);
        check_ok(hearth_recvv(group, 0, 1, two, 2, NULL, &got));
        check(got.len == LARGE && is_filled(seen, LARGE, 4), "other bytes in parts");
        check_ok(hearth_recv(group, 0, 1, own, LARGE, NULL, &got));
        check(got.len == 400 && ((float *)seen)[99] == 0.5f, "other floats");
        fixture_meet(c);
        device->in_left = 0;
        check_error(hearth_send(group, 0, 1, own, 10, NULL), HEARTH_COPY_FAILED, "copy_in");
        device->in_left = -1;
    }
}

TEST(messages_on_device_memory)
{
    struct fake_device device;
    fake_device_open(&device, 4 * LARGE);
    fixture_once(2, NULL, on_device, &device);
    assert_int_equal(device.wrong, 0);
    fake_device_close(&device);
}
