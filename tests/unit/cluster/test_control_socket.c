/* SPDX-License-Identifier: Apache-2.0 */
/* A control socket and its clients: several under one name, dead ones replaced, garbage, slow ones, too many,
 * long answers, other users. */
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cluster/control_socket.h"
#include "os/clock.h"
#include "os/thread.h"
#include "support/suite.h"

#define GUESTS 8 /* at once */
#define NOBODY 65534

static struct heap heap;
static struct error error;
static char folder[64], name[96], file[96];
static int asked;
static size_t big_len;

/* ---- a control socket ---- */

static char *answer(void *arg, const char *question)
{
    asked++;
    if (strcmp(question, "status") == 0)
        return heap_strdup(&heap, "{\"all\": \"well\"}\n");
    if (strcmp(question, "nothing") == 0)
        return heap_strdup(&heap, "");
    if (strcmp(question, "big") != 0)
        return NULL;
    char *text = heap_alloc_raw(&heap, 1, big_len + 1);
    assert_non_null(text);
    for (size_t i = 0; i < big_len; i++)
        text[i] = (char)('a' + i % 23);
    text[big_len] = '\0';
    return text;
}

static struct control_socket *open_at(const char *path)
{
    struct control_socket_setup setup = {.heap = &heap, .path = path, .answer = answer};
    struct control_socket *control = NULL;

    if (control_socket_open(&setup, &control, &error) != HEARTH_OK)
        fail_msg("%s", error.text);
    return control;
}

/* One that is pumped by a thread of its own, for those who ask and block. */
struct served {
    struct control_socket *control;
    struct thread thread;
    int stop[2];
};

static void serve(void *arg)
{
    struct served *s = arg;
    struct sock_wait items[CONTROL_SOCKET_WAITS_MAX + 1];

    for (;;) {
        uint64_t deadline_ns = NEVER_NS;
        items[0] = (struct sock_wait){.fd = s->stop[0], .want_recv = true};
        size_t count =
            1 + control_socket_waits(s->control, items + 1, CONTROL_SOCKET_WAITS_MAX, &deadline_ns);
        (void)sock_wait(items, count, deadline_ns);
        if (items[0].ready)
            return;
        control_socket_pump(s->control, clock_real());
    }
}

static void serve_begin(struct served *s, const char *path)
{
    s->control = open_at(path);
    assert_int_equal(sock_pair(s->stop), HEARTH_OK);
    assert_int_equal(thread_start(&s->thread, "desk", serve, s), HEARTH_OK);
}

static void serve_end(struct served *s)
{
    sock_close(s->stop[1]);
    thread_join(&s->thread);
    sock_close(s->stop[0]);
    control_socket_close(s->control);
}

static int ask(const char *path, const char *question, char **text)
{
    *text = NULL;
    return control_socket_ask(&heap, path, question, clock_real() + 20 * NS_PER_S, text, &error);
}

/* ---- one who speaks as it likes ---- */

static int come(const char *path)
{
    struct sock_addr addr;
    int fd = -1;

    assert_int_equal(sock_addr_parse(path, 0, &addr), HEARTH_OK);
    if (sock_dial(&addr, NULL, &fd, &error) != HEARTH_OK)
        fail_msg("%s", error.text);
    return fd;
}

static void say(int fd, const char *text, size_t len)
{
    struct iovec piece = {(void *)(uintptr_t)text, len};
    assert_int_equal(sock_send(fd, &piece, 1), len);
}

/* What has come: bytes, 0: nothing yet, HEARTH_PEER_LOST: the end. */
static ssize_t hear(int fd, char *text, size_t size)
{
    struct iovec piece = {text, size - 1};
    ssize_t len = sock_recv(fd, &piece, 1);

    text[len > 0 ? len : 0] = '\0';
    return len;
}

static void expect(int fd, const char *wanted)
{
    char text[256];

    assert_true(hear(fd, text, sizeof text) > 0);
    assert_string_equal(text, wanted);
    assert_int_equal(hear(fd, text, sizeof text), HEARTH_PEER_LOST);
    sock_close(fd);
}

/* ---- tests ---- */

static int tear_down(void **state)
{
    return rmdir(folder) == 0 && heap.blocks == 0 ? 0 : -1;
}

static int set_up(void **state)
{
    heap_init(&heap, 0);
    snprintf(folder, sizeof folder, "/tmp/hearth-desk-XXXXXX");
    if (!mkdtemp(folder))
        return -1;
    snprintf(file, sizeof file, "unix:%s/desk", folder);
    snprintf(name, sizeof name, "unix:@hearth-test-desk-%d", (int)getpid());
    return 0;
}

