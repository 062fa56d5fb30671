/* SPDX-License-Identifier: Apache-2.0 */
/* Tunnels over real sockets: whatever way the bytes are cut, both ends come to the same, plain or not, and
 * not a byte behind the last message is taken. */
#include "core/prng.h"
#include "os/clock.h"
#include "security/records.h"
#include "support/persons.h"
#include "support/suite.h"

#define MESSAGE   64
#define STEPS_MAX 100000

static struct heap heap;
static struct credentials *ann, *bob, *eve; /* eve has another secret */
static bool secure;
static bool over_tcp; /* the dialler's side: what is too much for it is cut anywhere */

/* Two ends, and between them whoever carries the bytes. */
struct pipe {
    struct secure_stream *dialler, *listener;
    int middle[2]; /* the carrier's sockets: of the dialler, of the listener */
    int status[2];
    struct error error[2];
};
static struct pipe p;

static struct secure_stream *open_end(enum channel_role role, const struct credentials *credentials, int fd)
{
    struct session_setup setup = {.heap = &heap, .credentials = credentials, .role = role};
    struct secure_stream *stream = NULL;

    assert_int_equal(secure_stream_open(&setup, fd, &stream), HEARTH_OK);
    return stream;
}

static void open_pipe(const struct credentials *dials, const struct credentials *listens)
{
    int a[2], b[2];

    if (over_tcp)
        tcp_pair(a);
    else
        assert_int_equal(sock_pair(a), HEARTH_OK);
    assert_int_equal(sock_pair(b), HEARTH_OK);
    p = (struct pipe){.middle = {a[1], b[1]}};
    p.dialler = open_end(CHANNEL_DIALS, dials, a[0]);
    p.listener = open_end(CHANNEL_LISTENS, listens, b[0]);
    p.status[0] = p.status[1] = HEARTH_PENDING;
}

static void close_pipe(void)
{
    secure_stream_close(p.dialler);
    secure_stream_close(p.listener);
    sock_close(p.middle[0]);
    sock_close(p.middle[1]);
    p = (struct pipe){.middle = {-1, -1}};
}

static int set_up(void **state)
{
    heap_init(&heap, 0);
    secure = *state;
    over_tcp = false;
    ann = person(&heap, 1, 0xa);
    bob = person(&heap, 1, 0xb);
    eve = person(&heap, 2, 0xe);
    p = (struct pipe){.middle = {-1, -1}};
    return 0;
}

static int tear_down(void **state)
{
    close_pipe();
    credentials_close(ann);
    credentials_close(bob);
    credentials_close(eve);
    return heap.blocks == 0 ? 0 : -1;
}

/* Carries up to `max` bytes one way: how many. */
static size_t carry(int from, int to, size_t max)
{
    uint8_t bytes[4096];
    struct iovec piece = {bytes, max < sizeof bytes ? max : sizeof bytes};
    ssize_t len = sock_recv(from, &piece, 1);

    if (len <= 0)
        return 0;
    piece.iov_len = (size_t)len;
    assert_int_equal(sock_send(to, &piece, 1), len);
    return (size_t)len;
}

/* Both ends move, and at most `max` bytes are carried each way. */
static size_t step(size_t max)
{
    if (p.status[0] == HEARTH_PENDING || p.status[0] == HEARTH_OK)
        p.status[0] = secure_stream_pump(p.dialler, &p.error[0]);
    if (p.status[1] == HEARTH_PENDING || p.status[1] == HEARTH_OK)
        p.status[1] = secure_stream_pump(p.listener, &p.error[1]);
    return carry(p.middle[0], p.middle[1], max) + carry(p.middle[1], p.middle[0], max);
}

static void settle(size_t max)
{
    int quiet = 0;

    for (int i = 0; quiet < 3; i++) {
        assert_true(i < STEPS_MAX);
        quiet = step(max) > 0 ? 0 : quiet + 1;
    }
}

static void open_proven(size_t max)
{
    open_pipe(secure ? ann : NULL, secure ? bob : NULL);
    settle(max);
    for (int i = 0; i < 2; i++)
        if (p.status[i] != HEARTH_OK)
            fail_msg("end %d: %d %s", i, p.status[i], p.error[i].text);
    assert_true(secure_stream_ready(p.dialler) && secure_stream_ready(p.listener));
}

static void fill(uint8_t *bytes, size_t len, uint8_t mark)
{
    for (size_t i = 0; i < len; i++)
        bytes[i] = (uint8_t)('H' + mark + i * 7);
}

