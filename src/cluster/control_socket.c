/* SPDX-License-Identifier: Apache-2.0 */
/* The control socket: answers one question per client of the same user. */
#include "cluster/control_socket.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "connect/dial_driver.h"
#include "core/hash.h"
#include "os/clock.h"

#define CLIENTS_MAX  8
#define CLIENT_NS    NS_PER_S
#define BACKLOG      128               /* a unix socket refuses clients when it is full */
#define ADMIT_MAX    16                /* per round: clients of other users cannot block it */
#define DEAF_NS      (100 * NS_PER_MS) /* pause when no descriptors are left */
#define HEAD_MAX     96                /* "ok 1048576\n", "no ..." */
#define PATH_MAX_LEN 160

struct control_client {
    int fd; /* -1: free */
    uint64_t deadline_ns;
    char question[CONTROL_SOCKET_QUESTION_MAX + 2]; /* newline and final 0 */
    size_t heard;
    char head[HEAD_MAX];
    size_t head_len;
    char *text; /* NULL: the head is all */
    size_t text_len;
    size_t sent; /* of head and text */
};

struct control_socket {
    struct heap *heap;
    struct log log;
    control_socket_answer_fn *answer;
    void *arg;
    int fd;
    uint64_t deaf_until_ns; /* 0: listening */
    char path[PATH_MAX_LEN];
    struct control_client clients[CLIENTS_MAX];
};

/* ---- opening ------------------------------------------------------------------------------------------ */

static int parse_path(const char *path, struct sock_addr *addr, struct error *error)
{
    if (sock_addr_parse(path, 0, addr) != HEARTH_OK || sock_addr_family(addr) != SOCK_UNIX)
        return error_set(error, HEARTH_INVALID, RANK_NONE,
                         "%s is not a unix socket: write unix:@name (at most %d characters) or "
                         "unix:/folder/name (at most %d)",
                         path, SOCK_NAME_MAX, SOCK_PATH_MAX);
    return HEARTH_OK;
}

/* Tries the name, then the numbered ones. */
static int listen_somewhere(struct control_socket *d, const char *path, struct error *error)
{
    struct sock_addr addr;
    int status = HEARTH_LIMIT;

    for (int i = 1; i <= CONTROL_SOCKET_PATHS && status == HEARTH_LIMIT; i++) {
        int len = i == 1 ? snprintf(d->path, sizeof d->path, "%s", path)
                         : snprintf(d->path, sizeof d->path, "%s.%d", path, i);
        if (len < 0 || (size_t)len >= sizeof d->path)
            return error_set(error, HEARTH_INVALID, RANK_NONE, "control socket: path too long: %s", path);
        status = parse_path(d->path, &addr, error);
        if (status == HEARTH_OK)
            status = sock_listen(&addr, BACKLOG, &d->fd, NULL, error);
    }
    if (status == HEARTH_LIMIT)
        return error_because(error, HEARTH_REASON_ADDRESS_IN_USE, status, RANK_NONE,
                             "control socket: %s and its %d numbered names are in use: stop some nodes", path,
                             CONTROL_SOCKET_PATHS - 1);
    return status;
}

int control_socket_open(const struct control_socket_setup *setup, struct control_socket **out,
                        struct error *error)
{
    struct control_socket *d = heap_alloc(setup->heap, 1, sizeof *d);

    if (!d)
        return error_set(error, HEARTH_NO_MEMORY, RANK_NONE, "control socket: no memory");
    *d = (struct control_socket){
        .heap = setup->heap, .log = setup->log, .answer = setup->answer, .arg = setup->arg, .fd = -1};
    for (int i = 0; i < CLIENTS_MAX; i++)
        d->clients[i].fd = -1;
    int status = listen_somewhere(d, setup->path, error);
    if (status != HEARTH_OK) {
        heap_free(d);
        return status;
    }
    log_write(&d->log, HEARTH_LOG_DEBUG, "HEARTH-CONTROL-SOCKET", "control socket at %s", d->path);
    *out = d;
    return HEARTH_OK;
}

static void client_close(struct control_client *g)
{
    sock_close(g->fd);
    heap_free(g->text);
    *g = (struct control_client){.fd = -1};
}

void control_socket_close(struct control_socket *d)
{
    if (!d)
        return;
    for (int i = 0; i < CLIENTS_MAX; i++)
        client_close(&d->clients[i]);
    sock_unlisten(d->fd);
    heap_free(d);
}

const char *control_socket_path(const struct control_socket *d)
{
    return d->path;
}

/* ---- answering ---------------------------------------------------------------------------------------- */

static void refuse(struct control_client *g, const char *why)
{
    g->head_len = (size_t)snprintf(g->head, sizeof g->head, "no %s\n", why);
}

static bool question_good(const char *question, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if (question[i] < ' ' || question[i] > '~')
            return false;
    return len > 0;
}

