/* SPDX-License-Identifier: Apache-2.0 */
/* Rows without gaps, so that the owner can be given the list; the traces beside it are ours. */
#include "discovery/sightings.h"

#include <string.h>

#include "core/hash.h"

int sightings_init(struct sightings *t, struct heap *heap)
{
    memset(t, 0, sizeof *t);
    t->list = heap_alloc(heap, SIGHTINGS_MAX, sizeof t->list[0]);
    t->traces = heap_alloc(heap, SIGHTINGS_MAX, sizeof t->traces[0]);
    prng_init(&t->prng, (uint64_t)(uintptr_t)t->list);
    if (t->list && t->traces)
        return HEARTH_OK;
    sightings_fini(t);
    return HEARTH_NO_MEMORY;
}

void sightings_fini(struct sightings *t)
{
    heap_free(t->list);
    heap_free(t->traces);
    t->list = NULL;
    t->traces = NULL;
}

/* ---- rows ---- */

static void drop(struct sightings *t, int row)
{
    int last = --t->count;

    t->list[row] = t->list[last];
    t->traces[row] = t->traces[last];
    t->changed++;
}

static uint64_t key_hash(const char *key)
{
    uint64_t hash = hash64(1, key, strlen(key));
    return hash != 0 ? hash : 1;
}

static uint64_t host_hash(const struct sock_addr *addr)
{
    struct sock_addr host = *addr;

    sock_addr_set_port(&host, 0);
    return hash64(2, host.raw, host.len);
}

static int row_of_key(const struct sightings *t, uint64_t key, int *place)
{
    for (int row = 0; row < t->count; row++)
        for (*place = 0; *place < SIGHTING_KEYS; (*place)++)
            if (t->traces[row].keys[*place] == key)
                return row;
    return -1;
}

static int row_of(const struct sightings *t, const struct sighting *s)
{
    for (int row = 0; row < t->count; row++)
        if (identity_equal(&t->list[row].id, &s->id) && sock_addr_equal(&t->list[row].addr, &s->addr))
            return row;
    return -1;
}

static void key_add(struct sighting_trace *trace, uint64_t key)
{
    for (int i = 0; i < SIGHTING_KEYS; i++) {
        if (trace->keys[i] == 0) {
            trace->keys[i] = key;
            return;
        }
    }
    memmove(trace->keys, trace->keys + 1, sizeof trace->keys - sizeof trace->keys[0]);
    trace->keys[SIGHTING_KEYS - 1] = key;
}

/* The row goes with its last key. */
static void key_remove(struct sightings *t, int row, int place)
{
    struct sighting_trace *trace = &t->traces[row];

    trace->keys[place] = 0;
    for (int i = 0; i < SIGHTING_KEYS; i++)
        if (trace->keys[i] != 0)
            return;
    drop(t, row);
}

/* ---- room for one more ---- */

static bool ours(const struct sightings *t, int row)
{
    return t->self_known && memcmp(t->list[row].space, t->self.space, NAMESPACE_LEN) == 0;
}

#define TALLY_SLOTS (2 * SIGHTINGS_MAX)

/* How many rows each address has, ours and strangers' apart. */
struct host_tally {
    uint16_t count[TALLY_SLOTS];
    uint64_t host[TALLY_SLOTS];
};

static uint16_t *tally_slot(struct host_tally *tally, uint64_t host, bool own)
{
    uint64_t mark = host << 1 | own;
    size_t at = (size_t)(hash_mix(3, mark) % TALLY_SLOTS);

    while (tally->count[at] != 0 && tally->host[at] != mark)
        at = (at + 1) % TALLY_SLOTS;
    tally->host[at] = mark;
    return &tally->count[at];
}

/* The oldest of the address that claims most nodes; any where none claims more than another. A flooder evicts
 * mostly its own. */
static int victim(struct sightings *t)
{
    struct host_tally tally = {{0}, {0}};
    bool strangers = false;
    int best = -1, best_count = 0;

    for (int i = 0; i < t->count; i++) {
        (*tally_slot(&tally, t->traces[i].host, ours(t, i)))++;
        strangers = strangers || !ours(t, i);
    }
    int start = (int)prng_below(&t->prng, (uint64_t)t->count);
    for (int i = 0; i < t->count; i++) {
        int row = (start + i) % t->count;
        if (strangers && ours(t, row))
            continue;
        int count = *tally_slot(&tally, t->traces[row].host, ours(t, row));
        bool earlier = best >= 0 && t->traces[row].host == t->traces[best].host &&
                       t->traces[row].order < t->traces[best].order;
        if (count > best_count || earlier) {
            best = row;
            best_count = count;
        }
    }
    return best;
}

/* ---- what the helper tells ---- */

static void add(struct sightings *t, const struct sighting *s, uint64_t key)
{
    if (t->count == SIGHTINGS_MAX)
        drop(t, victim(t));
    int row = t->count++;
    t->list[row] = *s;
    memset(&t->traces[row], 0, sizeof t->traces[row]);
    t->traces[row].keys[0] = key;
    t->traces[row].host = host_hash(&s->addr);
    t->traces[row].order = ++t->order;
    t->changed++;
}

static bool same_facts(const struct sighting *a, const struct sighting *b)
{
    return a->version == b->version && a->flags == b->flags && strcmp(a->name, b->name) == 0 &&
           memcmp(a->space, b->space, NAMESPACE_LEN) == 0;
}

void sightings_found(struct sightings *t, const struct sighting *s)
{
    uint64_t key = key_hash(s->key);
    bool is_self = t->self_known && identity_equal(&s->id, &t->self.id); /* which is in no row */
    int place = 0, known = row_of_key(t, key, &place), row = row_of(t, s);

    if (known >= 0 && known != row) { /* the key means another address now */
        key_remove(t, known, place);
        row = row_of(t, s);
    }
    if (is_self)
        return;
    if (row < 0) {
        add(t, s, key);
        return;
    }
    if (known != row)
        key_add(&t->traces[row], key);
    t->traces[row].old_ns = 0;
    if (!same_facts(&t->list[row], s)) {
        t->list[row] = *s;
        t->changed++;
    }
}

void sightings_lost(struct sightings *t, const char *key)
{
    int place = 0, row = row_of_key(t, key_hash(key), &place);

    if (row >= 0)
        key_remove(t, row, place);
}

void sightings_age(struct sightings *t, uint64_t now_ns)
{
    for (int row = 0; row < t->count; row++) {
        memset(t->traces[row].keys, 0, sizeof t->traces[row].keys);
        if (t->traces[row].old_ns == 0)
            t->traces[row].old_ns = now_ns != 0 ? now_ns : 1;
    }
}

void sightings_expire(struct sightings *t, uint64_t before_ns)
{
    for (int row = t->count - 1; row >= 0; row--)
        if (t->traces[row].old_ns != 0 && t->traces[row].old_ns < before_ns)
            drop(t, row);
}

uint64_t sightings_oldest(const struct sightings *t)
{
    uint64_t oldest = NEVER_NS;

    for (int row = 0; row < t->count; row++)
        if (t->traces[row].old_ns != 0 && t->traces[row].old_ns < oldest)
            oldest = t->traces[row].old_ns;
    return oldest;
}

void sightings_self(struct sightings *t, const struct sighting *self)
{
    t->self_known = self;
    if (!self)
        return;
    t->self = *self;
    for (int row = t->count - 1; row >= 0; row--)
        if (identity_equal(&t->list[row].id, &self->id))
            drop(t, row);
}