/* One message arrives whole, in pieces of at most `max`; `behind` more bytes of it stay unread. */
static void exchange(struct secure_stream *from, struct secure_stream *to, size_t len, size_t max)
{
    static uint8_t out[SECURE_STREAM_MESSAGE_MAX], in[SECURE_STREAM_MESSAGE_MAX];
    size_t got = 0;

    fill(out, len, 0);
    assert_true(secure_stream_send(from, out, len));
    for (int i = 0; got < len; i++) {
        assert_true(i < STEPS_MAX);
        (void)step(max);
        ssize_t more = secure_stream_recv(to, in + got, len - got);
        assert_true(more >= 0);
        got += (size_t)more;
    }
    assert_memory_equal(in, out, len);
    assert_int_equal(secure_stream_recv(to, in, 1), 0);
}

TEST_BOTH(they_talk, set_up, tear_down)
{
    static const size_t lens[] = {MESSAGE, 1, 4108, SECURE_STREAM_MESSAGE_MAX};

    open_proven(4096);
    for (size_t i = 0; i < sizeof lens / sizeof lens[0]; i++) {
        exchange(p.dialler, p.listener, lens[i], 4096);
        exchange(p.listener, p.dialler, lens[i], 4096);
    }
}

TEST_BOTH(byte_by_byte_too, set_up, tear_down)
{
    for (size_t max = 1; max <= 7; max += 3) {
        open_proven(max);
        exchange(p.dialler, p.listener, MESSAGE, max);
        exchange(p.listener, p.dialler, MESSAGE, max);
        close_pipe();
    }
}

TEST_BOTH(they_know_each_other, set_up, tear_down)
{
    open_proven(4096);
    if (!secure) {
        assert_null(secure_stream_peer(p.dialler));
        return;
    }
    assert_true(node_id_equal(&secure_stream_peer(p.dialler)->node, &credentials_self(bob)->node));
    assert_true(node_id_equal(&secure_stream_peer(p.listener)->node, &credentials_self(ann)->node));
    assert_int_equal(secure_stream_peer(p.dialler)->instance, 0xb);
    assert_int_equal(secure_stream_peer(p.listener)->instance, 0xa);
}

/* What follows the last message, and how the transport reads it. */
static size_t behind_make(struct records *records, uint8_t *target)
{
    uint8_t plain[MESSAGE];
    struct iovec piece = {plain, sizeof plain};

    fill(plain, sizeof plain, 9);
    if (records)
        return records_seal(records, &piece, 1, sizeof plain, target);
    memcpy(target, plain, sizeof plain);
    return sizeof plain;
}

static void behind_check(struct records *records, uint8_t *bytes, size_t len)
{
    uint8_t plain[MESSAGE], got[RECORD_MAX];

    fill(plain, sizeof plain, 9);
    if (records)
        assert_int_equal(records_open_one(records, bytes, len, got), MESSAGE);
    else
        memcpy(got, bytes, len);
    assert_memory_equal(got, plain, MESSAGE);
}

static void release(struct secure_stream **stream, int *fd, struct records **records)
{
    int status = secure_stream_release(*stream, fd, records);

    if (status != HEARTH_PENDING)
        *stream = NULL;
    assert_int_equal(status, HEARTH_OK);
}

/* The lower rank's decision and its first frame may come in one piece. */
TEST_BOTH(what_follows_is_left_to_the_transport, set_up, tear_down)
{
    uint8_t out[MESSAGE], in[MESSAGE], frame[RECORD_MAX];
    struct records *records[2] = {NULL, NULL};
    int fds[2] = {-1, -1};
    size_t got = 0;

    open_proven(4096);
    fill(out, sizeof out, 0);
    assert_true(secure_stream_send(p.dialler, out, sizeof out));
    release(&p.dialler, &fds[0], &records[0]);
    assert_true(secure == (!!records[0]));
    size_t len = behind_make(records[0], frame);
    struct iovec piece = {frame, len};
    assert_int_equal(sock_send(fds[0], &piece, 1), (int)len);
    while (carry(p.middle[0], p.middle[1], 4096) > 0)
        continue;
    while (got < sizeof in) {
        ssize_t more = secure_stream_recv(p.listener, in + got, sizeof in - got);
        assert_true(more > 0);
        got += (size_t)more;
    }
    assert_memory_equal(in, out, sizeof in);
    release(&p.listener, &fds[1], &records[1]);
    memset(frame, 0, sizeof frame);
    piece.iov_len = sizeof frame;
    assert_int_equal(sock_recv(fds[1], &piece, 1), (int)len);
    behind_check(records[1], frame, len);
    for (int i = 0; i < 2; i++) {
        records_close(records[i]);
        sock_close(fds[i]);
    }
}

