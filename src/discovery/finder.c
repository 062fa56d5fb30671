/* SPDX-License-Identifier: Apache-2.0 */
/* Finds nodes: the helper, the networks that it is to use, the table of what it saw, and seeds. */
#include "discovery/finder.h"

#include <stdio.h>
#include <string.h>

#include "discovery/helper.h"
#include "discovery/networks.h"
#include "discovery/seeds.h"
#include "discovery/sightings.h"

#define LOOK_NS (1 * NS_PER_S)  /* at our interfaces */
#define OLD_NS  (75 * NS_PER_S) /* what the last helper saw and this one did not is forgotten after that */

#define BIND_MAX 128

struct finder {
    struct log log;
    struct helper helper;
    struct seeds *seeds;
    struct sightings sightings;
    struct networks networks, told; /* as they are; as the helper knows them */
    char bind[BIND_MAX];
    uint64_t look_ns; /* next time */
    struct sighting self;
    bool announced, unsaid; /* the helper must be told of `self` */
    uint64_t now_ns;        /* of the last pump */
};

/* A loopback address that was announced on a network would make us dial ourselves. */
static void heard(void *arg, const struct mdns_line *line)
{
    struct finder *f = arg;
    const struct sighting *s = &line->sighting;

    if (line->kind == MDNS_LOST) {
        sightings_lost(&f->sightings, s->key);
        return;
    }
    const struct network *network = networks_find(&f->networks, s->interface);
    if (network && network->loopback == sock_addr_loopback(&s->addr))
        sightings_found(&f->sightings, s);
}

int finder_open(const struct finder_setup *setup, struct finder **out, struct error *error)
{
    if (setup->bind && strlen(setup->bind) >= BIND_MAX)
        return error_set(error, HEARTH_INVALID, RANK_NONE, "bind has more than %d characters", BIND_MAX - 1);
    struct finder *f = heap_alloc(setup->heap, 1, sizeof *f);
    if (!f)
        return error_set(error, HEARTH_NO_MEMORY, RANK_NONE, "no memory for discovery");
    f->log = setup->log;
    f->now_ns = setup->now_ns;
    snprintf(f->bind, sizeof f->bind, "%s", setup->bind ? setup->bind : "");
    int status = seeds_open(setup->heap, &f->log, setup->seeds, setup->seed_port, &f->seeds, error);
    if (status != HEARTH_OK)
        goto free_finder;
    status = sightings_init(&f->sightings, setup->heap);
    if (status != HEARTH_OK) {
        error_set(error, status, RANK_NONE, "no memory for discovery");
        goto close_seeds;
    }
    helper_init(&f->helper, &f->log, setup->helper, heard, f);
    *out = f;
    return HEARTH_OK;

close_seeds:
    seeds_close(f->seeds);
free_finder:
    heap_free(f);
    return status;
}

void finder_close(struct finder *f)
{
    if (!f)
        return;
    helper_fini(&f->helper);
    sightings_fini(&f->sightings);
    seeds_close(f->seeds);
    heap_free(f);
}

void finder_announce(struct finder *f, const struct sighting *self, uint64_t now_ns)
{
    f->now_ns = now_ns;
    f->announced = self;
    f->unsaid = true;
    if (self)
        f->self = *self;
    sightings_self(&f->sightings, self);
}

/* ---- driving ---- */

static void say_networks(struct finder *f)
{
    char line[MDNS_LINE_MAX + 1];

    for (int i = 0; i < f->told.count; i++) {
        const char *name = f->told.list[i].name;
        if (!networks_find(&f->networks, name))
            helper_say(&f->helper, line, mdns_line_address(name, NULL, 0, line, sizeof line), f->now_ns);
    }
    for (int i = 0; i < f->networks.count; i++) {
        const struct network *network = &f->networks.list[i];
        const struct network *before = networks_find(&f->told, network->name);
        if (!before || strcmp(before->line, network->line) != 0)
            helper_say(&f->helper, network->line, strlen(network->line), f->now_ns);
    }
    f->told = f->networks;
}

static void say(struct finder *f)
{
    char line[MDNS_LINE_MAX + 1];

    if (!helper_idle(&f->helper))
        return;
    if (!networks_equal(&f->networks, &f->told))
        say_networks(f);
    if (f->unsaid)
        helper_say(&f->helper, line, mdns_line_publish(f->announced ? &f->self : NULL, line, sizeof line),
                   f->now_ns);
    f->unsaid = false;
}

void finder_pump(struct finder *f, uint64_t now_ns)
{
    f->now_ns = now_ns;
    if (now_ns >= f->look_ns && !f->helper.off) {
        networks_look(&f->networks, f->bind[0] != '\0' ? f->bind : NULL);
        f->look_ns = now_ns + LOOK_NS;
    }
    enum helper_news news = helper_pump(&f->helper, now_ns);
    if (news == HELPER_BEGAN) {
        f->told.count = 0;
        f->unsaid = f->announced;
    }
    if (news == HELPER_ENDED)
        sightings_age(&f->sightings, now_ns);
    say(f);
    if (helper_pump(&f->helper, now_ns) == HELPER_ENDED) /* what was said goes out */
        sightings_age(&f->sightings, now_ns);
    if (now_ns > OLD_NS)
        sightings_expire(&f->sightings, now_ns - OLD_NS);
    seeds_pump(f->seeds, now_ns);
}

static uint64_t earlier(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

size_t finder_waits(const struct finder *f, struct sock_wait *items, size_t max, uint64_t *deadline_ns)
{
    uint64_t old_ns = sightings_oldest(&f->sightings);

    *deadline_ns = earlier(*deadline_ns, f->helper.off ? NEVER_NS : f->look_ns);
    *deadline_ns = earlier(*deadline_ns, helper_deadline(&f->helper));
    *deadline_ns = earlier(*deadline_ns, seeds_deadline(f->seeds));
    if (old_ns != NEVER_NS)
        *deadline_ns = earlier(*deadline_ns, old_ns + OLD_NS + 1);
    return max > 0 && helper_wait(&f->helper, &items[0]);
}

/* ---- what is so ---- */

const struct sighting *finder_sightings(const struct finder *f, int *count, uint64_t *changed)
{
    *count = f->sightings.count;
    *changed = f->sightings.changed;
    return f->sightings.list;
}

const struct sock_addr *finder_seeds(const struct finder *f, int *count)
{
    return seeds_addrs(f->seeds, count);
}

bool finder_text(const struct finder *f, char *text, size_t size)
{
    const struct helper *h = &f->helper;

    if (h->off) {
        snprintf(text, size, "%s", FINDER_OFF);
    } else if (h->running && h->ready && f->networks.count == 0) {
        snprintf(text, size, "mdns does not work: no interface that is up%s%s",
                 f->bind[0] != '\0' ? " is " : "", f->bind);
    } else if (h->running && h->ready) {
        snprintf(text, size, "mdns works (helper %d, %d interface%s)", h->child.pid, f->networks.count,
                 f->networks.count == 1 ? "" : "s");
        return true;
    } else if (h->running) {
        snprintf(text, size, "mdns is starting (helper %d)", h->child.pid);
    } else {
        double left_s = h->next_ns > f->now_ns ? (double)(h->next_ns - f->now_ns) / (double)NS_PER_S : 0;
        snprintf(text, size, "mdns does not work: %s; next try in %.2g s", h->why, left_s);
    }
    return false;
}
