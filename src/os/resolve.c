/* SPDX-License-Identifier: Apache-2.0 */
/* Look-ups on a thread of their own.
 *
 * A look-up belongs to two: the thread that does it and the one that waits. Whoever is through last frees
 * it. When the time is over the waiting one leaves, and the thread is on its own until the system answers. */
#include "os/resolve.h"

#include <errno.h>
#include <netdb.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "core/heap.h"
#include "os/bell.h"
#include "os/clock.h"
#include "os/sock_native.h"

#define HOST_LEN_MAX   253 /* of a name in the DNS */
#define LOOKUP_THREADS 16

/* Of the process: threads that were left behind belong to no node any more. */
static _Atomic(int) lookups_running;

struct lookup {
    struct heap *heap; /* it lives there */
    struct thread thread;
    struct bell bell;
    _Atomic(int) owners;
    _Atomic(bool) done;
    char host[HOST_LEN_MAX + 1];
    uint16_t port;
    /* valid when done */
    int failure;      /* of getaddrinfo */
    int system_error; /* where failure is EAI_SYSTEM */
    int count;
    struct sock_addr addrs[RESOLVE_MAX];
};

/* ---- the form ---- */

/* Messages, digits, '-', '_' in labels between dots. All digits at the end would be an IPv4 address, and a
 * good one has been recognized before. */
static bool host_good(const char *host, size_t len)
{
    bool label_empty = true, digits = true;

    if (len == 0 || len > HOST_LEN_MAX)
        return false;
    for (size_t i = 0; i < len; i++) {
        char c = host[i];
        bool digit = c >= '0' && c <= '9';
        bool message = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' || c == '_';
        if (c == '.' ? label_empty : !digit && !message)
            return false;
        bool last = i + 1 == len;
        if (c == '.' && !last)
            digits = true;
        else if (c != '.')
            digits = digits && digit;
        label_empty = c == '.';
    }
    return !digits;
}

static int form_error(const char *text, struct error *error)
{
    return error_set(error, HEARTH_INVALID, RANK_NONE,
                     "\"%.100s\" is not an address: write host:port, IPv4:port, [IPv6]:port, unix:/path "
                     "(at most %d characters) or unix:@name (at most %d)",
                     text, SOCK_PATH_MAX, SOCK_NAME_MAX);
}

/* Host and port apart; a numeric address is not a host here. */
static int split(const char *text, char host[HOST_LEN_MAX + 1], uint16_t *port, struct error *error)
{
    const char *colon = strchr(text, ':');
    size_t len = colon ? (size_t)(colon - text) : strnlen(text, HOST_LEN_MAX + 1);

    if (!host_good(text, len) || (colon && !sock_port_parse(colon + 1, port)))
        return form_error(text, error);
    memcpy(host, text, len);
    host[len] = '\0';
    return HEARTH_OK;
}

int resolve_check(const char *text, struct error *error)
{
    struct sock_addr addr;
    char host[HOST_LEN_MAX + 1];
    uint16_t port = 0;

    return sock_addr_parse(text, 0, &addr) == HEARTH_OK ? HEARTH_OK : split(text, host, &port, error);
}

/* ---- the look-up ---- */

static void lookup_put(struct lookup *l)
{
    if (atomic_fetch_sub(&l->owners, 1) > 1)
        return;
    struct heap *heap = l->heap;
    bell_fini(&l->bell);
    heap_free(l);
    heap_close(heap);
}

static void lookup_add(struct lookup *l, const struct addrinfo *info)
{
    struct sock_addr addr;

    if (l->count == RESOLVE_MAX || !sock_addr_take(&addr, info->ai_addr, info->ai_addrlen))
        return;
    for (int i = 0; i < l->count; i++)
        if (sock_addr_equal(&addr, &l->addrs[i]))
            return;
    l->addrs[l->count++] = addr;
}

static void lookup_run(void *arg)
{
    struct lookup *l = arg;
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM}, *list = NULL;

    l->failure = getaddrinfo(l->host, NULL, &hints, &list);
    l->system_error = errno;
    if (l->failure == 0) {
        for (const struct addrinfo *info = list; info; info = info->ai_next)
            lookup_add(l, info);
        freeaddrinfo(list);
    }
    atomic_fetch_sub(&lookups_running, 1);
    atomic_store(&l->done, true);
    bell_ring(&l->bell);
    lookup_put(l);
}

static struct lookup *lookup_open(const char *host)
{
    struct heap *heap = heap_open(0);
    struct lookup *l = heap ? heap_alloc(heap, 1, sizeof *l) : NULL;

