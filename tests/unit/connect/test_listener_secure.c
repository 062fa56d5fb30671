/* SPDX-License-Identifier: Apache-2.0 */
/* A listener that wants a handshake: who cannot make it, or takes too long, or comes in masses, costs little
 * and is named; members get in. */
#include <sys/socket.h>
#include <unistd.h>

#include "core/prng.h"
#include "listening.h"
#include "os/clock.h"
#include "support/suite.h"

#define HELLO_MAX 2048
#define ALERT_LEN 7 /* of TLS: all that a wrong knock is worth */

static struct heap incoming_heap;           /* of those who come */
static struct credentials *ann, *bob, *eve; /* ann keeps the listener; eve has another secret */

static int open_listener(void **state)
{
    heap_init(&incoming_heap, 0);
    ann = person(&incoming_heap, 1, 0x11);
    bob = person(&incoming_heap, 1, 0x33);
    eve = person(&incoming_heap, 2, 0x33);
    self.credentials = ann;
    if (listening_open())
        return -1;
    listener_receive(listener, &self);
    return 0;
}

static int close_listener(void **state)
{
    listener_close(listener);
    credentials_close(ann);
    credentials_close(bob);
    credentials_close(eve);
    return heap.blocks == 0 && incoming_heap.blocks == 0 ? 0 : -1;
}

/* ---- those who come ---- */

static struct secure_stream *secure_stream_to(int fd, const struct credentials *who,
                                              const struct knock_target *whom)
{
    struct session_setup setup = {
        .heap = &incoming_heap, .credentials = who, .role = CHANNEL_DIALS, .to = *whom};
    struct secure_stream *stream = NULL;

    assert_int_equal(secure_stream_open(&setup, fd, &stream), HEARTH_OK);
    return stream;
}

/* As a member dials it that knows the node. */
static struct secure_stream *secure_stream_on(int fd, const struct credentials *who)
{
    struct knock_target of_ann = {.kind = KNOCK_NODE, .node = credentials_self(ann)->node};

    return secure_stream_to(fd, who, &of_ann);
}

/* Pumps both ends until the handshake has come to an end: how. */
static int shake(struct secure_stream *stream, struct error *error)
{
    int status = HEARTH_PENDING;

    for (int i = 0; i < LOOKS_MAX && status == HEARTH_PENDING; i++) {
        struct sock_wait wait = {.fd = secure_stream_fd(stream), .want_recv = true};
        status = secure_stream_pump(stream, error);
        half_open_pump(listener->half_open, now_ns);
        if (status == HEARTH_PENDING)
            (void)sock_wait(&wait, 1, clock_real() + 10 * NS_PER_MS);
    }
    return status;
}

static void assert_gets_in(struct secure_stream *stream)
{
    struct half_open_incoming incoming;
    uint8_t bytes[GREETING_LEN];
    struct error error;

    if (shake(stream, &error) != HEARTH_OK)
        fail_msg("%s", error.text);
    greeting_encode(&good, bytes);
    assert_true(secure_stream_send(stream, bytes, sizeof bytes));
    assert_true(taken(&incoming));
    assert_int_equal(greeted.from, 3);
    assert_true(node_id_equal(&secure_stream_peer(incoming.stream)->node, &credentials_self(bob)->node));
    assert_int_equal(secure_stream_peer(incoming.stream)->instance, 0x33);
    secure_stream_close(incoming.stream);
    secure_stream_close(stream);
}

/* ---- the tests ---- */

TEST_WITH(a_member_gets_in, open_listener, close_listener)
{
    struct sock_addr addr;
    struct error error;
    int fd = -1;

    assert_gets_in(secure_stream_on(come(), bob));
    assert_int_equal(listener_open_local(listener, &error), HEARTH_OK);
    listener_local_addr(self.cluster, self.rank, &addr);
    assert_int_equal(sock_dial(&addr, NULL, &fd, &error), HEARTH_OK);
    assert_gets_in(secure_stream_on(fd, bob));
    assert_int_equal(notes.warnings, 0);
}

TEST_WITH(who_has_another_secret_is_told_and_named, open_listener, close_listener)
{
    struct error error;

    for (int i = 0; i < 3; i++) {
        struct secure_stream *stream = secure_stream_on(come(), eve);
        assert_int_equal(shake(stream, &error), HEARTH_PEER_LOST);
        assert_non_null(strstr(error.text, "another secret"));
        secure_stream_close(stream);
    }
    assert_int_equal(notes.warnings, 1);
    assert_non_null(strstr(notes.last, "127.0.0.1:"));
    assert_non_null(strstr(notes.last, "another secret"));
    assert_int_equal(half_open_admissions(listener->half_open)->refused, 0);
}

TEST_WITH(who_is_plain_is_named, open_listener, close_listener)
{
    int fd = come();

    greet(fd, &good);
    assert_true(closed_after(fd) >= 0);
    sock_close(fd);
    assert_int_equal(notes.warnings, 1);
    assert_non_null(strstr(notes.last, "it is plain"));
}