TEST_SECURE(unread_bytes_stay_in_the_secure_stream, set_up, tear_down)
{
    uint8_t out[MESSAGE], in[MESSAGE];
    struct records *records = NULL;
    int fd = -1;

    open_proven(4096);
    fill(out, sizeof out, 0);
    assert_true(secure_stream_send(p.dialler, out, sizeof out));
    (void)carry(p.middle[0], p.middle[1], 4096);
    assert_int_equal(secure_stream_recv(p.listener, in, 10), 10);
    assert_int_equal(secure_stream_release(p.listener, &fd, &records), HEARTH_PENDING);
    assert_int_equal(secure_stream_recv(p.listener, in + 10, sizeof in), MESSAGE - 10);
    assert_memory_equal(in, out, sizeof in);
}

/* A socket that takes no more: a message is taken whole or not at all, and what was taken arrives. */
TEST_PLAIN(a_full_socket_cuts_no_message, set_up, tear_down)
{
    static uint8_t out[SECURE_STREAM_MESSAGE_MAX], in[SECURE_STREAM_MESSAGE_MAX];
    int count = 0;

    over_tcp = true;
    open_pipe(NULL, NULL);
    for (; count < 10000; count++) {
        fill(out, sizeof out, (uint8_t)count);
        if (!secure_stream_send(p.dialler, out, sizeof out))
            break;
    }
    assert_in_range(count, 1, 9999);
    for (int i = 0; i < count; i++) {
        size_t got = 0;
        fill(out, sizeof out, (uint8_t)i);
        for (int looks = 0; got < sizeof in; looks++) {
            struct sock_wait wait = {.fd = p.middle[0], .want_recv = true};
            assert_true(looks < STEPS_MAX);
            if (step(4096) == 0)
                (void)sock_wait(&wait, 1, clock_real() + 10 * NS_PER_MS);
            ssize_t len = secure_stream_recv(p.listener, in + got, sizeof in - got);
            assert_true(len >= 0);
            got += (size_t)len;
        }
        assert_memory_equal(in, out, sizeof in);
    }
    assert_false(secure_stream_wants_send(p.dialler));
}

/* The same where the channel keeps what does not fit. */
TEST_SECURE(unsent_bytes_stay_in_the_secure_stream, set_up, tear_down)
{
    static uint8_t out[SECURE_STREAM_MESSAGE_MAX];
    struct records *records = NULL;
    int count = 0, fd = -1;

    open_proven(4096);
    while (count < 10000 && secure_stream_send(p.dialler, out, sizeof out))
        count++;
    assert_in_range(count, 1, 9999);
    assert_true(secure_stream_wants_send(p.dialler));
    assert_int_equal(secure_stream_release(p.dialler, &fd, &records), HEARTH_PENDING);
    for (int i = 0; i < count; i++) {
        size_t got = 0;
        for (int steps = 0; got < sizeof out; steps++) {
            assert_true(steps < STEPS_MAX);
            (void)step(4096);
            ssize_t len = secure_stream_recv(p.listener, out + got, sizeof out - got);
            assert_true(len >= 0);
            got += (size_t)len;
        }
    }
    release(&p.dialler, &fd, &records);
    records_close(records);
    sock_close(fd);
}

TEST_BOTH(an_end_that_goes_is_noticed, set_up, tear_down)
{
    uint8_t byte;

    open_proven(4096);
    sock_close(p.middle[1]);
    p.middle[1] = -1;
    assert_int_equal(secure_stream_recv(p.listener, &byte, 1), HEARTH_PEER_LOST);
}

/* And nobody waits for it to take what it was not sent. */
TEST_SECURE(an_end_that_goes_is_not_released, set_up, tear_down)
{
    static uint8_t out[SECURE_STREAM_MESSAGE_MAX];
    struct records *records = NULL;
    int fd = -1;

    open_proven(4096);
    while (secure_stream_send(p.dialler, out, sizeof out))
        continue;
    assert_int_equal(secure_stream_release(p.dialler, &fd, &records), HEARTH_PENDING);
    sock_close(p.middle[0]);
    p.middle[0] = -1;
    assert_int_equal(secure_stream_release(p.dialler, &fd, &records), HEARTH_PEER_LOST);
    assert_int_equal(fd, -1);
}

