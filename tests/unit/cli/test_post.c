/* SPDX-License-Identifier: Apache-2.0 */
/* Letters between launcher and keeper, and the one with the secret: it reaches the program by a descriptor,
 * and no buffer keeps it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/keeper.h"
#include "cli/post.h"
#include "security/secret.h"

#define PATIENCE_MS 20000

static const char token[] = "hearth1-test-0123456789abcdefghjkmnpqrstvwxyz0123456789abcdefghjkmnpqr";

static bool holds(const struct post *post, const char *text)
{
    size_t len = strlen(text);
    for (size_t i = 0; post->data && i + len <= post->cap; i++) {
        if (memcmp(post->data + i, text, len) == 0)
            return true;
    }
    return false;
}

struct line {
    struct post down, up; /* the writing and the reading end */
};

static void open_line(struct line *line)
{
    int ends[2];
    assert_true(pipe_open(ends));
    post_init(&line->up, ends[0]);
    post_init(&line->down, ends[1]);
}

static void close_line(struct line *line)
{
    post_close(&line->down);
    post_close(&line->up);
}

static void test_letters(void **state)
{
    struct line line;
    struct letter letter;
    (void)state;
    open_line(&line);
    assert_true(post_add(&line.down, LETTER_VAR, "A=B", 3));
    assert_true(post_add(&line.down, LETTER_INPUT_END, NULL, 0));
    assert_int_equal(post_read(&line.up), 1);
    assert_int_equal(post_next(&line.up, &letter), 1);
    assert_true(letter.kind == LETTER_VAR && letter.len == 3 && memcmp(letter.content, "A=B", 3) == 0);
    assert_int_equal(post_next(&line.up, &letter), 1);
    assert_true(letter.kind == LETTER_INPUT_END && letter.len == 0);
    assert_int_equal(post_next(&line.up, &letter), 0);
    assert_int_equal(post_read(&line.up), 0);
    post_close(&line.down);
    assert_int_equal(post_read(&line.up), -1);
    close_line(&line);
}

static void test_sent_secret_is_wiped(void **state)
{
    struct line line;
    (void)state;
    open_line(&line);
    assert_true(post_add(&line.down, LETTER_VAR, token, strlen(token)));
    assert_true(holds(&line.down, token)); /* what is no secret stays, so the next look means something */
    assert_true(post_add(&line.down, LETTER_SECRET, token, strlen(token)));
    assert_false(holds(&line.down, "hearth1-test-"));
    close_line(&line);
}

/* Even when the pipe was full: then it goes when there is room. */
static void test_waiting_secret_is_wiped(void **state)
{
    static char filling[300000];
    struct line line;
    struct letter letter = {.kind = 0};
    (void)state;
    open_line(&line);
    assert_true(post_add(&line.down, LETTER_VAR, filling, sizeof filling));
    assert_true(post_add(&line.down, LETTER_SECRET, token, strlen(token)));
    assert_true(holds(&line.down, token));
    for (int i = 0; i < 1000 && letter.kind != LETTER_SECRET; i++) {
        post_flush(&line.down);
        (void)post_read(&line.up);
        while (letter.kind != LETTER_SECRET && post_next(&line.up, &letter) == 1) {
        }
    }
    assert_int_equal(letter.kind, LETTER_SECRET);
    assert_true(letter.len == strlen(token) && memcmp(letter.content, token, letter.len) == 0);
    assert_false(holds(&line.down, "hearth1-test-"));
    post_wipe(&line.up);
    assert_false(holds(&line.up, "hearth1-test-"));
    close_line(&line);
}

/* What waits behind the secret stays whole. */
static void test_wipe_keeps_the_rest(void **state)
{
    struct line line;
    struct letter letter;
    (void)state;
    open_line(&line);
    assert_true(post_add(&line.down, LETTER_SECRET, token, strlen(token)));
    assert_true(post_add(&line.down, LETTER_GO, "\1", 1));
    assert_int_equal(post_read(&line.up), 1);
    assert_int_equal(post_next(&line.up, &letter), 1);
    post_wipe(&line.up);
    assert_false(holds(&line.up, "hearth1-"));
    assert_int_equal(post_next(&line.up, &letter), 1);
    assert_true(letter.kind == LETTER_GO && letter.len == 1 && letter.content[0] == 1);
    close_line(&line);
}

