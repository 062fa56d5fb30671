/* SPDX-License-Identifier: Apache-2.0 */
/* Opens and closes a node's cluster, and passes it the measures of inner nodes: traffic, lateness, links. */
#include "node/cluster_groups.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "cluster/control_socket.h"
#include "cluster/job_store.h"
#include "node/environment.h"
#include "node/secure.h"
#include "os/host.h"

#define SAMPLES_MAX (4 * VIEW_MEMBERS_MAX) /* members of groups per sample: most nodes are in one group */

/* ---- measures of inner nodes ---- */

/* Under both locks: the changes since the last sample. */
static int sample_formed(struct cluster_group *f, struct cluster_sample *samples)
{
    struct engine *engine = f->inner->engine;
    int count = 0;
    mutex_lock(&f->inner->baton);
    for (int rank = 0; rank < f->spec.size; rank++) {
        uint64_t bytes = 0, busy_ns = 0, heard = engine_peer_heard(engine, rank);
        if (rank == f->spec.rank)
            continue;
        engine_traffic(engine, rank, &bytes, &busy_ns);
        samples[count++] = (struct cluster_sample){
            .peer = f->spec.members[rank],
            .heard = heard != f->heard[rank],
            .bytes = bytes - f->bytes[rank],
            .busy_ns = busy_ns - f->busy_ns[rank],
            .late_ns = engine_skew(engine, rank),
        };
        f->heard[rank] = heard;
        f->bytes[rank] = bytes;
        f->busy_ns[rank] = busy_ns;
    }
    mutex_unlock(&f->inner->baton);
    return count;
}

/* The traffic of the group since the last sample. */
static void sum_moved(struct cluster_group *f, uint64_t *sent, uint64_t *received)
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
    struct cluster_groups *r = arg;
    struct cluster_sample samples[SAMPLES_MAX];
    struct list *item, *after;
    uint64_t sent = 0, received = 0;
    int count = 0;
    mutex_lock(&r->lock);
    LIST_EACH (item, after, &r->cluster_group) {
        struct cluster_group *f = container_of(item, struct cluster_group, item);
        if (count + f->spec.size <= SAMPLES_MAX)
            count += sample_formed(f, samples + count);
        sum_moved(f, &sent, &received);
    }
    mutex_unlock(&r->lock);
    if (count > 0) /* before cluster_open has returned there are no groups */
        cluster_take_samples(r->cluster, samples, count, sent, received);
}

/* "peers": the transport of each group to each of its members, and why. */
static void put_peers(const struct cluster_group *f, struct text_buf *buf, const char **comma)
{
    const struct node_link *roll = f->inner->roll;
    for (int rank = 0; roll && rank < f->spec.size; rank++) {
        if (rank == f->spec.rank)
            continue;
        text_buf_print(buf, "%s{\"job\": ", *comma);
        text_buf_quote(buf, f->spec.job);
        text_buf_print(buf, ", \"rank\": %d, \"id\": \"%s\", \"name\": ", rank, roll[rank].to.id);
        text_buf_quote(buf, roll[rank].to.name);
        text_buf_print(buf, ", \"transport\": \"%s\", \"address\": \"%s\", \"why\": ", roll[rank].transport,
                       roll[rank].to.address);
        text_buf_quote(buf, roll[rank].why);
        text_buf_print(buf, "}");
        *comma = ", ";
    }
}

/* "groups": the ring order of each, and the site of each rank. */
static void put_group(const struct cluster_group *f, struct text_buf *buf, const char **comma)
{
    const struct ring_order *a = &f->arranged;
    int site[VIEW_MEMBERS_MAX];
    text_buf_print(buf, "%s{\"job\": ", *comma);
    text_buf_quote(buf, f->spec.job);
    text_buf_print(buf, ", \"rank\": %d, \"size\": %d, \"order\": [", f->spec.rank, f->spec.size);
    for (int i = 0; i < a->size; i++) {
        text_buf_print(buf, "%s%d", i > 0 ? ", " : "", a->order[i]);
        site[a->order[i]] = a->site[i];
    }
    text_buf_print(buf, "], \"sites\": [");
    for (int i = 0; i < a->size; i++)
        text_buf_print(buf, "%s%d", i > 0 ? ", " : "", site[i]);
    text_buf_print(buf, "]}");
    *comma = ", ";
}