static void answer(struct control_socket *d, struct control_client *g)
{
    g->text = d->answer(d->arg, g->question);
    g->text_len = g->text ? strlen(g->text) : 0;
    if (g->text && g->text_len <= CONTROL_SOCKET_ANSWER_MAX) {
        g->head_len = (size_t)snprintf(g->head, sizeof g->head, "ok %zu\n", g->text_len);
        return;
    }
    refuse(g, g->text ? "the answer is too long" : "no such question");
    heap_free(g->text);
    g->text = NULL;
    g->text_len = 0;
}

/* False: close it. */
static bool listen_to(struct control_socket *d, struct control_client *g)
{
    struct iovec piece = {g->question + g->heard, CONTROL_SOCKET_QUESTION_MAX + 1 - g->heard};
    ssize_t len = sock_recv(g->fd, &piece, 1);

    if (len <= 0)
        return len == 0;
    g->heard += (size_t)len;
    char *end = memchr(g->question, '\n', g->heard);
    if (!end && g->heard <= CONTROL_SOCKET_QUESTION_MAX)
        return true;
    size_t asked = end ? (size_t)(end - g->question) : g->heard;
    g->question[asked] = '\0';
    if (!end || asked + 1 != g->heard || !question_good(g->question, asked))
        refuse(g, "a question is one line of at most 64 printable characters");
    else
        answer(d, g);
    return true;
}

/* False: all is sent, or the client is gone. */
static bool speak(struct control_client *g)
{
    size_t all = g->head_len + g->text_len;

    while (g->sent < all) {
        bool head = g->sent < g->head_len;
        size_t at = head ? g->sent : g->sent - g->head_len;
        struct iovec piece = {(head ? g->head : g->text) + at, (head ? g->head_len : g->text_len) - at};
        ssize_t len = sock_send(g->fd, &piece, 1);
        if (len <= 0)
            return len == 0;
        g->sent += (size_t)len;
    }
    return false;
}

static void serve(struct control_socket *d, struct control_client *g, uint64_t now_ns)
{
    bool stays = now_ns < g->deadline_ns;

    if (stays && g->head_len == 0)
        stays = listen_to(d, g);
    if (stays && g->head_len > 0)
        stays = speak(g);
    if (!stays)
        client_close(g);
}

static struct control_client *free_place(const struct control_socket *d)
{
    for (int i = 0; i < CLIENTS_MAX; i++)
        if (d->clients[i].fd < 0)
            return (struct control_client *)(uintptr_t)&d->clients[i];
    return NULL;
}

/* Clients of other users are closed at once, whatever the path. */
static void admit(struct control_socket *d, uint64_t now_ns)
{
    struct control_client *place;
    int fd;

    if (now_ns < d->deaf_until_ns)
        return;
    d->deaf_until_ns = 0;
    for (int i = 0; i < ADMIT_MAX && (place = free_place(d)); i++) {
        int status = sock_accept(d->fd, &fd, NULL);
        if (status == HEARTH_PENDING)
            return;
        if (status != HEARTH_OK) {
            d->deaf_until_ns = now_ns + DEAF_NS;
            return;
        }
        if (sock_same_user(fd))
            *place = (struct control_client){.fd = fd, .deadline_ns = now_ns + CLIENT_NS};
        else
            sock_close(fd);
    }
}

void control_socket_pump(struct control_socket *d, uint64_t now_ns)
{
    for (int i = 0; i < CLIENTS_MAX; i++)
        if (d->clients[i].fd >= 0)
            serve(d, &d->clients[i], now_ns);
    admit(d, now_ns);
}

size_t control_socket_waits(const struct control_socket *d, struct sock_wait *items, size_t max,
                            uint64_t *deadline_ns)
{
    size_t count = 0;

    if (d->deaf_until_ns > 0 && d->deaf_until_ns < *deadline_ns)
        *deadline_ns = d->deaf_until_ns;
    if (d->deaf_until_ns == 0 && free_place(d) && count < max)
        items[count++] = (struct sock_wait){.fd = d->fd, .want_recv = true};
    for (int i = 0; i < CLIENTS_MAX; i++) {
        const struct control_client *g = &d->clients[i];
        if (g->fd < 0)
            continue;
        if (g->deadline_ns < *deadline_ns)
            *deadline_ns = g->deadline_ns;
        if (count < max)
            items[count++] =
                (struct sock_wait){.fd = g->fd, .want_recv = g->head_len == 0, .want_send = g->head_len > 0};
    }
    return count;
}

/* ---- asking ------------------------------------------------------------------------------------------- */

struct asker {
    int fd;
    const char *path;
    uint64_t deadline_ns;
    struct error *error;
};

/* HEARTH_OK: try again. */
static int await(const struct asker *a, bool to_send)
{
    struct sock_wait wait = {.fd = a->fd, .want_recv = !to_send, .want_send = to_send};

    if (clock_real() >= a->deadline_ns)
        return error_set(a->error, HEARTH_TIMEOUT, RANK_NONE, "the node at %s did not answer in time",
                         a->path);
    (void)sock_wait(&wait, 1, a->deadline_ns);
    return HEARTH_OK;
}

