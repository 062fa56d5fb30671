/* SPDX-License-Identifier: Apache-2.0 */
/* What must hold in a town at every moment, and what must hold at the end. */
#include "town_facts.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "core/hash.h"

/* Something that may be so in one way only: (kind, instance, number) -> value. */
struct town_fact {
    uint64_t key[3];
    struct hash128 value;
    int house; /* who said it first */
};

enum { FACT_NONE, FACT_CENSUS, FACT_LEADER, FACT_EPOCH };

void facts_fail(struct town *t, const char *format, ...)
{
    if (t->failure[0] != '\0')
        return; /* the first is what matters */
    va_list args;
    va_start(args, format);
    vsnprintf(t->failure, sizeof(t->failure), format, args);
    va_end(args);
    town_trace(t, "FAILURE: %s", t->failure);
}

static struct town_fact *fact_slot(struct town_fact *facts, size_t room, const uint64_t key[3])
{
    size_t at = hash_mix(hash_mix(key[0] + 1, key[1]), key[2]) & (room - 1);
    while (facts[at].key[0] != FACT_NONE && memcmp(facts[at].key, key, sizeof(facts[at].key)) != 0)
        at = (at + 1) & (room - 1);
    return &facts[at];
}

static void facts_grow(struct town *t)
{
    size_t room = t->fact_room > 0 ? 2 * t->fact_room : 256;
    struct town_fact *facts = calloc(room, sizeof(facts[0]));
    for (size_t i = 0; i < t->fact_room; i++)
        if (t->facts[i].key[0] != FACT_NONE)
            *fact_slot(facts, room, t->facts[i].key) = t->facts[i];
    free(t->facts);
    t->facts = facts;
    t->fact_room = room;
}

/* The fact of this key; `fresh` if it is new, and then the caller sets its value. */
static struct town_fact *fact(struct town *t, uint64_t kind, uint64_t instance, uint64_t number, bool *fresh)
{
    const uint64_t key[3] = {kind, instance, number};
    if (2 * (t->fact_count + 1) > t->fact_room)
        facts_grow(t);
    struct town_fact *f = fact_slot(t->facts, t->fact_room, key);
    *fresh = f->key[0] == FACT_NONE;
    if (*fresh) {
        memcpy(f->key, key, sizeof(f->key));
        t->fact_count++;
    }
    return f;
}

static void one_way_only(struct town *t, int house, uint64_t kind, const uint64_t at[2], struct hash128 value)
{
    bool fresh;
    struct town_fact *f = fact(t, kind, at[0], at[1], &fresh);
    if (fresh) {
        f->value = value;
        f->house = house;
    } else if (f->value.low != value.low || f->value.high != value.high) {
        facts_fail(t, "nodes %d and %d have different %s %" PRIu64 " of instance %" PRIx64, f->house, house,
                   kind == FACT_CENSUS ? "censuses for epoch" : "leaders for term", at[1], at[0]);
    }
}

/* Also when it returns to an instance that it had left; but guests have promised nothing there. */
static void only_rising(struct town *t, int house, const struct census *c)
{
    bool fresh;
    if (!town_votes(t, house))
        return;
    struct town_fact *f = fact(t, FACT_EPOCH, c->instance, t->houses[house].fellow.id.instance, &fresh);
    if (!fresh && c->epoch <= f->value.low)
        facts_fail(t, "node %d went from epoch %" PRIu64 " to %" PRIu64 " of instance %" PRIx64, house,
                   f->value.low, c->epoch, c->instance);
    f->value.low = c->epoch;
}

void facts_check(struct town *t, int house)
{
    static uint8_t bytes[CENSUS_LEN_MAX];
    struct house *h = &t->houses[house];
    const struct census *c = assembly_census(h->assembly);
    if (house == t->hostile || (c->instance == h->instance && c->epoch == h->epoch))
        return;
    h->instance = c->instance;
    h->epoch = c->epoch;
    struct writer w = writer_of(bytes, sizeof(bytes));
    census_put(&w, c);
    only_rising(t, house, c);
    if (!t->lied) {
        one_way_only(t, house, FACT_CENSUS, (uint64_t[]){c->instance, c->epoch},
                     hash128(bytes, (size_t)(w.at - bytes)));
        one_way_only(t, house, FACT_LEADER, (uint64_t[]){c->instance, c->term},
                     hash128(&c->members[c->leader].id, sizeof(struct identity)));
    }
    if (census_find(c, &h->fellow.id) < 0)
        facts_fail(t, "node %d adopted a census without itself", house);
    if (c->size > 1 && !census_votes(c, c->leader))
        facts_fail(t, "node %d adopted a census that a guest leads", house);
}

