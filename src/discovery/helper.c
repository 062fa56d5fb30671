/* SPDX-License-Identifier: Apache-2.0 */
/* The helper's lives, one after the other, and its lines. */
#include "discovery/helper.h"

#include <stdio.h>
#include <string.h>

#include "core/hash.h"
#include "os/clock.h"
#include "os/spawn.h"

#define HELPER_PROGRAM "hearth-mdns"

#define READY_NS      (10 * NS_PER_S) /* from its start to its first line */
#define DEAF_NS       (30 * NS_PER_S) /* for which it may leave what we said unread */
#define GOODBYE_NS    (500 * NS_PER_MS)
#define CLOSED_NS     (200 * NS_PER_MS) /* from the end of its output to its own */
#define GLANCE_NS     (5 * NS_PER_MS)   /* in that time we look so often */
#define WINDOW_NS     NS_PER_S
#define WINDOW_BYTES  (512 * 1024) /* read in that time; the rest waits, and so does the helper */
#define TROUBLE_MAX   256          /* of a text */
#define MALFORMED_MAX 100          /* lines of a life */

void helper_init(struct helper *h, const struct log *log, const char *path, helper_line_fn *heard, void *arg)
{
    memset(h, 0, sizeof *h);
    h->log = *log;
    h->heard = heard;
    h->arg = arg;
    h->searched = !path;
    h->off = path && path[0] == '\0';
    if (path)
        snprintf(h->path, sizeof h->path, "%s", path);
    h->child.fd = -1;
    h->pause_ns = HELPER_FIRST_NS;
    snprintf(h->why, sizeof h->why, "%s", h->off ? "switched off" : "not started yet");
}

/* Without its input it says goodbye and ends. */
void helper_fini(struct helper *h)
{
    char rest[4096], how[64];
    struct iovec piece = {rest, sizeof rest};
    uint64_t deadline_ns = clock_real() + GOODBYE_NS;

    if (h->running)
        sock_finish(h->child.fd);
    while (h->running && clock_real() < deadline_ns) {
        struct sock_wait item = {.fd = h->child.fd, .want_recv = true};
        (void)sock_wait(&item, 1, deadline_ns);
        if (sock_recv(h->child.fd, &piece, 1) < 0)
            break;
    }
    /* Its end of the line goes a moment before it does. */
    for (int i = 0; i < 50 && h->running && !child_ended(&h->child, how, sizeof how); i++)
        (void)sock_wait(NULL, 0, clock_real() + NS_PER_MS);
    child_end(&h->child);
    h->running = false;
}

/* ---- lives ---- */

static bool try(const char *folder, const char *rest, char *path, size_t size)
{
    return (size_t)snprintf(path, size, "%s/%s", folder, rest) < size && self_can_run(path);
}

/* Beside this program, beside this library, where both are installed: the build sets HEARTH_HELPER_PATH,
 * absolute, and for trees that were moved HEARTH_HELPER_FROM_BIN and HEARTH_HELPER_FROM_LIB, relative. False:
 * nowhere; `path` is then where it should be. */
static bool search(char *path, size_t size)
{
    char folder[HELPER_PATH_MAX];

    if (self_program_folder(folder, sizeof folder) &&
        (try(folder, HELPER_PROGRAM, path, size) || try(folder, HEARTH_HELPER_FROM_BIN, path, size)))
        return true;
    if (self_library_folder(folder, sizeof folder) &&
        (try(folder, HELPER_PROGRAM, path, size) || try(folder, HEARTH_HELPER_FROM_LIB, path, size)))
        return true;
    snprintf(path, size, "%s", HEARTH_HELPER_PATH);
    return self_can_run(path);
}

static void end_life(struct helper *h, uint64_t now_ns, const char *why)
{
    bool same = strcmp(h->why, why) == 0;

    if (h->running && h->ready && now_ns - h->started_ns >= HELPER_HEALTH_NS)
        h->pause_ns = HELPER_FIRST_NS;
    child_end(&h->child);
    h->running = false;
    h->ready = false;
    h->next_ns = now_ns + h->pause_ns;
    log_write(&h->log, same ? HEARTH_LOG_DEBUG : HEARTH_LOG_WARN, "mdns-ended",
              "mdns does not work: %s; next try in %.2f s", why, (double)h->pause_ns / (double)NS_PER_S);
    h->pause_ns = 2 * h->pause_ns < HELPER_LAST_NS ? 2 * h->pause_ns : HELPER_LAST_NS;
    snprintf(h->why, sizeof h->why, "%s", why);
}

static enum helper_news begin_life(struct helper *h, uint64_t now_ns)
{
    struct error error;

    error_clear(&error);
    if (h->searched && !search(h->path, sizeof h->path)) {
        error_set(&error, HEARTH_INVALID, RANK_NONE,
                  "the program hearth-mdns is missing, neither beside this program or library nor %.100s: "
                  "install it (it needs libavahi-core), or name seeds",
                  h->path);
        h->pause_ns = HELPER_LAST_NS;
    } else if (child_start(&h->child, h->path, &error) == HEARTH_OK) {
        h->running = true;
        h->ready = false;
        h->closed = false;
        h->in = (struct mdns_input){.len = 0};
        h->out_len = h->out_done = 0;
        h->malformed = 0;
        h->last_warning[0] = '\0';
        h->started_ns = h->window_ns = h->out_ns = now_ns;
        h->window_bytes = 0;
        return HELPER_BEGAN;
    }
    end_life(h, now_ns, error.text);
    return HELPER_SAME;
}

/* ---- its lines ---- */

