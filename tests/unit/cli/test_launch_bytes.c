/* SPDX-License-Identifier: Apache-2.0 */
/* Messages between launcher and host agent, and the one with the secret: it reaches the program by a
 * descriptor, and no buffer keeps it. */
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/run/child.h"
#include "cli/run/launch_message.h"
#include "cli/shared/signals.h"
#include "security/secret.h"
#include "support/suite.h"

#define PATIENCE_MS 20000

static const char token[] = "hearth1-test-0123456789abcdefghjkmnpqrstvwxyz0123456789abcdefghjkmnpqr";

static bool holds(const struct launch_stream *stream, const char *text)
{
    size_t len = strlen(text);
    for (size_t i = 0; stream->data && i + len <= stream->cap; i++) {
        if (memcmp(stream->data + i, text, len) == 0)
            return true;
    }
    return false;
}

struct line {
    struct launch_stream down, up; /* the writing and the reading end */
    pid_t pid;                     /* of the host agent between them, if there is one */
};

static void add(struct line *line, int kind, const char *text)
{
    assert_true(launch_stream_add(&line->down, kind, text, strlen(text)));
}

static void open_line(struct line *line)
{
    int ends[2];
    assert_true(pipe_open(ends));
    launch_stream_init(&line->up, ends[0]);
    launch_stream_init(&line->down, ends[1]);
}

static void close_line(struct line *line)
{
    launch_stream_close(&line->down);
    launch_stream_close(&line->up);
}

TEST(test_launch_frames)
{
    struct line line;
    struct launch_message m;
    open_line(&line);
    assert_true(launch_stream_add(&line.down, LAUNCH_VAR, "A=B", 3));
    assert_true(launch_stream_add(&line.down, LAUNCH_INPUT_END, NULL, 0));
    assert_int_equal(launch_stream_read(&line.up), 1);
    assert_int_equal(launch_stream_next(&line.up, &m), 1);
    assert_true(m.kind == LAUNCH_VAR && m.len == 3 && memcmp(m.bytes, "A=B", 3) == 0);
    assert_int_equal(launch_stream_next(&line.up, &m), 1);
    assert_true(m.kind == LAUNCH_INPUT_END && m.len == 0);
    assert_int_equal(launch_stream_next(&line.up, &m), 0);
    assert_int_equal(launch_stream_read(&line.up), 0);
    launch_stream_close(&line.down);
    assert_int_equal(launch_stream_read(&line.up), -1);
    close_line(&line);
}

TEST(test_sent_secret_is_wiped)
{
    struct line line;
    open_line(&line);
    add(&line, LAUNCH_VAR, token);
    assert_true(holds(&line.down, token)); /* what is no secret stays, so the next look means something */
    add(&line, LAUNCH_SECRET, token);
    assert_false(holds(&line.down, "hearth1-test-"));
    close_line(&line);
}

/* Even when the pipe was full: then it goes when there is room. */
TEST(test_waiting_secret_is_wiped)
{
    static char filling[300000];
    struct line line;
    struct launch_message m = {.kind = 0};
    open_line(&line);
    memset(filling, 'x', sizeof filling);
    assert_true(launch_stream_add(&line.down, LAUNCH_VAR, filling, sizeof filling));
    add(&line, LAUNCH_SECRET, token);
    assert_true(holds(&line.down, token));
    for (int i = 0; i < 1000 && m.kind != LAUNCH_SECRET; i++) {
        launch_stream_flush(&line.down);
        (void)launch_stream_read(&line.up);
        while (m.kind != LAUNCH_SECRET && launch_stream_next(&line.up, &m) == 1) {
        }
    }
    assert_int_equal(m.kind, LAUNCH_SECRET);
    assert_true(m.len == strlen(token) && memcmp(m.bytes, token, m.len) == 0);
    assert_false(holds(&line.down, "hearth1-test-"));
    launch_stream_wipe(&line.up);
    assert_false(holds(&line.up, "hearth1-test-"));
    close_line(&line);
}

