/* SPDX-License-Identifier: Apache-2.0 */
/* Opens and closes a node's home, and tells it what inner nodes know: traffic, lateness, links. */
#include "node/residence.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "home/desk.h"
#include "home/job_store.h"
#include "node/secure.h"
#include "os/host.h"

/* ---- what inner nodes know ---- */

struct sample {
    struct identity peer;
    uint64_t bytes, busy_ns, late_ns;
};

/* Under both locks: what has happened since the last look. */
static int sample_formed(struct formed *f, struct sample samples[static CENSUS_MEMBERS_MAX])
{
    struct engine *engine = f->inner->engine;
    int count = 0;
    mutex_lock(&f->inner->baton);
    for (int rank = 0; rank < f->formation.size; rank++) {
        uint64_t bytes = 0, busy_ns = 0;
        if (rank == f->formation.rank)
            continue;
        engine_traffic(engine, rank, &bytes, &busy_ns);
        samples[count++] = (struct sample){
            .peer = f->formation.members[rank],
            .bytes = bytes - f->bytes[rank],
            .busy_ns = busy_ns - f->busy_ns[rank],
            .late_ns = engine_skew(engine, rank),
        };
        f->bytes[rank] = bytes;
        f->busy_ns[rank] = busy_ns;
    }
    mutex_unlock(&f->inner->baton);
    return count;
}

/* What the group has moved since the last look. */
static void sum_moved(struct formed *f, uint64_t *sent, uint64_t *received)
{
    uint64_t out = atomic_load_explicit(&f->inner->metrics.bytes_sent, memory_order_relaxed);
    uint64_t in = atomic_load_explicit(&f->inner->metrics.bytes_received, memory_order_relaxed);
    *sent += out - f->sent;
    *received += in - f->received;
    f->sent = out;
    f->received = in;
}

static void take_samples(void *arg)
{
    struct residence *r = arg;
    struct sample samples[CENSUS_MEMBERS_MAX];
    struct list *item, *after;
    uint64_t sent = 0, received = 0;
    int count = 0;
    mutex_lock(&r->lock);
    LIST_EACH (item, after, &r->formed) { /* most nodes are in one; of several the last counts */
        struct formed *f = container_of(item, struct formed, item);
        int found = sample_formed(f, samples);
        count = found > 0 ? found : count;
        sum_moved(f, &sent, &received);
    }
    mutex_unlock(&r->lock);
    if (sent > 0 ||
        received > 0) /* a first look may come before home_open has returned, and there are no groups */
        home_moved(r->home, sent, received);
    for (int i = 0; i < count; i++) {
        home_traffic(r->home, &samples[i].peer, samples[i].bytes, samples[i].busy_ns);
        home_skew(r->home, &samples[i].peer, samples[i].late_ns);
    }
}

/* "peers": how each group is joined to each of its members, and why that way. */
static void put_peers(const struct formed *f, struct paper *paper, const char **comma)
{
    const struct node_member *roll = f->inner->roll;
    for (int rank = 0; roll != NULL && rank < f->formation.size; rank++) {
        if (rank == f->formation.rank)
            continue;
        paper_print(paper, "%s{\"job\": ", *comma);
        paper_quote(paper, f->formation.job);
        paper_print(paper, ", \"rank\": %d, \"id\": \"%s\", \"name\": ", rank, roll[rank].id);
        paper_quote(paper, roll[rank].name);
        paper_print(paper, ", \"transport\": \"%s\", \"address\": \"%s\", \"why\": ", roll[rank].transport,
                    roll[rank].address);
        paper_quote(paper, roll[rank].why);
        paper_print(paper, "}");
        *comma = ", ";
    }
}