    if (!l)
        goto close_heap;
    l->heap = heap;
    if (bell_init(&l->bell) != HEARTH_OK)
        goto free_lookup;
    atomic_init(&l->owners, 1);
    atomic_init(&l->done, false);
    snprintf(l->host, sizeof l->host, "%s", host);
    return l;

free_lookup:
    heap_free(l);
close_heap:
    heap_close(heap);
    return NULL;
}

static int lookup_start(struct lookup *l, struct error *error)
{
    if (atomic_fetch_add(&lookups_running, 1) >= LOOKUP_THREADS) {
        atomic_fetch_sub(&lookups_running, 1);
        return error_set(error, HEARTH_LIMIT, RANK_NONE,
                         "cannot look up \"%s\": %d look-ups are still unanswered", l->host, LOOKUP_THREADS);
    }
    atomic_fetch_add(&l->owners, 1);
    if (thread_start(&l->thread, "hearth-lookup", lookup_run, l) == HEARTH_OK)
        return HEARTH_OK;
    atomic_fetch_sub(&l->owners, 1);
    atomic_fetch_sub(&lookups_running, 1);
    return error_set(error, HEARTH_SYSTEM, RANK_NONE, "cannot look up \"%s\": no thread", l->host);
}

/* True: it is done, and the thread is gone. False: the time is over, and the thread is left behind. */
static bool lookup_wait(struct lookup *l, uint64_t deadline_ns)
{
    for (;;) {
        uint32_t heard = bell_heard(&l->bell);
        if (atomic_load(&l->done)) {
            thread_join(&l->thread);
            return true;
        }
        if (deadline_ns != NEVER_NS && clock_real() >= deadline_ns) {
            pthread_detach(l->thread.handle);
            return false;
        }
        bell_wait(&l->bell, BELL_CALLER, heard, 0, deadline_ns);
    }
}

static int lookup_result(const struct lookup *l, struct sock_addr addrs[RESOLVE_MAX], int *count,
                         struct error *error)
{
    if (l->failure != 0)
        return error_set(error, HEARTH_SYSTEM, RANK_NONE, "cannot find host \"%s\": %s", l->host,
                         l->failure == EAI_SYSTEM ? strerror(l->system_error) : gai_strerror(l->failure));
    if (l->count == 0)
        return error_set(error, HEARTH_SYSTEM, RANK_NONE, "host \"%s\" has no IPv4 or IPv6 address", l->host);
    *count = l->count;
    for (int i = 0; i < l->count; i++) {
        addrs[i] = l->addrs[i];
        sock_addr_set_port(&addrs[i], l->port);
    }
    return HEARTH_OK;
}

int lookup_begin(const char *text, uint16_t default_port, struct lookup **out, struct error *error)
{
    char host[HOST_LEN_MAX + 1];
    uint16_t port = default_port;

    int status = split(text, host, &port, error);
    if (status != HEARTH_OK)
        return status;
    struct lookup *l = lookup_open(host);
    if (!l)
        return error_set(error, HEARTH_NO_MEMORY, RANK_NONE, "cannot look up \"%s\": no memory", host);
    l->port = port;
    status = lookup_start(l, error);
    if (status == HEARTH_OK)
        *out = l;
    else
        lookup_put(l);
    return status;
}

int lookup_ask(struct lookup *l, struct sock_addr addrs[RESOLVE_MAX], int *count, struct error *error)
{
    return atomic_load(&l->done) ? lookup_result(l, addrs, count, error) : HEARTH_PENDING;
}

void lookup_close(struct lookup *l)
{
    if (!l)
        return;
    (void)lookup_wait(l, 0);
    lookup_put(l);
}

int resolve(const char *text, uint16_t default_port, uint64_t deadline_ns,
            struct sock_addr addrs[RESOLVE_MAX], int *count, struct error *error)
{
    struct lookup *l = NULL;

    if (sock_addr_parse(text, default_port, &addrs[0]) == HEARTH_OK) {
        *count = 1;
        return HEARTH_OK;
    }
    int status = lookup_begin(text, default_port, &l, error);
    if (status != HEARTH_OK)
        return status;
    status = lookup_wait(l, deadline_ns)
                 ? lookup_result(l, addrs, count, error)
                 : error_set(error, HEARTH_TIMEOUT, RANK_NONE, "looking up \"%s\" took too long", l->host);
    lookup_put(l);
    return status;
}