/* What waits behind the secret stays whole. */
TEST(test_wipe_keeps_the_rest)
{
    struct line line;
    struct launch_message m;
    open_line(&line);
    add(&line, LAUNCH_SECRET, token);
    assert_true(launch_stream_add(&line.down, LAUNCH_GO, "\1", 1));
    assert_int_equal(launch_stream_read(&line.up), 1);
    assert_int_equal(launch_stream_next(&line.up, &m), 1);
    launch_stream_wipe(&line.up);
    assert_false(holds(&line.up, "hearth1-"));
    assert_int_equal(launch_stream_next(&line.up, &m), 1);
    assert_true(m.kind == LAUNCH_GO && m.len == 1 && m.bytes[0] == 1);
    close_line(&line);
}

/* ---- a host agent ---- */

static void start_host_agent(struct line *k)
{
    int down[2], up[2];
    assert_true(pipe_open(down) && pipe_open(up));
    k->pid = fork();
    if (k->pid == 0) {
        close(down[1]);
        close(up[0]);
        _exit(host_agent_serve(down[0], up[1]));
    }
    assert_true(k->pid > 0);
    close(down[0]);
    close(up[1]);
    launch_stream_init(&k->down, down[1]);
    launch_stream_init(&k->up, up[0]);
}

/* The next message of this kind; others are passed over. false: it ended without one. */
static bool await(struct line *k, int kind, struct launch_message *m)
{
    for (;;) {
        while (launch_stream_next(&k->up, m) == 1) {
            if (m->kind == kind)
                return true;
        }
        struct pollfd polls = {.fd = k->up.fd, .events = POLLIN};
        if (poll(&polls, 1, PATIENCE_MS) != 1 || launch_stream_read(&k->up) != 1)
            return false;
    }
}

static void end_host_agent(struct line *k)
{
    close_line(k);
    assert_int_equal(waitpid(k->pid, NULL, 0), k->pid);
}

static void send_program(struct line *k, const char *script)
{
    add(k, LAUNCH_ARG, "sh");
    add(k, LAUNCH_ARG, "-c");
    add(k, LAUNCH_ARG, script);
}

TEST(test_program_gets_it)
{
    struct line k;
    struct launch_message m;
    setenv("HEARTH_SECRET", "of somebody else", 1);
    start_host_agent(&k);
    unsetenv("HEARTH_SECRET");
    send_program(&k, "cat /dev/fd/$HEARTH_SECRET_FD; test -z \"$HEARTH_SECRET\"");
    add(&k, LAUNCH_SECRET, token);
    assert_true(launch_stream_add(&k.down, LAUNCH_GO, "\0", 1));
    assert_true(await(&k, LAUNCH_OUT, &m));
    assert_true(m.len == strlen(token) && memcmp(m.bytes, token, m.len) == 0);
    assert_true(await(&k, LAUNCH_END, &m));
    assert_true(m.len == 2 && m.bytes[0] == 0 && m.bytes[1] == 0);
    end_host_agent(&k);
}

TEST(test_program_without)
{
    struct line k;
    struct launch_message m;
    start_host_agent(&k);
    send_program(&k, "exit ${HEARTH_SECRET_FD-7}");
    assert_true(launch_stream_add(&k.down, LAUNCH_GO, "\0", 1));
    assert_true(await(&k, LAUNCH_END, &m));
    assert_int_equal(m.bytes[0], 7);
    end_host_agent(&k);
}

/* The sender of such messages is no launcher: nothing is started. */
TEST(test_wrong_secrets)
{
    static char longer[SECRET_TOKEN_MAX];
    static const struct {
        const char *first;
        size_t first_len, second_len;
    } cases[] = {{token, 0, 0}, {longer, sizeof longer, 0}, {token, sizeof token - 1, sizeof token - 1}};
    memset(longer, 'x', sizeof longer);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct line k;
        struct launch_message m;
        start_host_agent(&k);
        send_program(&k, "echo started");
        assert_true(launch_stream_add(&k.down, LAUNCH_SECRET, cases[i].first, cases[i].first_len));
        if (cases[i].second_len > 0)
            assert_true(launch_stream_add(&k.down, LAUNCH_SECRET, token, cases[i].second_len));
        assert_true(launch_stream_add(&k.down, LAUNCH_GO, "\0", 1));
        assert_false(await(&k, LAUNCH_PID, &m));
        end_host_agent(&k);
    }
}

int main(void)
{
    signal(SIGPIPE, SIG_IGN);
    return suite_run();
}