TEST_WITH(asks_and_is_answered, set_up, tear_down)
{
    const char *const paths[] = {name, file};
    struct served s;
    char *text;

    for (int i = 0; i < 2; i++) {
        serve_begin(&s, paths[i]);
        assert_string_equal(control_socket_path(s.control), paths[i]);
        assert_int_equal(ask(paths[i], "status", &text), HEARTH_OK);
        assert_string_equal(text, "{\"all\": \"well\"}\n");
        heap_free(text);
        assert_int_equal(ask(paths[i], "nothing", &text), HEARTH_OK);
        assert_string_equal(text, "");
        heap_free(text);
        assert_int_equal(ask(paths[i], "weather", &text), HEARTH_UNSUPPORTED);
        assert_non_null(strstr(error.text, "no such question"));
        serve_end(&s);
        assert_int_equal(ask(paths[i], "status", &text), HEARTH_PEER_LOST);
        assert_non_null(strstr(error.text, "no node answers"));
    }
}

TEST_WITH(sends_long_answers, set_up, tear_down)
{
    struct served s;
    char *text;

    serve_begin(&s, name);
    big_len = CONTROL_SOCKET_ANSWER_MAX;
    assert_int_equal(ask(name, "big", &text), HEARTH_OK);
    assert_int_equal(strlen(text), big_len);
    for (size_t i = 0; i < big_len; i++)
        if (text[i] != (char)('a' + i % 23))
            fail_msg("byte %zu", i);
    heap_free(text);
    big_len = CONTROL_SOCKET_ANSWER_MAX + 1;
    assert_int_equal(ask(name, "big", &text), HEARTH_UNSUPPORTED);
    assert_non_null(strstr(error.text, "too long"));
    serve_end(&s);
}

TEST_WITH(gives_numbers_to_later_ones, set_up, tear_down)
{
    struct control_socket_setup setup = {.heap = &heap, .path = file, .answer = answer};
    struct control_socket *sockets[CONTROL_SOCKET_PATHS], *more = NULL;
    char wanted[128];

    for (int i = 0; i < CONTROL_SOCKET_PATHS; i++) {
        sockets[i] = open_at(file);
        snprintf(wanted, sizeof wanted, i ? "%s.%d" : "%s", file, i + 1);
        assert_string_equal(control_socket_path(sockets[i]), wanted);
    }
    assert_int_equal(control_socket_open(&setup, &more, &error), HEARTH_LIMIT);
    assert_non_null(strstr(error.text, file));
    control_socket_close(sockets[1]);
    sockets[1] = open_at(file);
    snprintf(wanted, sizeof wanted, "%s.2", file);
    assert_string_equal(control_socket_path(sockets[1]), wanted);
    for (int i = 0; i < CONTROL_SOCKET_PATHS; i++)
        control_socket_close(sockets[i]);
}

TEST_WITH(replaces_a_dead_one, set_up, tear_down)
{
    struct sock_addr addr;
    int fd;

    assert_int_equal(sock_addr_parse(file, 0, &addr), HEARTH_OK);
    assert_int_equal(sock_listen(&addr, 1, &fd, NULL, &error), HEARTH_OK);
    sock_close(fd); /* as a killed node: the file stays */
    assert_int_equal(access(file + strlen("unix:"), F_OK), 0);
    struct control_socket *control = open_at(file);
    assert_string_equal(control_socket_path(control), file);
    control_socket_close(control);
    assert_int_not_equal(access(file + strlen("unix:"), F_OK), 0);
}

TEST_WITH(refuses_garbage, set_up, tear_down)
{
    static const struct {
        const char *text;
        size_t len;
    } bad[] = {
        {"\n", 1},         {"status\nmore", 11},
        {"sta\0tus\n", 8}, {"sta\ttus\n", 8},
        {"\xff\xfe\n", 3}, {"0123456789012345678901234567890123456789012345678901234567890123x", 65},
    };
    struct control_socket *control = open_at(name);

    asked = 0;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        int fd = come(name);
        say(fd, bad[i].text, bad[i].len);
        control_socket_pump(control, 1);
        control_socket_pump(control, 1);
        expect(fd, "no a question is one line of at most 64 printable characters\n");
    }
    assert_int_equal(asked, 0);
    int fd = come(name); /* the longest that may be, in pieces */
    for (int i = 0; i < CONTROL_SOCKET_QUESTION_MAX; i++) {
        say(fd, "q", 1);
        control_socket_pump(control, 1);
    }
    say(fd, "\n", 1);
    control_socket_pump(control, 1);
    expect(fd, "no no such question\n");
    assert_int_equal(asked, 1);
    fd = come(name); /* one that goes before it has said anything */
    control_socket_pump(control, 1);
    sock_close(fd);
    control_socket_pump(control, 1);
    control_socket_close(control);
}