void facts_letter(struct town *t, int house, uint8_t kind)
{
    bool election =
        kind == LETTER_CALL || kind == LETTER_VOTE || kind == LETTER_PROPOSE || kind == LETTER_ACCEPT;
    if (election && !town_votes(t, house))
        facts_fail(t, "node %d, a guest, sent a letter of kind %d", house, kind);
}

void facts_free(struct town *t)
{
    free(t->facts);
    t->facts = NULL;
}

/* ---- at the end ---- */

int town_living(const struct town *t)
{
    int count = 0;
    for (int i = 0; i < t->size; i++)
        count += t->houses[i].state != HOUSE_EMPTY;
    return count;
}

static bool says(char *why, size_t size, const char *format, ...) __attribute__((format(printf, 3, 4)));
static bool says(char *why, size_t size, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(why, size, format, args);
    va_end(args);
    return false;
}

static bool same_fellow(const struct fellow *a, const struct fellow *b)
{
    uint8_t bytes[2][FELLOW_LEN_MAX];
    struct writer w[2] = {writer_of(bytes[0], FELLOW_LEN_MAX), writer_of(bytes[1], FELLOW_LEN_MAX)};
    fellow_put(&w[0], a);
    fellow_put(&w[1], b);
    size_t len = (size_t)(w[0].at - bytes[0]);
    return len == (size_t)(w[1].at - bytes[1]) && memcmp(bytes[0], bytes[1], len) == 0;
}

bool town_votes(const struct town *t, int house)
{
    return (t->houses[house].fellow.flags & FELLOW_GUEST) == 0;
}

/* Guests alone wait for a machine that stays. */
static bool guests_wait(const struct town *t, char *why, size_t size)
{
    for (int i = 0; i < t->size; i++) {
        const struct house *h = &t->houses[i];
        if (h->state != HOUSE_EMPTY && assembly_state(h->assembly) != ASSEMBLY_STRANDED)
            return says(why, size, "node %d is %s among guests", i,
                        assembly_state_name(assembly_state(h->assembly)));
    }
    return true;
}

bool town_agrees(const struct town *t, char *why, size_t size)
{
    const struct census *first = NULL;
    int living = town_living(t), leaders = 0, voters = 0;
    for (int i = 0; i < t->size; i++)
        voters += t->houses[i].state != HOUSE_EMPTY && town_votes(t, i);
    if (voters == 0)
        return guests_wait(t, why, size);
    for (int i = 0; i < t->size; i++) {
        const struct house *h = &t->houses[i];
        if (h->state == HOUSE_EMPTY)
            continue;
        const struct census *c = assembly_census(h->assembly);
        first = first != NULL ? first : c;
        leaders += assembly_leads(h->assembly);
        if (assembly_state(h->assembly) != ASSEMBLY_MEMBER)
            return says(why, size, "node %d is %s", i, assembly_state_name(assembly_state(h->assembly)));
        if (c->instance != first->instance || c->epoch != first->epoch)
            return says(why, size,
                        "node %d is in epoch %" PRIu64 " of %" PRIx64 ", others in %" PRIu64 " of %" PRIx64,
                        i, c->epoch, c->instance, first->epoch, first->instance);
        if (c->size != living)
            return says(why, size, "node %d has %d members, but %d live", i, c->size, living);
        int index = census_find(first, &h->fellow.id);
        if (index < 0 || !same_fellow(&first->members[index], &h->fellow))
            return says(why, size, "node %d is not in the census as it is", i);
    }
    if (leaders != 1)
        return says(why, size, "%d nodes lead", leaders);
    return true;
}

bool town_stuck(const struct town *t)
{
    for (int i = 0; i < t->size; i++)
        if (t->houses[i].state != HOUSE_EMPTY && assembly_state(t->houses[i].assembly) != ASSEMBLY_STRANDED)
            return false;
    return true;
}

int town_leader(const struct town *t)
{
    for (int i = 0; i < t->size; i++)
        if (t->houses[i].state == HOUSE_LIVES && assembly_leads(t->houses[i].assembly))
            return i;
    return -1;
}

void town_describe_all(struct town *t)
{
    for (int i = 0; i < t->size; i++) {
        const struct house *h = &t->houses[i];
        if (h->state == HOUSE_EMPTY)
            continue;
        const struct census *c = assembly_census(h->assembly);
        town_trace(t, "%2d  is %s%s: %d members, %s leads [%" PRIx64 " epoch %" PRIu64 " term %" PRIu64 "]",
                   i, assembly_state_name(assembly_state(h->assembly)),
                   assembly_leads(h->assembly) ? " and leads" : "", c->size, c->members[c->leader].name,
                   c->instance, c->epoch, c->term);
    }
}
