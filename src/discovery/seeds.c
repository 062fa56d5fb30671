/* SPDX-License-Identifier: Apache-2.0 */
/* Look-ups of seeds: what was found stays until something else is found. */
#include "discovery/seeds.h"

#include <stdio.h>
#include <string.h>

#include "discovery/finder.h"

#define SEED_TEXT_MAX 264              /* a name, a port and the final 0 */
#define SEEDS_AT_ONCE 4                /* look-ups; others of this process need threads too */
#define AGAIN_NS      (30 * NS_PER_S)  /* after an answer */
#define FAILED_NS     (5 * NS_PER_S)   /* after none */
#define PATIENCE_NS   (20 * NS_PER_S)  /* then a look-up is left behind */
#define GLANCE_NS     (50 * NS_PER_MS) /* while look-ups are under way */

struct seed {
    char text[SEED_TEXT_MAX];
    bool numeric;
    struct lookup *lookup; /* under way, or NULL */
    uint64_t begun_ns, next_ns;
    bool complained; /* about this failure */
    struct sock_addr addrs[RESOLVE_MAX];
    int count;
};

struct seeds {
    struct log log;
    uint16_t port;
    struct seed list[FINDER_SEEDS_MAX];
    int count;
    struct sock_addr addrs[FINDER_SEEDS_MAX * RESOLVE_MAX]; /* of all, each once */
    int addr_count;
    uint64_t next_ns; /* of a pump */
};

/* ---- all of them ---- */

static bool known(const struct seeds *s, const struct sock_addr *addr)
{
    for (int i = 0; i < s->addr_count; i++)
        if (sock_addr_equal(&s->addrs[i], addr))
            return true;
    return false;
}

static void collect(struct seeds *s)
{
    s->addr_count = 0;
    for (int i = 0; i < s->count; i++)
        for (int k = 0; k < s->list[i].count; k++)
            if (!known(s, &s->list[i].addrs[k]))
                s->addrs[s->addr_count++] = s->list[i].addrs[k];
}

/* ---- opening ---- */

static int seed_add(struct seeds *s, const char *text, size_t len, struct error *error)
{
    struct error why;

    if (s->count == FINDER_SEEDS_MAX)
        return error_set(error, HEARTH_INVALID, RANK_NONE, "more than %d seeds", FINDER_SEEDS_MAX);
    struct seed *seed = &s->list[s->count];
    if (len >= sizeof seed->text)
        return error_set(error, HEARTH_INVALID, RANK_NONE, "a seed has %zu characters, %d are allowed", len,
                         SEED_TEXT_MAX - 1);
    memcpy(seed->text, text, len);
    seed->text[len] = '\0';
    if (resolve_check(seed->text, &why) != HEARTH_OK)
        return error_set(error, HEARTH_INVALID, RANK_NONE, "seed %d: %s", s->count + 1, why.text);
    seed->numeric = sock_addr_parse(seed->text, s->port, &seed->addrs[0]) == HEARTH_OK;
    if (seed->numeric && sock_addr_family(&seed->addrs[0]) == SOCK_UNIX)
        return error_set(error, HEARTH_INVALID, RANK_NONE, "seed %d, \"%s\": write host:port", s->count + 1,
                         seed->text);
    seed->count = seed->numeric;
    s->count++;
    return HEARTH_OK;
}

static int parse(struct seeds *s, const char *text, struct error *error)
{
    int status = HEARTH_OK;

    while (status == HEARTH_OK && text && *text != '\0') {
        size_t len = strcspn(text, ",");
        size_t lead = strspn(text, " "), tail = len;
        while (tail > lead && text[tail - 1] == ' ')
            tail--;
        if (tail > lead)
            status = seed_add(s, text + lead, tail - lead, error);
        text += len + (text[len] == ',');
    }
    return status;
}

int seeds_open(struct heap *heap, const struct log *log, const char *text, uint16_t port, struct seeds **out,
               struct error *error)
{
    struct seeds *s = heap_alloc(heap, 1, sizeof *s);

    if (!s)
        return error_set(error, HEARTH_NO_MEMORY, RANK_NONE, "no memory for seeds");
    s->log = *log;
    s->port = port;
    int status = parse(s, text, error);
    if (status != HEARTH_OK) {
        heap_free(s);
        return status;
    }
    collect(s);
    *out = s;
    return HEARTH_OK;
}

void seeds_close(struct seeds *s)
{
    if (!s)
        return;
    for (int i = 0; i < s->count; i++)
        lookup_close(s->list[i].lookup);
    heap_free(s);
}

/* ---- look-ups ---- */

static void failed(struct seeds *s, struct seed *seed, const char *why, uint64_t now_ns)
{
    if (!seed->complained)
        log_write(&s->log, HEARTH_LOG_WARN, "seed-lookup", "seed %s: %s; trying again", seed->text, why);
    seed->complained = true;
    seed->next_ns = now_ns + FAILED_NS;
}

static void seed_begin(struct seeds *s, struct seed *seed, uint64_t now_ns)
{
    struct error error;

    error_clear(&error);
    seed->begun_ns = now_ns;
    int status = lookup_begin(seed->text, s->port, &seed->lookup, &error);
    if (status == HEARTH_LIMIT)
        seed->next_ns = now_ns + NS_PER_S; /* others are looking things up too */
    else if (status != HEARTH_OK)
        failed(s, seed, error.text, now_ns);
}

static void seed_ask(struct seeds *s, struct seed *seed, uint64_t now_ns)
{
    struct sock_addr addrs[RESOLVE_MAX];
    struct error error;
    int count = 0;

    error_clear(&error);
    int status = lookup_ask(seed->lookup, addrs, &count, &error);
    if (status == HEARTH_PENDING && now_ns < seed->begun_ns + PATIENCE_NS)
        return;
    lookup_close(seed->lookup);
    seed->lookup = NULL;
    if (status != HEARTH_OK) {
        failed(s, seed, status == HEARTH_PENDING ? "the look-up took too long" : error.text, now_ns);
        return;
    }
    memcpy(seed->addrs, addrs, sizeof addrs);
    seed->count = count;
    seed->complained = false;
    seed->next_ns = now_ns + AGAIN_NS;
    collect(s);
}

static int under_way(const struct seeds *s)
{
    int n = 0;

    for (int i = 0; i < s->count; i++)
        n += !!s->list[i].lookup;
    return n;
}

/* When there is something to do for this one. */
static uint64_t seed_deadline(const struct seed *seed, uint64_t now_ns)
{
    if (seed->lookup)
        return now_ns + GLANCE_NS;
    return seed->numeric ? NEVER_NS : seed->next_ns > now_ns ? seed->next_ns : now_ns + GLANCE_NS;
}

void seeds_pump(struct seeds *s, uint64_t now_ns)
{
    int running = under_way(s);

    s->next_ns = NEVER_NS;
    for (int i = 0; i < s->count; i++) {
        struct seed *seed = &s->list[i];
        if (seed->lookup) {
            seed_ask(s, seed, now_ns);
        } else if (!seed->numeric && now_ns >= seed->next_ns && running < SEEDS_AT_ONCE) {
            seed_begin(s, seed, now_ns);
            running++;
        }
        uint64_t next_ns = seed_deadline(seed, now_ns);
        s->next_ns = next_ns < s->next_ns ? next_ns : s->next_ns;
    }
}

uint64_t seeds_deadline(const struct seeds *s)
{
    return s->next_ns;
}

const struct sock_addr *seeds_addrs(const struct seeds *s, int *count)
{
    *count = s->addr_count;
    return s->addrs;
}
