/* SPDX-License-Identifier: Apache-2.0 */
/* Real sockets: what is told of addresses that answer, refuse, say nothing or are someone else; nothing
 * is left open. */
#include <dirent.h>

#include "connect/dial_driver.h"
#include "os/clock.h"
#include "support/persons.h"
#include "support/suite.h"

#define TARGETS 3

static struct heap heap;
static struct dial_driver driver;
static struct dial_target targets[TARGETS];
static struct dial_request requests[TARGETS];
static struct dial_event event;
static int listeners[TARGETS];
static int files_before;

static int open_files(void)
{
    DIR *folder = opendir("/proc/self/fd");
    int count = 0;

    assert_non_null(folder);
    while (readdir(folder))
        count++;
    closedir(folder);
    return count;
}

static void request(void *arg, const struct dial_target *target, struct dial_request *out)
{
    assert_ptr_equal(arg, &heap);
    *out = requests[target->key];
}

static void begin(bool first_wins)
{
    struct dialer_setup setup = {
        .attempts_max = TARGETS,
        .first_wins = first_wins,
        .pause_ns = 3600 * NS_PER_S,
        .pause_miss_ns = 3600 * NS_PER_S,
        .pause_max_ns = 3600 * NS_PER_S,
        .misses_max = UINT32_MAX,
        .connect_ns = 10 * NS_PER_S,
        .handshake_ns = NS_PER_S / 10,
        .slow_connect_ns = NS_PER_S,
        .slow_handshake_ns = NS_PER_S,
    };

    files_before = open_files();
    heap_init(&heap, 0);
    assert_int_equal(dial_driver_open(&driver, &heap, &setup, request, &heap), HEARTH_OK);
    for (int i = 0; i < TARGETS; i++) {
        dial_target_init(&targets[i], (uint32_t)i);
        requests[i] = (struct dial_request){.to = {.kind = KNOCK_OPEN}};
        listeners[i] = -1;
    }
}

/* Address i: a listener is there, or was. */
static void place(int i, bool listens)
{
    struct sock_addr any;
    struct error error;

    assert_int_equal(sock_addr_parse("127.0.0.1:0", 0, &any), HEARTH_OK);
    assert_int_equal(sock_listen(&any, 8, &listeners[i], &requests[i].addr, &error), HEARTH_OK);
    if (!listens) {
        sock_unlisten(listeners[i]);
        listeners[i] = -1;
    }
    dialer_want(&driver.dialer, &targets[i], clock_real());
}

static void end(void)
{
    dial_driver_close(&driver);
    for (int i = 0; i < TARGETS; i++)
        if (listeners[i] >= 0)
            sock_unlisten(listeners[i]);
    assert_int_equal(heap.blocks, 0);
    assert_int_equal(open_files(), files_before);
}

/* The next event; NULL: none before the dialer wants to be left alone for long. */
static struct dial_event *next(void)
{
    for (;;) {
        struct sock_wait items[TARGETS];
        uint64_t now_ns = clock_real(), until_ns = now_ns + 60 * NS_PER_S;
        if (dial_next(&driver, &event))
            return &event;
        size_t count = dial_waits(&driver, items, TARGETS, &until_ns);
        if (count == 0 && until_ns > now_ns + 30 * NS_PER_S)
            return NULL;
        (void)sock_wait(items, count, until_ns);
        dial_pump(&driver, clock_real());
    }
}

static void assert_event(enum dial_event_kind kind, int target)
{
    assert_non_null(next());
    assert_int_equal(event.kind, kind);
    assert_ptr_equal(event.target, &targets[target]);
    assert_true(sock_addr_equal(&event.addr, &requests[target].addr));
}

TEST(a_plain_connection_is_handed_over)
{
    begin(false);
    place(0, true);
    assert_event(DIAL_CONNECTED, 0);
    assert_true(event.round_trip_ns > 0);
    assert_event(DIAL_SECURED, 0);
    assert_true(secure_stream_ready(event.stream));
    struct secure_stream *stream = event.stream;
    assert_null(next());
    assert_true(dial_target_busy(&targets[0])); /* until its owner knows */
    dialer_kept(&driver.dialer, &targets[0], event.round_trip_ns, clock_real());
    assert_null(next());
    secure_stream_close(stream);
    end();
}

