/* SPDX-License-Identifier: Apache-2.0 */
/* One round of the cluster's thread: passes input to the state machines, sends their messages, and delivers
 * their events. */
#include <stdio.h>
#include <string.h>

#include "cluster/cluster_state.h"
#include "cluster/gossip.h"

#define GOSSIP_NS   (10 * NS_PER_S)
#define GOSSIP_SOON (100 * NS_PER_MS) /* so that one message covers several changes */
#define NEWS_MAX    4096              /* per round */
#define TRUST_NS    (500 * NS_PER_MS)

/* ---- peers ---- */

static void link_up(struct cluster *cluster, const struct peer_info *info, uint64_t now_ns)
{
    const struct health *known = consensus_health(cluster->consensus, &info->id);

    if (!known || !known->linked) {
        cluster->links_made++;
        cluster->links_again += known && known->answered > 0;
    }
    for (int i = 0; i < JOB_UNREACHED_MAX; i++) /* by a new path, or at a new address */
        if (identity_equal(&cluster->unreached[i].id, &info->id))
            cluster->unreached[i].until_ns = 0;
    consensus_linked(cluster->consensus, info, now_ns);
    if (!cluster->gossip_due)
        cluster->gossip_ns = now_ns + GOSSIP_SOON;
    cluster->gossip_due = true;
}

static void link_down(struct cluster *cluster, const struct identity *id, uint64_t now_ns)
{
    cluster->links_lost++;
    consensus_unlinked(cluster->consensus, id, PARTING_BROKE, now_ns);
}

/* ---- gossip ---- */

static void gossip(struct cluster *cluster, uint64_t now_ns)
{
    const struct peer_info *all[PEER_SET_MAX];
    uint8_t message[GOSSIP_LEN_MAX];
    int count = 0, place = 0;

    if (now_ns < cluster->gossip_ns)
        return;
    cluster->gossip_ns = now_ns + GOSSIP_NS;
    cluster->gossip_due = false;
    while (count < PEER_SET_MAX && (all[count] = consensus_next_linked(cluster->consensus, &place)))
        count++;
    size_t len = gossip_encode(all, count, message, sizeof message);
    for (int i = 0; len > 0 && i < count; i++)
        outbox_put(&cluster->outbox, &all[i]->id, MESSAGE_PEERS, message, len);
}

struct gossip_ear {
    struct cluster *cluster;
    uint64_t now_ns;
};

static void hear_peer(void *arg, const struct identity *id, const struct sock_addr *addr)
{
    const struct gossip_ear *ear = arg;

    if (!identity_equal(id, &peer_set_self(ear->cluster->peer_set)->id))
        peer_set_known_addr(ear->cluster->peer_set, addr, id, true, ear->now_ns);
}

/* ---- sightings ---- */

static void dial_found(struct cluster *cluster, uint64_t now_ns)
{
    const uint8_t *space = secret_namespace(credentials_secret(cluster->setup.credentials));
    uint64_t changed;
    int count, seed_count;
    const struct sighting *found = finder_sightings(cluster->finder, &count, &changed);
    const struct sock_addr *seeds = finder_seeds(cluster->finder, &seed_count);

    for (int i = 0; i < seed_count; i++)
        peer_set_known_addr(cluster->peer_set, &seeds[i], NULL, false, now_ns);
    if (changed == cluster->sightings_told)
        return;
    cluster->sightings_told = changed;
    for (int i = 0; i < count; i++)
        if (memcmp(found[i].space, space, NAMESPACE_LEN) == 0)
            peer_set_known_addr(cluster->peer_set, &found[i].addr, &found[i].id, false, now_ns);
}

/* ---- messages ---- */

static int route(struct cluster *cluster, const struct received *message, uint64_t now_ns, const char **what)
{
    struct gossip_ear ear = {cluster, now_ns};

    switch (message->kind) {
    case MESSAGE_LEAVE:
        jobs_left(cluster->jobs, message->from);
        peer_set_left(cluster->peer_set, message->from);
        return consensus_input(cluster->consensus, message, now_ns, what);
    case MESSAGE_BEAT:
    case MESSAGE_VIEW:
    case MESSAGE_CALL:
    case MESSAGE_VOTE:
    case MESSAGE_PROPOSE:
    case MESSAGE_ACCEPT:
    case MESSAGE_DISSOLVE:
        return consensus_input(cluster->consensus, message, now_ns, what);
    case MESSAGE_REPORT:
    case MESSAGE_FORM:
    case MESSAGE_BOARD:
        return jobs_input(cluster->jobs, message, now_ns, what);
    case MESSAGE_PROBE:
    case MESSAGE_MEASURED:
    case MESSAGE_LINKS:
        return probes_input(cluster->probes, message, now_ns, what);
    case MESSAGE_PEERS:
        *what = "peers";
        return gossip_decode(message->payload, message->len, hear_peer, &ear);
    default:
        *what = "not a message of the cluster";
        return HEARTH_PROTOCOL;
    }
}