static int gone(const struct asker *a)
{
    return error_set(a->error, HEARTH_PEER_LOST, RANK_NONE,
                     "the node at %s closed before the end of its answer", a->path);
}

static int send_question(const struct asker *a, const char *question)
{
    char line[CONTROL_SOCKET_QUESTION_MAX + 2];
    size_t len = (size_t)snprintf(line, sizeof line, "%s\n", question), sent = 0;
    int status = HEARTH_OK;

    while (status == HEARTH_OK && sent < len) {
        struct iovec piece = {line + sent, len - sent};
        ssize_t done = sock_send(a->fd, &piece, 1);
        if (done < 0)
            return gone(a);
        sent += (size_t)done;
        if (done == 0)
            status = await(a, true);
    }
    return status;
}

/* Reads exactly `len` bytes. */
static int take(const struct asker *a, char *target, size_t len)
{
    int status = HEARTH_OK;
    size_t got = 0;

    while (status == HEARTH_OK && got < len) {
        struct iovec piece = {target + got, len - got};
        ssize_t done = sock_recv(a->fd, &piece, 1);
        if (done < 0)
            return gone(a);
        got += (size_t)done;
        if (done == 0)
            status = await(a, false);
    }
    return status;
}

/* The first line without its newline, byte by byte: it is short. */
static int take_head(const struct asker *a, char head[HEAD_MAX])
{
    for (size_t i = 0; i < HEAD_MAX; i++) {
        int status = take(a, &head[i], 1);
        if (status != HEARTH_OK)
            return status;
        if (head[i] == '\n') {
            head[i] = '\0';
            return HEARTH_OK;
        }
        if (head[i] < ' ' || head[i] > '~')
            break;
    }
    return error_set(a->error, HEARTH_PROTOCOL, RANK_NONE, "%s is not the control socket of a node", a->path);
}

static int take_answer(const struct asker *a, struct heap *heap, char **answer)
{
    char head[HEAD_MAX];
    size_t len = 0, digits = 0;

    int status = take_head(a, head);
    if (status != HEARTH_OK)
        return status;
    if (strncmp(head, "no ", 3) == 0)
        return error_set(a->error, HEARTH_UNSUPPORTED, RANK_NONE, "the node at %s says: %s", a->path,
                         head + 3);
    if (strncmp(head, "ok ", 3) == 0)
        for (const char *c = head + 3; *c >= '0' && *c <= '9' && digits < 9; c++, digits++)
            len = len * 10 + (size_t)(*c - '0');
    if (digits == 0 || head[3 + digits] != '\0')
        return error_set(a->error, HEARTH_PROTOCOL, RANK_NONE, "%s is not the control socket of a node",
                         a->path);
    if (len > CONTROL_SOCKET_TAKEN_MAX)
        return error_set(a->error, HEARTH_LIMIT, RANK_NONE, "the answer of the node at %s is too long",
                         a->path);
    char *text = heap_alloc_raw(heap, 1, len + 1);
    if (!text)
        return error_set(a->error, HEARTH_NO_MEMORY, RANK_NONE, "no memory for an answer of %zu bytes", len);
    status = take(a, text, len);
    if (status != HEARTH_OK) {
        heap_free(text);
        return status;
    }
    text[len] = '\0';
    *answer = text;
    return HEARTH_OK;
}

int control_socket_ask(struct heap *heap, const char *path, const char *question, uint64_t deadline_ns,
                       char **answer, struct error *error)
{
    struct asker a = {.fd = -1, .path = path, .deadline_ns = deadline_ns, .error = error};
    struct sock_addr addr;
    struct error why;

    if (strnlen(question, CONTROL_SOCKET_QUESTION_MAX + 1) > CONTROL_SOCKET_QUESTION_MAX ||
        !question_good(question, strlen(question)))
        return error_set(error, HEARTH_INVALID, RANK_NONE,
                         "a question is one line of at most %d printable characters",
                         CONTROL_SOCKET_QUESTION_MAX);
    int status = parse_path(path, &addr, error);
    if (status != HEARTH_OK)
        return status;
    status = dial_wait(&addr, deadline_ns, &a.fd, &why);
    if (status != HEARTH_OK)
        return error_wrap(error, &why, "no node answers at %s: %s", path, why.text);
    if (!sock_same_user(a.fd))
        status = error_set(error, HEARTH_PEER_LOST, RANK_NONE, "the node at %s runs as another user", path);
    if (status == HEARTH_OK)
        status = send_question(&a, question);
    if (status == HEARTH_OK)
        status = take_answer(&a, heap, answer);
    sock_close(a.fd);
    return status;
}

void control_socket_place(const char *folder, uint32_t user, char *path, size_t size)
{
    snprintf(path, size, "unix:@hearth-%" PRIu32 "-%016" PRIx64, user, hash64(0, folder, strlen(folder)));
}