TEST(the_text_names_an_address_that_refuses)
{
    char text[SOCK_TEXT_MAX];

    begin(false);
    place(0, false);
    assert_event(DIAL_FAILED, 0);
    sock_addr_text(&requests[0].addr, text, sizeof text);
    assert_non_null(strstr(event.error.text, text));
    assert_int_equal(event.fault, DIAL_UNREACHABLE);
    assert_int_equal(event.round_trip_ns, 0);
    assert_false(dial_target_busy(&targets[0]));
    assert_int_equal(targets[0].misses, 1);
    end();
}

TEST(a_unix_socket_that_is_not_there_yet_is_no_miss)
{
    begin(false);
    assert_int_equal(sock_addr_parse("unix:@hearth-test-dial-driver", 0, &requests[0].addr), HEARTH_OK);
    dialer_want(&driver.dialer, &targets[0], clock_real());
    assert_event(DIAL_FAILED, 0);
    assert_int_equal(event.fault, DIAL_CLOSED);
    assert_int_equal(targets[0].misses, 0);
    end();
}

TEST(of_several_the_first_wins)
{
    begin(true);
    place(0, false);
    place(1, true);
    place(2, true);
    assert_event(DIAL_FAILED, 0);
    assert_non_null(next());
    assert_int_equal(event.kind, DIAL_CONNECTED);
    int won = (int)event.target->key;
    assert_event(DIAL_SECURED, won);
    struct secure_stream *stream = event.stream;
    assert_null(next());
    assert_false(dial_target_busy(&targets[3 - won]));
    secure_stream_close(stream);
    dialer_failed(&driver.dialer, &targets[won], DIAL_CLOSED, clock_real());
    assert_event(DIAL_CONNECTED, 3 - won);
    end();
}

/* Nothing answers our handshake: its time passes. What is cancelled is told of by nobody. */
TEST(a_handshake_has_its_time)
{
    struct heap persons;

    heap_init(&persons, 0);
    struct credentials *self = person(&persons, 1, 1);
    begin(false);
    requests[0].credentials = requests[1].credentials = self;
    place(0, true);
    place(1, true);
    assert_event(DIAL_CONNECTED, 0);
    assert_event(DIAL_CONNECTED, 1);
    dialer_cancelled(&driver.dialer, &targets[1]);
    dialer_unwant(&driver.dialer, &targets[1]);
    assert_event(DIAL_FAILED, 0);
    assert_int_equal(event.error.status, HEARTH_TIMEOUT);
    assert_int_equal(event.fault, DIAL_CLOSED);
    assert_non_null(strstr(event.error.text, "handshake"));
    assert_null(next());
    end();
    credentials_close(self);
}

TEST(an_end_that_closes_has_cut_us)
{
    struct heap persons;
    struct sock_wait wait = {.want_recv = true};
    struct sock_addr from;
    int fd;

    heap_init(&persons, 0);
    struct credentials *self = person(&persons, 1, 1);
    begin(false);
    requests[0].credentials = self;
    place(0, true);
    assert_event(DIAL_CONNECTED, 0);
    wait.fd = listeners[0];
    assert_int_equal(sock_wait(&wait, 1, clock_real() + NS_PER_S), 1);
    assert_int_equal(sock_accept(listeners[0], &fd, &from), HEARTH_OK);
    sock_close(fd);
    assert_event(DIAL_FAILED, 0);
    assert_int_equal(event.fault, DIAL_CUT);
    end();
    credentials_close(self);
}

TEST(without_memory_nothing_stays_open)
{
    begin(false);
    place(0, true);
    heap.fail_after = 0;
    assert_event(DIAL_FAILED, 0);
    assert_int_equal(event.fault, DIAL_SYSTEM);
    assert_int_equal(event.error.status, HEARTH_NO_MEMORY);
    heap.fail_after = -1;
    end();
    begin(false);
    dial_driver_close(&driver);
    heap.fail_after = 0;
    struct dialer_setup setup = driver.dialer.setup;
    assert_int_equal(dial_driver_open(&driver, &heap, &setup, request, &heap), HEARTH_NO_MEMORY);
    end();
}

TEST(one_address_can_be_waited_for)
{
    uint64_t deadline_ns = clock_real() + 10 * NS_PER_S;
    char text[SOCK_TEXT_MAX];
    struct error error;
    int fd = -1;

    begin(false);
    place(0, true);
    place(1, false);
    assert_int_equal(dial_wait(&requests[0].addr, deadline_ns, &fd, &error), HEARTH_OK);
    sock_close(fd);
    sock_addr_text(&requests[1].addr, text, sizeof text);
    assert_int_equal(dial_wait(&requests[1].addr, deadline_ns, &fd, &error), HEARTH_PEER_LOST);
    assert_non_null(strstr(error.text, text));
    end();
}