TEST_WITH(garbage_is_sent_away, open_listener, close_listener)
{
    struct prng prng;

    prng_init(&prng, 5);
    for (int i = 0; i < 40; i++) {
        uint8_t bytes[700];
        for (size_t j = 0; j < sizeof bytes; j++)
            bytes[j] = (uint8_t)prng_u64(&prng);
        bytes[0] |= 1; /* no 'H', and nothing of TLS but by the next line */
        if (i % 2)     /* it begins well */
            memcpy(bytes, (uint8_t[]){0x16, 3, 1, 2, 0, 1, 0, 1, 252, 3, 3}, 11);
        int fd = come();
        say(fd, bytes, sizeof bytes);
        assert_true(closed_after(fd) >= 0);
        sock_close(fd);
    }
    assert_standing(0);
    assert_int_equal(notes.warnings, 1);
}

/* Silence, half a hello, a byte now and then, a hello and nothing more: all have the same time. */
TEST_WITH(who_is_slow_must_go, open_listener, close_listener)
{
    static uint8_t hello[4096];
    int fds[2], slow = come(), silent = come();
    struct secure_stream *half = secure_stream_on(come(), bob);
    struct iovec piece = {hello, sizeof hello};
    uint64_t bytes = heap.bytes;
    struct error error;

    assert_int_equal(sock_pair(fds), HEARTH_OK);
    struct secure_stream *model = secure_stream_on(fds[0], bob);
    assert_int_equal(secure_stream_pump(model, &error), HEARTH_PENDING);
    ssize_t len = sock_recv(fds[1], &piece, 1);
    assert_true(len > 100);
    assert_int_equal(secure_stream_pump(half, &error), HEARTH_PENDING);
    for (int i = 0; i < 90; i++) {
        say(slow, hello + i, 1);
        now_ns += GREETING_NS / 100;
        half_open_pump(listener->half_open, now_ns);
    }
    assert_int_equal(half_open_strangers(listener->half_open), 3);
    assert_true(heap.bytes > bytes);
    now_ns += GREETING_NS;
    assert_standing(0);
    assert_true(heap.bytes == bytes);
    assert_int_equal(notes.warnings, 0); /* slowness is nobody's concern */
    secure_stream_close(half);
    secure_stream_close(model);
    sock_close(fds[1]);
    sock_close(slow);
    sock_close(silent);
}

/* Memory for tunnels is taken when something is said, and never for more than there are places. */
TEST_WITH(a_flood_pushes_out_itself, open_listener, close_listener)
{
    enum { FLOOD = 3 * HALF_OPEN_PLACES };
    struct secure_stream *flood[FLOOD];
    uint64_t bytes = heap.bytes, peak = 0;
    struct error error;

    int member = come_from("127.0.0.2:0");
    half_open_pump(listener->half_open, now_ns);
    for (int i = 0; i < FLOOD; i++) {
        flood[i] = secure_stream_on(come(), bob);
        if (i % 2)
            assert_int_equal(secure_stream_pump(flood[i], &error), HEARTH_PENDING); /* its hello, no more */
        half_open_pump(listener->half_open, now_ns);
        assert_true(half_open_strangers(listener->half_open) <= HALF_OPEN_PLACES);
        peak = heap.bytes - bytes > peak ? heap.bytes - bytes : peak;
    }
    assert_in_range(peak, 1, HALF_OPEN_PLACES * 32768);
    assert_gets_in(secure_stream_on(member, bob));
    for (int i = 0; i < FLOOD; i++)
        secure_stream_close(flood[i]);
    assert_standing(0);
    assert_true(heap.bytes == bytes);
}

/* A handshake that has begun well is not evicted by others of its address, for a while. */
TEST_WITH(a_handshake_is_not_disturbed, open_listener, close_listener)
{
    for (int late = 0; late < 2; late++) {
        struct secure_stream *begun = secure_stream_on(come(), bob);
        int fds[2 * HALF_OPEN_PLACES];
        struct error error;

        assert_int_equal(secure_stream_pump(begun, &error), HEARTH_PENDING);
        half_open_pump(listener->half_open, now_ns);
        now_ns += late ? NS_PER_S : 0;
        for (int i = 0; i < 2 * HALF_OPEN_PLACES; i++) {
            fds[i] = come();
            half_open_pump(listener->half_open, now_ns);
        }
        if (late) {
            assert_int_equal(shake(begun, &error), HEARTH_PEER_LOST);
            secure_stream_close(begun);
        } else {
            assert_gets_in(begun);
        }
        close_all(fds, 2 * HALF_OPEN_PLACES);
        assert_standing(0);
    }
}