/* "groups": in which order the rings of each go round, and the site of each rank. */
static void put_group(const struct formed *f, struct paper *paper, const char **comma)
{
    const struct arrangement *a = &f->arranged;
    int site[CENSUS_MEMBERS_MAX];
    paper_print(paper, "%s{\"job\": ", *comma);
    paper_quote(paper, f->formation.job);
    paper_print(paper, ", \"rank\": %d, \"size\": %d, \"order\": [", f->formation.rank, f->formation.size);
    for (int i = 0; i < a->size; i++) {
        paper_print(paper, "%s%d", i > 0 ? ", " : "", a->order[i]);
        site[a->order[i]] = a->site[i];
    }
    paper_print(paper, "], \"sites\": [");
    for (int i = 0; i < a->size; i++)
        paper_print(paper, "%s%d", i > 0 ? ", " : "", site[i]);
    paper_print(paper, "]}");
    *comma = ", ";
}

void residence_arranged(struct formed *f, const hearth_group *group, const struct arrangement *a)
{
    if (group != &f->inner->world)
        return;
    mutex_lock(&f->residence->lock);
    f->arranged = *a;
    mutex_unlock(&f->residence->lock);
}

static void write_extra(void *arg, struct paper *paper)
{
    struct residence *r = arg;
    struct list *item, *after;
    const char *comma = "";
    paper_print(paper, ", \"peers\": [");
    mutex_lock(&r->lock);
    LIST_EACH (item, after, &r->formed)
        put_peers(container_of(item, struct formed, item), paper, &comma);
    paper_print(paper, "], \"groups\": [");
    comma = "";
    LIST_EACH (item, after, &r->formed)
        put_group(container_of(item, struct formed, item), paper, &comma);
    mutex_unlock(&r->lock);
    paper_print(paper, "]");
}

/* ---- opening and closing ---- */

static const char **kept_string(struct hearth_config *c, int i)
{
    const char **fields[] = {&c->bind, &c->advertise, &c->transport, &c->site};
    return i < (int)(sizeof fields / sizeof *fields) ? fields[i] : NULL;
}

/* For inner nodes: all as it was given, but who the members are. */
static int keep_config(struct residence *r, const struct opening *o)
{
    struct hearth_config given = *o->config;
    r->config = given;
    for (int i = 0; kept_string(&r->config, i) != NULL; i++)
        *kept_string(&r->config, i) = NULL;
    for (int i = 0; kept_string(&r->config, i) != NULL; i++) {
        const char *text = *kept_string(&given, i);
        *kept_string(&r->config, i) = text != NULL ? heap_strdup(o->heap, text) : NULL;
        if (text != NULL && *kept_string(&r->config, i) == NULL)
            return HEARTH_NO_MEMORY;
    }
    r->config.secret = r->config.secret_file = r->config.key_file = NULL;
    r->config.seeds = r->config.mdns = r->config.peers = r->config.rendezvous = NULL;
    r->config.discover = "off";
    r->config.health = "default";
    r->config.job = "hearth";
    r->config.codec = r->node->codec;
    r->config.rank = -1;
    r->config.world_size = 0;
    r->config.launcher[0] = '\0';
    return HEARTH_OK;
}

static void desk_of(const struct opening *o, char *path, size_t size)
{
    char folder[4096] = "";
    if (o->own.folder[0] != '\0')
        snprintf(folder, sizeof folder, "%s", o->own.folder);
    else if (host_home(folder, sizeof folder - sizeof "/.config/hearth"))
        snprintf(folder + strlen(folder), sizeof folder - strlen(folder), "/.config/hearth");
    desk_place(folder, host_user(), path, size);
}

static int open_home(struct residence *r, struct opening *o, struct error *error)
{
    char desk[DESK_PLACE_MAX], jobs[SECURE_PATH_MAX + sizeof JOB_STORE_TAIL];
    desk_of(o, desk, sizeof desk);
    bool kept = secure_key_path(o, jobs);
    snprintf(jobs + strlen(jobs), sizeof jobs - strlen(jobs), "%s", JOB_STORE_TAIL);
    struct home_setup setup = {
        .heap = r->node->heap,
        .log = o->log,
        .credentials = r->credentials,
        .helper = o->own.mdns,
        .seeds = o->own.seeds,
        .bind = o->own.bind,
        .advertise = o->own.advertise,
        .desk = desk,
        .jobs_file = kept ? jobs : NULL,
        .port = o->own.port,
        .flags = o->own.roles,
        .health = health_preset_find(o->own.health),
        .cluster = secret_name(credentials_secret(r->credentials)),
        .transport = o->own.transport,
        .sample = take_samples,
        .extra = write_extra,
        .arg = r,
        .connect_timeout_ns = (uint64_t)o->own.connect_timeout_ms * NS_PER_MS,
        .deadline_ns = o->deadline_ns,
    };
    return home_open(&setup, &r->home, error);
}