static void take_message(struct cluster *cluster, const struct peer_news *news, uint64_t now_ns)
{
    const struct received message = {&news->info.id, news->message, news->payload, news->len};
    const char *what = "?";
    char why[CLUSTER_TEXT_MAX];

    consensus_heard(cluster->consensus, &news->info.id, now_ns);
    if (route(cluster, &message, now_ns, &what) != HEARTH_PROTOCOL)
        return; /* without memory the sender repeats it */
    snprintf(why, sizeof why, "it sent a message (kind %d) that breaks the protocol: %s", news->message,
             what);
    peer_set_drop(cluster->peer_set, &news->info.id, why);
}

static void take_news(struct cluster *cluster, uint64_t now_ns)
{
    struct peer_news news;

    for (int i = 0; i < NEWS_MAX && peer_news(cluster->peer_set, &news); i++) {
        switch (news.kind) {
        case PEER_LINKED:
        case PEER_AGAIN:
            link_up(cluster, &news.info, now_ns);
            break;
        case PEER_LOST:
            link_down(cluster, &news.info.id, now_ns);
            break;
        case PEER_MESSAGE:
            take_message(cluster, &news, now_ns);
            break;
        case PEER_PROBE:
            probes_take(cluster->probes, news.stream, &news.info.id, news.dialled, now_ns);
            break;
        }
    }
}

void cluster_flush(struct cluster *cluster)
{
    struct outbox_message *message;

    while ((message = outbox_take(&cluster->outbox))) {
        (void)peer_set_send(cluster->peer_set, &message->to, message->kind, message->payload, message->len);
        heap_free(message);
    }
}

/* ---- events ---- */

static void tell_events(struct cluster *cluster)
{
    struct hearth_event event;

    while (event_log_next(&cluster->events, &cluster->events_told, &event))
        if (cluster->on_event)
            cluster->on_event(cluster->on_event_arg, &event);
}

static void end_group_spec(struct cluster *cluster, const struct job_news *news)
{
    struct list *item, *after;
    char who[PEER_NAME_MAX + NODE_ID_SHORT];

    identity_text(&news->who, who, sizeof who);
    LIST_EACH (item, after, &cluster->watches) {
        const struct cluster_watch *watch = container_of(item, struct cluster_watch, item);
        if (watch->spec == news->id)
            watch->ended(watch->arg, news->lost, who, news->text);
    }
}

static void answer_request(struct cluster *cluster, const struct job_news *news)
{
    struct list *item, *after;

    LIST_EACH (item, after, &cluster->requests) {
        struct cluster_request *request = container_of(item, struct cluster_request, item);
        if (strcmp(request->job, news->job) != 0 || !request->formed)
            continue;
        if (news->kind == JOB_FORMED) {
            *request->formed = *news->spec;
            request->formed = NULL;
        } else {
            request->refused = news->reason;
            snprintf(request->text, sizeof request->text, "%s", news->text);
        }
    }
}

static void tell_jobs(struct cluster *cluster)
{
    struct job_news news;

    while (jobs_news(cluster->jobs, &news)) {
        struct hearth_event *event;
        switch (news.kind) {
        case JOB_FORMED:
        case JOB_REFUSED:
            answer_request(cluster, &news);
            break;
        case JOB_ENDED:
            end_group_spec(cluster, &news);
            break;
        case JOB_WANTED:
            event = event_log_add(&cluster->events, HEARTH_EVENT_JOB_WANTED, &news.who);
            snprintf(event->text, sizeof event->text, "%s", news.job);
            break;
        }
    }
}

/* ---- trust and silence ---- */

/* A revoked key loses its connection, and with it its membership. */
static void watch_trust(struct cluster *cluster, uint64_t now_ns)
{
    struct trust_list *list = credentials_trust(cluster->setup.credentials);
    const struct peer_info *peer;
    struct error why;
    int place = 0;

    if (!list || now_ns < cluster->trust_ns)
        return;
    cluster->trust_ns = now_ns + TRUST_NS;
    int status = trust_list_refresh(list, &why);
    if (status != HEARTH_OK && status != HEARTH_PENDING && !cluster->trust_told)
        log_write(&cluster->log, HEARTH_LOG_WARN, "HEARTH-TRUST",
                  "the trust list cannot be read, the last one stays in force: %s", why.text);
    cluster->trust_told = status != HEARTH_OK && status != HEARTH_PENDING;
    if (status != HEARTH_OK)
        return;
    while ((peer = consensus_next_linked(cluster->consensus, &place))) {
        enum trust_verdict verdict = trust_list_judge(list, &peer->id.node);
        if (verdict != TRUST_YES)
            peer_set_drop(cluster->peer_set, &peer->id, trust_verdict_text(verdict));
    }
}