/* Whoever has a hello that knows the secret can make us work: a bounded number of times. */
static void assert_rationed(const struct knock_target *whom, int at_most)
{
    struct error error;
    int status = HEARTH_PENDING, count = 0;

    while (half_open_admissions(listener->half_open)->refused == 0 && count < at_most + 2) {
        struct secure_stream *stream = secure_stream_to(come(), bob, whom);
        assert_int_equal(secure_stream_pump(stream, &error), HEARTH_PENDING);
        uint64_t before = half_open_admissions(listener->half_open)->refused;
        for (int i = 0; i < LOOKS_MAX && half_open_admissions(listener->half_open)->refused == before; i++) {
            struct sock_wait wait = {.fd = secure_stream_fd(stream), .want_recv = true};
            half_open_pump(listener->half_open, now_ns);
            if (sock_wait(&wait, 1, clock_real() + NS_PER_MS) > 0)
                break;
        }
        count++;
        if (half_open_admissions(listener->half_open)->refused > 0)
            status = shake(stream, &error);
        secure_stream_close(stream);
    }
    assert_int_equal(count, at_most + 1);
    assert_int_equal(status, HEARTH_PEER_LOST);
    assert_non_null(strstr(error.text, "later"));
    assert_gets_in(
        secure_stream_on(come_from("127.0.0.2:0"), bob)); /* what another has used up is not its own */
    now_ns += NS_PER_S;
    assert_gets_in(secure_stream_on(come(), bob));
}

TEST_WITH(handshakes_are_rationed, open_listener, close_listener)
{
    struct knock_target of_ann = {.kind = KNOCK_NODE, .node = credentials_self(ann)->node};

    assert_rationed(&of_ann, ADMISSION_BURST);
}

TEST_WITH(those_with_open_knocks_more_so, open_listener, close_listener)
{
    assert_rationed(&(struct knock_target){.kind = KNOCK_OPEN}, ADMISSION_SHARE_BURST);
}

/* The hello of a member that dials `to`, as whoever listens there takes it down. */
static size_t harvest(const struct knock_target *to, uint8_t bytes[static HELLO_MAX])
{
    int ends[2];

    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends), 0);
    struct secure_stream *stream = secure_stream_to(ends[0], bob, to);
    struct error error;
    assert_int_equal(secure_stream_pump(stream, &error), HEARTH_PENDING);
    ssize_t len = read(ends[1], bytes, HELLO_MAX);
    assert_in_range(len, 100, HELLO_MAX - 1);
    secure_stream_close(stream);
    close(ends[1]);
    return (size_t)len;
}

/* How many bytes the listener answers. One that gets an answer says nothing more. */
static size_t answer_to(const uint8_t *hello, size_t len)
{
    int fd = come(), got = 0;
    uint8_t bytes[HELLO_MAX];

    say(fd, hello, len);
    for (int i = 0; i < LOOKS_MAX && got <= HELLO_MAX / 8; i++) {
        struct sock_wait wait = {.fd = fd, .want_recv = true};
        half_open_pump(listener->half_open, now_ns);
        (void)sock_wait(&wait, 1, clock_real() + 10 * NS_PER_MS);
        ssize_t more = read(fd, bytes, sizeof bytes);
        if (more == 0)
            break;
        got += more > 0 ? (int)more : 0;
    }
    sock_close(fd);
    return (size_t)got;
}

/* A stranger had itself dialled, and spends at the listener what it has heard. */
TEST_WITH(knocks_at_others_are_worth_nothing_here, open_listener, close_listener)
{
    struct knock_target here = {.kind = KNOCK_ADDRESS, .addr = half_open_addr(listener->half_open)};
    struct knock_target stranger = here, other = {.kind = KNOCK_NODE, .node = credentials_self(eve)->node};
    uint8_t hello[HELLO_MAX];

    assert_int_equal(sock_addr_parse("127.0.0.3", sock_addr_port(&here.addr), &stranger.addr), HEARTH_OK);
    for (int i = 0; i < 40; i++)
        assert_int_equal(answer_to(hello, harvest(i % 2 ? &stranger : &other, hello)), ALERT_LEN);
    assert_int_equal(half_open_admissions(listener->half_open)->refused, 0);
    assert_in_range(answer_to(hello, harvest(&here, hello)), 100, HELLO_MAX); /* what members may say */
    assert_gets_in(secure_stream_to(come(), bob, &here));
}

/* A node that is joined makes no handshakes: who stands there, and who comes, is closed. */
TEST_WITH(afterwards_nobody_is_heard, open_listener, close_listener)
{
    struct secure_stream *early = secure_stream_on(come(), bob);
    struct error error;

    assert_int_equal(secure_stream_pump(early, &error), HEARTH_PENDING);
    half_open_pump(listener->half_open, now_ns);
    listener_settle(listener);
    assert_int_equal(half_open_strangers(listener->half_open), 0);
    uint64_t calls = heap.calls;
    struct secure_stream *late = secure_stream_on(come(), bob);
    assert_int_equal(shake(late, &error), HEARTH_PEER_LOST);
    assert_true(heap.calls == calls);
    secure_stream_close(early);
    secure_stream_close(late);
}

TEST_WITH(without_memory_strangers_are_closed, open_listener, close_listener)
{
    for (int after = 0; after < 6; after++) {
        heap.fail_after = after;
        struct secure_stream *stream = secure_stream_on(come(), bob);
        struct error error;
        assert_int_not_equal(shake(stream, &error), HEARTH_PENDING);
        secure_stream_close(stream);
        assert_standing(0);
    }
    heap.fail_after = -1;
    assert_gets_in(secure_stream_on(come(), bob));
}