static void residence_free(struct residence *r)
{
    for (int i = 0; kept_string(&r->config, i) != NULL; i++)
        heap_free((void *)(uintptr_t)*kept_string(&r->config, i));
    credentials_close(r->credentials);
    transport_choices_fini(&r->choices);
    mutex_fini(&r->lock);
    heap_free(r);
}

static int locks_init(struct residence *r)
{
    int status = mutex_init(&r->lock);
    if (status != HEARTH_OK)
        return status;
    status = transport_choices_init(&r->choices);
    if (status != HEARTH_OK)
        mutex_fini(&r->lock);
    return status;
}

int residence_open(struct opening *o, hearth_node *node, struct error *error)
{
    struct residence *r = heap_alloc(node->heap, 1, sizeof *r);
    if (r == NULL || locks_init(r) != HEARTH_OK) {
        heap_free(r);
        return error_set(error, HEARTH_NO_MEMORY, RANK_NONE, "open: no memory");
    }
    r->node = node;
    list_init(&r->formed);
    list_init(&r->calls);
    int status = secure_before_meeting(o, error);
    r->credentials = o->credentials;
    o->credentials = NULL;
    if (status == HEARTH_OK && keep_config(r, o) != HEARTH_OK)
        status = error_set(error, HEARTH_NO_MEMORY, RANK_NONE, "open: no memory");
    if (status == HEARTH_OK)
        status = open_home(r, o, error);
    if (status != HEARTH_OK) {
        residence_free(r);
        return status;
    }
    node->residence = r;
    return HEARTH_OK;
}

void residence_call_begin(struct residence *r, struct residence_call *call)
{
    atomic_init(&call->stop.asked, false);
    atomic_init(&call->interrupted.asked, false);
    mutex_lock(&r->lock);
    list_push(&r->calls, &call->item);
    mutex_unlock(&r->lock);
}

void residence_call_end(struct residence *r, struct residence_call *call)
{
    mutex_lock(&r->lock);
    list_remove(&call->item);
    mutex_unlock(&r->lock);
}

bool residence_call_again(struct residence *r, struct residence_call *call)
{
    mutex_lock(&r->lock);
    bool interrupted = stop_asked(&call->interrupted);
    atomic_store(&call->stop.asked, interrupted);
    mutex_unlock(&r->lock);
    return interrupted;
}

void residence_links(struct residence *r, struct paper *text)
{
    struct list *item, *after;
    mutex_lock(&r->lock);
    LIST_EACH (item, after, &r->formed) {
        struct formed *f = container_of(item, struct formed, item);
        paper_print(text, "job %s, rank %d of %d:\n", f->formation.job, f->formation.rank, f->formation.size);
        paper_print(text, "%s", f->inner->links != NULL ? f->inner->links : "");
    }
    mutex_unlock(&r->lock);
}

void residence_leave(struct formed *f, bool finished)
{
    if (f == NULL)
        return;
    struct residence *r = f->residence;
    home_unwatch(r->home, &f->watch);
    uint64_t sent = 0, received = 0;
    mutex_lock(&r->lock);
    list_remove(&f->item);
    sum_moved(f, &sent, &received);
    mutex_unlock(&r->lock);
    home_moved(r->home, sent, received);
    f->inner->formed = NULL;
    hearth_close(f->inner);
    home_end(r->home, &f->formation, finished);
    for (int rank = 0; rank < f->formation.size; rank++)
        home_apart(r->home, &f->formation.members[rank]);
    heap_free(f);
}

void residence_close(struct residence *r)
{
    if (r == NULL)
        return;
    while (!list_empty(&r->formed)) /* no other call may be under way: nobody else changes it */
        residence_leave(container_of(r->formed.next, struct formed, item), true);
    home_close(r->home);
    residence_free(r);
}