TEST_WITH(cuts_the_slow, set_up, tear_down)
{
    struct control_socket *control = open_at(name);
    uint64_t deadline_ns = NEVER_NS;
    struct sock_wait items[CONTROL_SOCKET_WAITS_MAX];
    char text[64];
    int fd = come(name);

    control_socket_pump(control, 100);
    say(fd, "stat", 4);
    control_socket_pump(control, 200);
    assert_int_equal(control_socket_waits(control, items, CONTROL_SOCKET_WAITS_MAX, &deadline_ns), 2);
    assert_true(deadline_ns == 100 + NS_PER_S);
    control_socket_pump(control, deadline_ns - 1);
    assert_int_equal(hear(fd, text, sizeof text), 0);
    control_socket_pump(control, deadline_ns);
    assert_int_equal(hear(fd, text, sizeof text), HEARTH_PEER_LOST);
    sock_close(fd);

    big_len = CONTROL_SOCKET_ANSWER_MAX; /* asks much and does not take it */
    fd = come(name);
    control_socket_pump(control, 300);
    say(fd, "big\n", 4);
    control_socket_pump(control, 300);
    uint64_t blocks = heap.blocks;
    control_socket_pump(control, 300 + NS_PER_S);
    assert_true(heap.blocks < blocks);
    sock_close(fd);
    control_socket_close(control);
}

TEST_WITH(lets_others_wait, set_up, tear_down)
{
    struct control_socket *control = open_at(name);
    struct sock_wait items[CONTROL_SOCKET_WAITS_MAX];
    uint64_t deadline_ns = NEVER_NS;
    int fds[GUESTS + 1];
    char text[64];

    for (int i = 0; i <= GUESTS; i++)
        fds[i] = come(name);
    say(fds[GUESTS], "status\n", 7);
    control_socket_pump(control, 1);
    control_socket_pump(control, 1);
    assert_int_equal(control_socket_waits(control, items, CONTROL_SOCKET_WAITS_MAX, &deadline_ns), GUESTS);
    assert_int_equal(hear(fds[GUESTS], text, sizeof text), 0);
    say(fds[3], "status\n", 7);
    control_socket_pump(control, 1);
    expect(fds[3], "ok 16\n{\"all\": \"well\"}\n");
    control_socket_pump(control, 1);
    expect(fds[GUESTS], "ok 16\n{\"all\": \"well\"}\n");
    for (int i = 0; i < GUESTS; i++)
        if (i != 3)
            sock_close(fds[i]);
    control_socket_close(control);
}

/* Somebody who is no desk: it takes one question and says what it likes. */
struct impostor {
    int listener;
    const char *says;
    bool met;
};

static void pretend(void *arg)
{
    struct impostor *m = arg;
    struct sock_wait wait = {.fd = m->listener, .want_recv = true};
    struct iovec piece = {(void *)(uintptr_t)m->says, strlen(m->says)};
    char question[64];

    (void)sock_wait(&wait, 1, clock_real() + 10 * NS_PER_S);
    m->met = sock_accept(m->listener, &wait.fd, NULL) == HEARTH_OK;
    if (!m->met)
        return;
    (void)sock_wait(&wait, 1, clock_real() + 10 * NS_PER_S);
    (void)hear(wait.fd, question, sizeof question);
    if (piece.iov_len > 0)
        (void)sock_send(wait.fd, &piece, 1);
    sock_close(wait.fd);
}