void cluster_groups_arranged(struct cluster_group *f, const hearth_group *group, const struct ring_order *a)
{
    if (group != &f->inner->world)
        return;
    mutex_lock(&f->cluster_groups->lock);
    f->arranged = *a;
    mutex_unlock(&f->cluster_groups->lock);
}

static void write_extra(void *arg, struct text_buf *buf)
{
    struct cluster_groups *r = arg;
    struct list *item, *after;
    const char *comma = "";
    text_buf_print(buf, ", \"peers\": [");
    mutex_lock(&r->lock);
    LIST_EACH (item, after, &r->cluster_group)
        put_peers(container_of(item, struct cluster_group, item), buf, &comma);
    text_buf_print(buf, "], \"groups\": [");
    comma = "";
    LIST_EACH (item, after, &r->cluster_group)
        put_group(container_of(item, struct cluster_group, item), buf, &comma);
    mutex_unlock(&r->lock);
    text_buf_print(buf, "]");
}

/* ---- opening and closing ---- */

static const char **kept_string(struct hearth_config *c, int i)
{
    const char **fields[] = {&c->bind, &c->advertise, &c->transport, &c->site};
    return i < (int)(sizeof fields / sizeof *fields) ? fields[i] : NULL;
}

/* For inner nodes: the given config without the members. */
static int keep_config(struct cluster_groups *r, const struct opening *o)
{
    struct hearth_config given = *o->config;
    r->config = given;
    for (int i = 0; kept_string(&r->config, i); i++)
        *kept_string(&r->config, i) = NULL;
    for (int i = 0; kept_string(&r->config, i); i++) {
        const char *text = *kept_string(&given, i);
        *kept_string(&r->config, i) = text ? heap_strdup(o->heap, text) : NULL;
        if (text && !*kept_string(&r->config, i))
            return HEARTH_NO_MEMORY;
    }
    r->config.secret = r->config.secret_file = r->config.key_file = NULL;
    r->config.seeds = r->config.mdns = r->config.peers = r->config.rendezvous = NULL;
    r->config.discover = "off";
    r->config.health = "default";
    r->config.job = "hearth";
    r->config.codec = r->node->codec;
    r->config.tuning = &r->node->tuning;
    r->config.rank = -1;
    r->config.world_size = 0;
    return HEARTH_OK;
}

static void control_socket_of(const struct opening *o, char *path, size_t size)
{
    char folder[4096] = "";
    const struct hearth_environment *found = environment_of(&o->own);
    if (found->folder[0] != '\0')
        snprintf(folder, sizeof folder, "%s", found->folder);
    else if (host_home(folder, sizeof folder - sizeof "/.config/hearth"))
        snprintf(folder + strlen(folder), sizeof folder - strlen(folder), "/.config/hearth");
    control_socket_place(folder, host_user(), path, size);
}

static int open_cluster(struct cluster_groups *r, struct opening *o, struct error *error)
{
    char control[CONTROL_SOCKET_PLACE_MAX], jobs[SECURE_PATH_MAX + sizeof JOB_STORE_TAIL];
    control_socket_of(o, control, sizeof control);
    bool kept = secure_key_path(o, jobs);
    snprintf(jobs + strlen(jobs), sizeof jobs - strlen(jobs), "%s", JOB_STORE_TAIL);
    struct cluster_setup setup = {
        .heap = r->node->heap,
        .log = o->log,
        .credentials = r->credentials,
        .helper = o->own.mdns,
        .seeds = o->own.seeds,
        .bind = o->own.bind,
        .advertise = o->own.advertise,
        .control = control,
        .jobs_file = kept ? jobs : NULL,
        .port = o->own.port,
        .flags = o->own.roles,
        .health = health_preset_find(o->own.health),
        .cluster = secret_name(credentials_secret(r->credentials)),
        .transport = o->own.transport,
        .sample = take_samples,
        .extra = write_extra,
        .arg = r,
        .connect_timeout_ns = (uint64_t)tuning_of(&o->own)->connect_timeout_ms * NS_PER_MS,
        .deadline_ns = o->deadline_ns,
    };
    return cluster_open(&setup, &r->cluster, error);
}