/* ---- a keeper ---- */

struct kept {
    pid_t pid;
    struct post down, up;
};

static void start_keeper(struct kept *k)
{
    int down[2], up[2];
    assert_true(pipe_open(down) && pipe_open(up));
    k->pid = fork();
    if (k->pid == 0) {
        close(down[1]);
        close(up[0]);
        _exit(keeper_serve(down[0], up[1]));
    }
    assert_true(k->pid > 0);
    close(down[0]);
    close(up[1]);
    post_init(&k->down, down[1]);
    post_init(&k->up, up[0]);
}

/* The next letter of this kind; others are passed over. false: it ended without one. */
static bool await(struct kept *k, int kind, struct letter *letter)
{
    for (;;) {
        while (post_next(&k->up, letter) == 1) {
            if (letter->kind == kind)
                return true;
        }
        struct pollfd polls = {.fd = k->up.fd, .events = POLLIN};
        if (poll(&polls, 1, PATIENCE_MS) != 1 || post_read(&k->up) != 1)
            return false;
    }
}

static void end_keeper(struct kept *k)
{
    post_close(&k->down);
    post_close(&k->up);
    assert_int_equal(waitpid(k->pid, NULL, 0), k->pid);
}

static void send_program(struct kept *k, const char *script)
{
    const char *args[] = {"sh", "-c", script};
    for (size_t i = 0; i < 3; i++)
        assert_true(post_add(&k->down, LETTER_ARG, args[i], strlen(args[i])));
}

static void test_program_gets_it(void **state)
{
    struct kept k;
    struct letter letter;
    (void)state;
    setenv("HEARTH_SECRET", "of somebody else", 1);
    start_keeper(&k);
    unsetenv("HEARTH_SECRET");
    send_program(&k, "cat /dev/fd/$HEARTH_SECRET_FD; test -z \"$HEARTH_SECRET\"");
    assert_true(post_add(&k.down, LETTER_SECRET, token, strlen(token)));
    assert_true(post_add(&k.down, LETTER_GO, "\0", 1));
    assert_true(await(&k, LETTER_OUT, &letter));
    assert_true(letter.len == strlen(token) && memcmp(letter.content, token, letter.len) == 0);
    assert_true(await(&k, LETTER_END, &letter));
    assert_true(letter.len == 2 && letter.content[0] == 0 && letter.content[1] == 0);
    end_keeper(&k);
}

static void test_program_without(void **state)
{
    struct kept k;
    struct letter letter;
    (void)state;
    start_keeper(&k);
    send_program(&k, "exit ${HEARTH_SECRET_FD-7}");
    assert_true(post_add(&k.down, LETTER_GO, "\0", 1));
    assert_true(await(&k, LETTER_END, &letter));
    assert_int_equal(letter.content[0], 7);
    end_keeper(&k);
}

/* Whoever sends such letters is no launcher: nothing is started. */
static void test_wrong_secrets(void **state)
{
    static char longer[SECRET_TOKEN_MAX];
    static const struct {
        const char *first;
        size_t first_len, second_len;
    } cases[] = {{token, 0, 0}, {longer, sizeof longer, 0}, {token, sizeof token - 1, sizeof token - 1}};
    (void)state;
    memset(longer, 'x', sizeof longer);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct kept k;
        struct letter letter;
        start_keeper(&k);
        send_program(&k, "echo started");
        assert_true(post_add(&k.down, LETTER_SECRET, cases[i].first, cases[i].first_len));
        if (cases[i].second_len > 0)
            assert_true(post_add(&k.down, LETTER_SECRET, token, cases[i].second_len));
        assert_true(post_add(&k.down, LETTER_GO, "\0", 1));
        assert_false(await(&k, LETTER_PID, &letter));
        end_keeper(&k);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_letters),
        cmocka_unit_test(test_sent_secret_is_wiped),
        cmocka_unit_test(test_waiting_secret_is_wiped),
        cmocka_unit_test(test_wipe_keeps_the_rest),
        cmocka_unit_test(test_program_gets_it),
        cmocka_unit_test(test_program_without),
        cmocka_unit_test(test_wrong_secrets),
    };
    signal(SIGPIPE, SIG_IGN);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