TEST_WITH(asker_trusts_nobody, set_up, tear_down)
{
    static const struct {
        const char *says;
        int wanted;
    } rows[] = {
        {"", HEARTH_PEER_LOST},           {"garbage\n", HEARTH_PROTOCOL},
        {"ok \n", HEARTH_PROTOCOL},       {"ok 12x\n", HEARTH_PROTOCOL},
        {"ok 5\nabc", HEARTH_PEER_LOST},  {"ok 4194305\n", HEARTH_LIMIT},
        {"\x01\x02\n", HEARTH_PROTOCOL},  {"ok 99999999999\n", HEARTH_PROTOCOL},
        {"no why\n", HEARTH_UNSUPPORTED}, {"ok 5\nabcde", HEARTH_OK},
    };
    struct sock_addr addr;
    struct thread thread;
    int listener;
    char *text;

    assert_int_equal(sock_addr_parse(name, 0, &addr), HEARTH_OK);
    assert_int_equal(sock_listen(&addr, 1, &listener, NULL, &error), HEARTH_OK);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct impostor impostor = {.listener = listener, .says = rows[i].says};
        assert_int_equal(thread_start(&thread, "impostor", pretend, &impostor), HEARTH_OK);
        assert_int_equal(ask(name, "status", &text), rows[i].wanted);
        if (rows[i].wanted == HEARTH_OK)
            assert_string_equal(text, "abcde");
        heap_free(text);
        thread_join(&thread);
        assert_true(impostor.met);
    }
    assert_int_equal(control_socket_ask(&heap, name, "status", clock_real() + NS_PER_MS, &text, &error),
                     HEARTH_TIMEOUT);
    assert_int_equal(ask(name, "", &text), HEARTH_INVALID);
    assert_int_equal(ask(name, "two\nlines", &text), HEARTH_INVALID);
    assert_int_equal(ask("127.0.0.1:1", "status", &text), HEARTH_INVALID);
    sock_unlisten(listener);
}

/* As another user, at a socket that it can reach: neither side has anything to say. A name it does not even
 * find. */
TEST_WITH(only_our_user, set_up, tear_down)
{
    struct control_socket *control;
    int status = -1;
    char text[64];

    if (geteuid() != 0)
        skip();
    control = open_at(file);
    assert_int_equal(chmod(folder, 0755), 0);
    assert_int_equal(chmod(file + strlen("unix:"), 0666), 0);
    struct control_socket *hidden = open_at(name);
    asked = 0;
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        struct sock_addr addr;
        int fd = -1;
        if (setuid(NOBODY) != 0 || sock_addr_parse(name, 0, &addr) != HEARTH_OK ||
            sock_dial(&addr, NULL, &fd, &error) == HEARTH_OK ||
            sock_addr_parse(file, 0, &addr) != HEARTH_OK || sock_dial(&addr, NULL, &fd, &error) != HEARTH_OK)
            _exit(1);
        struct iovec piece = {(void *)(uintptr_t) "status\n", 7};
        struct sock_wait wait = {.fd = fd, .want_recv = true};
        (void)sock_send(fd, &piece, 1);
        (void)sock_wait(&wait, 1, clock_real() + 10 * NS_PER_S);
        _exit(hear(fd, text, sizeof text) == HEARTH_PEER_LOST ? 0 : 2);
    }
    while (waitpid(child, &status, WNOHANG) == 0) {
        struct sock_wait nothing = {.fd = -1};
        control_socket_pump(control, 1);
        (void)sock_wait(&nothing, 1, clock_real() + NS_PER_MS);
    }
    assert_int_equal(status, 0);
    assert_int_equal(asked, 0);
    control_socket_close(hidden);
    control_socket_close(control);
}

/* ---- frame ---- */

/* The same for the same user and folder, another one for any other. */
TEST(the_place_tells_users_and_folders_apart)
{
    static const struct {
        const char *folder;
        uint32_t user;
    } places[] = {{"/home/a/.config/hearth", 1000},
                  {"/home/a/.config/hearth", 1001},
                  {"/home/b/.config/hearth", 1000},
                  {"/home/a/.config/hearth", UINT32_MAX}};
    char names[4][CONTROL_SOCKET_PLACE_MAX], again[CONTROL_SOCKET_PLACE_MAX];
    struct sock_addr addr;
    for (int i = 0; i < 4; i++) {
        control_socket_place(places[i].folder, places[i].user, names[i], sizeof names[i]);
        control_socket_place(places[i].folder, places[i].user, again, sizeof again);
        assert_string_equal(names[i], again);
        assert_int_equal(sock_addr_parse(names[i], 0, &addr), HEARTH_OK);
        for (int j = 0; j < i; j++)
            assert_string_not_equal(names[i], names[j]);
    }
    assert_int_equal(strncmp(names[0], "unix:@hearth-1000-", 18), 0);
    assert_int_equal(strlen(names[0]), 18 + 16);
    assert_int_equal(strspn(names[0] + 18, "0123456789abcdef"), 16);
}