static void cluster_groups_free(struct cluster_groups *r)
{
    for (int i = 0; kept_string(&r->config, i); i++)
        heap_free((void *)(uintptr_t)*kept_string(&r->config, i));
    credentials_close(r->credentials);
    transport_choices_fini(&r->choices);
    mutex_fini(&r->lock);
    heap_free(r);
}

static int locks_init(struct cluster_groups *r)
{
    int status = mutex_init(&r->lock);
    if (status != HEARTH_OK)
        return status;
    status = transport_choices_init(&r->choices);
    if (status != HEARTH_OK)
        mutex_fini(&r->lock);
    return status;
}

int cluster_groups_open(struct opening *o, hearth_node *node, struct error *error)
{
    struct cluster_groups *r = heap_alloc(node->heap, 1, sizeof *r);
    if (!r || locks_init(r) != HEARTH_OK) {
        heap_free(r);
        return error_set(error, HEARTH_NO_MEMORY, RANK_NONE, "open: no memory");
    }
    r->node = node;
    list_init(&r->cluster_group);
    list_init(&r->calls);
    int status = secure_before_meeting(o, error);
    r->credentials = o->credentials;
    o->credentials = NULL;
    if (status == HEARTH_OK && keep_config(r, o) != HEARTH_OK)
        status = error_set(error, HEARTH_NO_MEMORY, RANK_NONE, "open: no memory");
    if (status == HEARTH_OK)
        status = open_cluster(r, o, error);
    if (status != HEARTH_OK) {
        cluster_groups_free(r);
        return status;
    }
    node->cluster_groups = r;
    return HEARTH_OK;
}

void cluster_groups_call_begin(struct cluster_groups *r, struct cluster_groups_call *call)
{
    atomic_init(&call->stop.asked, false);
    atomic_init(&call->interrupted.asked, false);
    mutex_lock(&r->lock);
    list_push(&r->calls, &call->item);
    mutex_unlock(&r->lock);
}

void cluster_groups_call_end(struct cluster_groups *r, struct cluster_groups_call *call)
{
    mutex_lock(&r->lock);
    list_remove(&call->item);
    mutex_unlock(&r->lock);
}

bool cluster_groups_call_again(struct cluster_groups *r, struct cluster_groups_call *call)
{
    mutex_lock(&r->lock);
    bool interrupted = stop_asked(&call->interrupted);
    atomic_store(&call->stop.asked, interrupted);
    mutex_unlock(&r->lock);
    return interrupted;
}

void cluster_groups_links(struct cluster_groups *r, struct text_buf *text)
{
    struct list *item, *after;
    mutex_lock(&r->lock);
    LIST_EACH (item, after, &r->cluster_group) {
        struct cluster_group *f = container_of(item, struct cluster_group, item);
        text_buf_print(text, "job %s, rank %d of %d:\n", f->spec.job, f->spec.rank, f->spec.size);
        text_buf_print(text, "%s", f->inner->links ? f->inner->links : "");
    }
    mutex_unlock(&r->lock);
}

void cluster_groups_leave(struct cluster_group *f, bool finished)
{
    if (!f)
        return;
    struct cluster_groups *r = f->cluster_groups;
    cluster_unwatch(r->cluster, &f->watch);
    uint64_t sent = 0, received = 0;
    mutex_lock(&r->lock);
    list_remove(&f->item);
    sum_moved(f, &sent, &received);
    mutex_unlock(&r->lock);
    cluster_take_samples(r->cluster, NULL, 0, sent, received);
    f->inner->cluster_group = NULL;
    hearth_node_close(f->inner);
    cluster_end(r->cluster, &f->spec, finished);
    heap_free(f);
}

void cluster_groups_close(struct cluster_groups *r)
{
    if (!r)
        return;
    while (!list_empty(&r->cluster_group)) /* no other call may run: the list does not change */
        cluster_groups_leave(container_of(r->cluster_group.next, struct cluster_group, item), true);
    cluster_close(r->cluster);
    cluster_groups_free(r);
}