/* A connection over a broken path takes minutes to end by itself. A peer that is back, by this path or
 * another, connects again. */
static void drop_silent(struct cluster *cluster)
{
    const struct peer_info *peer;
    int place = 0;

    while ((peer = consensus_next_linked(cluster->consensus, &place)))
        if (consensus_health(cluster->consensus, &peer->id)->state == HEALTH_DEAD)
            peer_set_drop(cluster->peer_set, &peer->id, "it was silent for too long");
}

/* ---- between the state machines ---- */

static void spare_busy(struct cluster *cluster, uint64_t now_ns)
{
    struct identity busy[VIEW_MEMBERS_MAX];

    probes_spare(cluster->probes, busy, jobs_taking_part(cluster->jobs, busy), now_ns);
}

/* A recorded job runs in the newest view: a quorum of that one may go on with it. */
static void remember_view(struct cluster *cluster, const struct view *view)
{
    char job[JOB_NAME_MAX];
    uint64_t instance;

    for (int i = 0; job_store_kept(cluster->store, i, job, &instance); i++)
        if (instance == view->instance || jobs_runs(cluster->jobs, job))
            job_store_keep_soon(cluster->store, job, view);
}

static void tell_machines(struct cluster *cluster, uint64_t now_ns)
{
    const struct view *view = consensus_view(cluster->consensus);
    bool leads = consensus_leads(cluster->consensus);
    bool quorum = consensus_state(cluster->consensus) == CONSENSUS_MEMBER;
    uint64_t links = 0;

    if (view->instance != cluster->told_instance || view->epoch != cluster->told_epoch ||
        leads != cluster->told_leads || quorum != cluster->told_quorum) {
        jobs_view(cluster->jobs, view, leads, quorum, now_ns);
        probes_view(cluster->probes, view, leads, now_ns);
        if (quorum && (view->instance != cluster->told_instance || view->epoch != cluster->told_epoch))
            remember_view(cluster, view);
        cluster->told_instance = view->instance;
        cluster->told_epoch = view->epoch;
        cluster->told_leads = leads;
        cluster->told_quorum = quorum;
    }
    if (consensus_state(cluster->consensus) == CONSENSUS_STRANDED)
        jobs_stranded(cluster->jobs, now_ns);
    const struct topology *table = probes_links(cluster->probes, &links);
    if (leads && links != cluster->links_told) {
        jobs_links(cluster->jobs, table);
        cluster->links_told = links;
    }
    jobs_measuring(cluster->jobs, leads && !probes_sketched(cluster->probes));
    spare_busy(cluster, now_ns);
}

/* Before any other input, and also while joining another instance: a busy one does not join. */
static void tell_work(struct cluster *cluster, uint64_t now_ns)
{
    consensus_set_begun(cluster->consensus, jobs_running(cluster->jobs));
    consensus_set_busy(cluster->consensus, jobs_busy(cluster->jobs, now_ns));
}

/* Round trips measured by heartbeats, for the topology. */
static void tell_round_trips(struct cluster *cluster, uint64_t now_ns)
{
    const struct peer_info *self = peer_set_self(cluster->peer_set), *peer;
    int place = 0;

    if (now_ns < cluster->measure_ns)
        return;
    while ((peer = consensus_next_linked(cluster->consensus, &place))) {
        const struct health *h = consensus_health(cluster->consensus, &peer->id);
        if (h->latency_ns == 0)
            continue;
        uint64_t beats = h->answered + h->failed;
        uint32_t loss_ppm = beats > 0 ? (uint32_t)(h->failed * 1000000 / beats) : 0;
        probes_round_trip(cluster->probes, &peer->id, h->least_latency_ns, loss_ppm,
                          peer->host_id == self->host_id ? PATH_SAME_HOST : PATH_UNKNOWN);
    }
}

void cluster_pump(struct cluster *cluster, uint64_t now_ns)
{
    finder_pump(cluster->finder, now_ns);
    cluster_scan_network(cluster, now_ns);
    watch_trust(cluster, now_ns);
    dial_found(cluster, now_ns);
    peer_set_pump(cluster->peer_set, now_ns);
    take_news(cluster, now_ns);
    consensus_tick(cluster->consensus, now_ns);
    drop_silent(cluster);
    tell_machines(cluster, now_ns);
    tell_round_trips(cluster, now_ns);
    jobs_tick(cluster->jobs, now_ns);
    tell_work(cluster, now_ns);
    probes_pump(cluster->probes, now_ns);
    gossip(cluster, now_ns);
    tell_jobs(cluster);
    tell_events(cluster);
    cluster_flush(cluster);
}