static void expect(int end, int status, const char *word)
{
    if (p.status[end] != status || !strstr(p.error[end].text, word))
        fail_msg("end %d: %d \"%s\", expected %d \"%s\"", end, p.status[end], p.error[end].text, status,
                 word);
}

TEST_SECURE(another_secret_is_refused_at_both_ends, set_up, tear_down)
{
    open_pipe(eve, bob);
    settle(4096);
    expect(1, HEARTH_PROTOCOL, "another secret");
    expect(0, HEARTH_PEER_LOST, "another secret");
    assert_int_equal(p.error[0].reason, HEARTH_REASON_SECRET_DIFFERS);
    assert_int_equal(p.error[1].reason, HEARTH_REASON_SECRET_DIFFERS);
    assert_null(secure_stream_peer(p.listener));
}

TEST_SECURE(a_plain_end_is_recognized, set_up, tear_down)
{
    uint8_t bytes[MESSAGE] = {'H', 'G'};

    open_pipe(NULL, bob);
    assert_true(secure_stream_send(p.dialler, bytes, sizeof bytes));
    settle(4096);
    expect(1, HEARTH_PROTOCOL, "plain");
    assert_true(secure_stream_mixed(p.listener));
    close_pipe();

    open_pipe(ann, NULL);
    settle(4096);
    assert_int_equal(p.status[1], HEARTH_OK);
    assert_int_equal(secure_stream_recv(p.listener, bytes, sizeof bytes), HEARTH_PROTOCOL);
    assert_true(secure_stream_mixed(p.listener));
    assert_non_null(strstr(secure_stream_mixed_text(p.listener), "encrypts"));
    assert_true(secure_stream_send(p.listener, "HM", 2)); /* what it answers tells the other */
    settle(4096);
    expect(0, HEARTH_PROTOCOL, "plain");
    assert_true(secure_stream_mixed(p.dialler));
}

TEST_SECURE(silence_that_ends_is_named, set_up, tear_down)
{
    open_pipe(ann, NULL);
    (void)step(4096);
    secure_stream_close(p.listener);
    p.listener = NULL;
    sock_close(p.middle[0]);
    p.middle[0] = -1;
    p.status[0] = secure_stream_pump(p.dialler, &p.error[0]);
    expect(0, HEARTH_PEER_LOST, "not plain?");
}

TEST_SECURE(garbage_is_refused, set_up, tear_down)
{
    struct prng prng;

    prng_init(&prng, 3);
    for (int i = 0; i < 50; i++) {
        uint8_t bytes[600];
        struct iovec piece = {bytes, sizeof bytes};
        for (size_t k = 0; k < sizeof bytes; k++)
            bytes[k] = (uint8_t)prng_u64(&prng);
        if (i % 2) /* it begins well */
            memcpy(bytes, (uint8_t[]){0x16, 3, 1, 1, 0, 1, 0, 0, 252, 3, 3}, 11);
        open_pipe(ann, bob);
        assert_int_equal(sock_send(p.middle[1], &piece, 1), (int)sizeof bytes);
        p.status[1] = secure_stream_pump(p.listener, &p.error[1]);
        assert_int_equal(p.status[1], HEARTH_PROTOCOL);
        assert_true(p.error[1].text[0] != '\0');
        assert_false(secure_stream_ready(p.listener));
        close_pipe();
    }
}

TEST_BOTH(memory_that_ends_closes_the_socket, set_up, tear_down)
{
    struct session_setup setup = {.heap = &heap, .credentials = secure ? ann : NULL, .role = CHANNEL_DIALS};
    int status = HEARTH_NO_MEMORY, fds[2];

    for (int after = 0; status != HEARTH_OK; after++) {
        uint8_t byte;
        struct iovec piece = {&byte, 1};
        assert_true(after < 20);
        assert_int_equal(sock_pair(fds), HEARTH_OK);
        heap.fail_after = after;
        status = secure_stream_open(&setup, fds[0], &p.dialler);
        heap.fail_after = -1;
        if (status != HEARTH_OK)
            assert_int_equal(sock_recv(fds[1], &piece, 1), HEARTH_PEER_LOST);
        sock_close(fds[1]);
    }
}