/* False: the log has it, or has enough. */
static bool first_time(struct helper *h, const char *text)
{
    uint64_t hash = hash64(0, text, strlen(text));

    for (int i = 0; i < h->told_count; i++)
        if (h->told[i] == hash)
            return false;
    if (h->told_count == HELPER_TOLD_MAX)
        return false;
    h->told[h->told_count++] = hash;
    if (h->told_count == HELPER_TOLD_MAX)
        log_write(&h->log, HEARTH_LOG_WARN, "mdns-quiet", "further warnings of the mdns helper are left out");
    return h->told_count < HELPER_TOLD_MAX;
}

static void malformed(struct helper *h, const char *what)
{
    h->malformed++;
    if (first_time(h, what))
        log_write(&h->log, HEARTH_LOG_WARN, "mdns-line", "a line of the mdns helper is wrong: %s", what);
}

static void hear(struct helper *h, const char *text, size_t len)
{
    struct mdns_line line;
    const char *what = "";

    if (mdns_line_parse(&line, text, len, &what) != HEARTH_OK) {
        malformed(h, what);
        return;
    }
    switch (line.kind) {
    case MDNS_READY:
        h->ready = true;
        h->why[0] = '\0';
        log_write(&h->log, HEARTH_LOG_INFO, "mdns-ready", "mdns works: helper %d, %s", h->child.pid,
                  line.text);
        return;
    case MDNS_WARN:
        snprintf(h->last_warning, sizeof h->last_warning, "%.127s", line.text);
        if (first_time(h, line.text))
            log_write(&h->log, HEARTH_LOG_WARN, "mdns-warn", "mdns: %s", line.text);
        return;
    default:
        h->heard(h->arg, &line);
    }
}

static void receive(struct helper *h, uint64_t now_ns)
{
    const char *line;
    size_t len;

    if (now_ns - h->window_ns >= WINDOW_NS) {
        h->window_ns = now_ns;
        h->window_bytes = 0;
    }
    while (h->window_bytes < WINDOW_BYTES && h->malformed < MALFORMED_MAX && !h->closed) {
        struct iovec piece = {h->in.bytes + h->in.len, sizeof h->in.bytes - h->in.len};
        ssize_t got = sock_recv(h->child.fd, &piece, 1);
        if (got == 0)
            return;
        if (got < 0) {
            h->closed = true;
            h->closed_ns = now_ns;
            return;
        }
        h->window_bytes += (size_t)got;
        h->in.len += (size_t)got;
        while (mdns_input_next(&h->in, &line, &len))
            hear(h, line, len);
    }
}

static void transmit(struct helper *h, uint64_t now_ns)
{
    while (h->out_done < h->out_len) {
        struct iovec piece = {h->out + h->out_done, h->out_len - h->out_done};
        ssize_t sent = sock_send(h->child.fd, &piece, 1);
        if (sent <= 0)
            return; /* if it is gone, its output tells */
        h->out_done += (size_t)sent;
        h->out_ns = now_ns;
    }
}

/* What ends this life, or NULL. */
static const char *trouble(struct helper *h, uint64_t now_ns, char text[static TROUBLE_MAX])
{
    char how[64];

    if (child_ended(&h->child, how, sizeof how)) {
        bool said = h->last_warning[0] != '\0';
        snprintf(text, TROUBLE_MAX, "the helper ended: %s%s%s%s", how, said ? " (it said: " : "",
                 h->last_warning, said ? ")" : "");
        return text;
    }
    if (h->closed && now_ns - h->closed_ns >= CLOSED_NS)
        return "the helper closed its output";
    if (h->malformed >= MALFORMED_MAX)
        return "the helper writes what are no lines";
    if (!h->ready && now_ns - h->started_ns >= READY_NS)
        return "the helper was not ready in time";
    if (h->out_done < h->out_len && now_ns - h->out_ns >= DEAF_NS)
        return "the helper does not read";
    return NULL;
}

enum helper_news helper_pump(struct helper *h, uint64_t now_ns)
{
    char text[TROUBLE_MAX];

    if (h->off)
        return HELPER_SAME;
    if (!h->running)
        return now_ns >= h->next_ns ? begin_life(h, now_ns) : HELPER_SAME;
    transmit(h, now_ns);
    receive(h, now_ns);
    h->glance_ns = now_ns + GLANCE_NS;
    const char *why = trouble(h, now_ns, text);
    if (!why)
        return HELPER_SAME;
    end_life(h, now_ns, why);
    return HELPER_ENDED;
}

bool helper_idle(const struct helper *h)
{
    return h->running && h->out_done == h->out_len;
}

void helper_say(struct helper *h, const char *line, size_t len, uint64_t now_ns)
{
    if (h->out_done == h->out_len) {
        h->out_done = h->out_len = 0;
        h->out_ns = now_ns;
    }
    if (len > sizeof h->out - h->out_len)
        return;
    memcpy(h->out + h->out_len, line, len);
    h->out_len += len;
}

bool helper_wait(const struct helper *h, struct sock_wait *item)
{
    if (!h->running || h->closed)
        return false;
    *item = (struct sock_wait){.fd = h->child.fd,
                               .want_recv = h->window_bytes < WINDOW_BYTES,
                               .want_send = h->out_done < h->out_len};
    return true;
}

uint64_t helper_deadline(const struct helper *h)
{
    if (h->off)
        return NEVER_NS;
    if (!h->running)
        return h->next_ns;
    if (h->closed)
        return h->glance_ns;
    uint64_t at = h->out_done < h->out_len ? h->out_ns + DEAF_NS : NEVER_NS;
    if (h->window_bytes >= WINDOW_BYTES && h->window_ns + WINDOW_NS < at)
        at = h->window_ns + WINDOW_NS;
    return !h->ready && h->started_ns + READY_NS < at ? h->started_ns + READY_NS : at;
}
