/* SPDX-License-Identifier: Apache-2.0 */
/* Calls of other threads into the cluster: waiting for members, requesting jobs, events. */
#include <stdio.h>
#include <string.h>

#include "cluster/cluster_state.h"
#include "os/clock.h"

#define NAMED_MAX    4                /* nodes that a text names */
#define LOOK_NS      NS_PER_S         /* interval of updates to a waiting request */
#define UNREACHED_NS (600 * NS_PER_S) /* how long an unreached member is kept apart */

/* ---- waiting ---- */

typedef bool ready_fn(struct cluster *cluster, void *arg);

static bool patience_over(const struct cluster_patience *patience)
{
    return clock_real() >= patience->deadline_ns || stop_asked(patience->stop);
}

/* Waits until `ready` returns true, or the patience ends. Called and returns with the lock. False: it has
 * ended, or no descriptor is left to wait on. */
static bool wait_until(struct cluster *cluster, ready_fn *ready, void *arg,
                       const struct cluster_patience *patience)
{
    struct cluster_waiter waiter;
    bool done = ready(cluster, arg);

    if (done || patience_over(patience) || event_open(&waiter.event))
        return done;
    list_push(&cluster->waiters, &waiter.item);
    while (!done && !patience_over(patience)) {
        struct sock_wait item = {.fd = waiter.event.read_fd, .want_recv = true};
        mutex_unlock(&cluster->lock);
        sock_wait(&item, 1, patience->deadline_ns);
        mutex_lock(&cluster->lock);
        event_clear(&waiter.event);
        done = ready(cluster, arg);
    }
    list_remove(&waiter.item);
    event_close(&waiter.event);
    return done;
}

/* The status of a wait that has ended without success, and the first word of its text. */
static int impatient(const struct cluster_patience *patience, const char **word)
{
    bool stopped = stop_asked(patience->stop);

    *word = stopped ? "interrupted; " : "";
    return stopped ? HEARTH_CANCELLED : HEARTH_TIMEOUT;
}

/* ---- members ---- */

static bool enough(struct cluster *cluster, void *arg)
{
    const int *others = arg;

    return consensus_state(cluster->consensus) == CONSENSUS_MEMBER &&
           consensus_view(cluster->consensus)->size > *others;
}

/* Why sighted nodes are not members; names the first few. */
static void why_missing(struct cluster *cluster, struct text_buf *buf)
{
    struct peer_set_state list[PEER_SET_MAX];
    char why[CLUSTER_TEXT_MAX], addr[SOCK_TEXT_MAX];
    int count = peer_set_list(cluster->peer_set, list, PEER_SET_MAX), named = 0;

    for (int i = 0; i < count && named < NAMED_MAX; i++) {
        if (list[i].linked)
            consensus_why_not(cluster->consensus, &list[i].id, why, sizeof why);
        else
            snprintf(why, sizeof why, "%.150s", list[i].why);
        if (why[0] == '\0')
            continue;
        sock_addr_text(&list[i].addr, addr, sizeof addr);
        text_buf_print(buf, "%s%s: %s", named++ > 0 ? "; " : ". Of those seen, ", addr, why);
    }
    char found[CLUSTER_TEXT_MAX];
    if (named == 0 && !finder_text(cluster->finder, found, sizeof found))
        text_buf_print(buf, ". %s", found);
    else if (named == 0)
        text_buf_print(buf, ". No other node of this cluster was seen (hearth doctor checks why)");
}

int cluster_wait(struct cluster *cluster, int others, const struct cluster_patience *patience,
                 struct error *error)
{
    const char *word;
    char text[ERROR_TEXT_MAX], why[CONSENSUS_TEXT_MAX];
    struct text_buf buf = text_buf_of(text, sizeof text);

    mutex_lock(&cluster->lock);
    bool done = wait_until(cluster, enough, &others, patience);
    int status = impatient(patience, &word);
    if (!done) {
        enum consensus_state state = consensus_state(cluster->consensus);
        text_buf_print(&buf, "wait_for_peers: %s%d of %d other members are there%s%s", word,
                       consensus_view(cluster->consensus)->size - 1, others,
                       state != CONSENSUS_MEMBER ? ", and this node is " : "",
                       state != CONSENSUS_MEMBER ? consensus_state_name(state) : "");
        if (state == CONSENSUS_STRANDED) {
            consensus_why_stranded(cluster->consensus, why, sizeof why);
            text_buf_print(&buf, " (%s)", why);
        }
        why_missing(cluster, &buf);
    }
    mutex_unlock(&cluster->lock);
    return done ? HEARTH_OK : error_set(error, status, RANK_NONE, "%s", text);
}

/* ---- jobs ---- */

static bool answered(struct cluster *cluster, void *arg)
{
    const struct cluster_request *request = arg;
    (void)cluster;
    return !request->formed || request->refused;
}

void cluster_unreached(struct cluster *cluster, const struct identity *member)
{
    struct cluster_unreached *place = cluster->unreached;

    mutex_lock(&cluster->lock);
    for (int i = 0; i < JOB_UNREACHED_MAX; i++) {
        struct cluster_unreached *at = &cluster->unreached[i];
        bool same = identity_equal(&at->id, member), kept = identity_equal(&place->id, member);
        if (same || (!kept && at->until_ns < place->until_ns)) /* else the oldest is replaced */
            place = at;
    }
    *place = (struct cluster_unreached){*member, clock_real() + UNREACHED_NS};
    mutex_unlock(&cluster->lock);
}

/* Updates the record and the unreached members of a request; both may change while it waits. Under the
 * lock. */
static int explain_request(struct cluster *cluster, const char *job, const struct view *ran,
                           struct error *error)
{
    struct identity apart[JOB_UNREACHED_MAX];
    uint64_t now_ns = clock_real();
    int count = 0;

    for (int i = 0; i < JOB_UNREACHED_MAX; i++)
        if (now_ns < cluster->unreached[i].until_ns)
            apart[count++] = cluster->unreached[i].id;
    jobs_unreached(cluster->jobs, job, apart, count, now_ns);
    if (jobs_remember(cluster->jobs, job, ran, now_ns))
        return error_set(error, HEARTH_NO_MEMORY, RANK_NONE, "form \"%s\": no memory", job);
    event_signal(&cluster->wake);
    return HEARTH_OK;
}

/* The user may delete the record meanwhile (`recalled`: there is one), and an unreached member may connect:
 * both are checked at intervals. */
static int wait_for_answer(struct cluster *cluster, struct cluster_request *request,
                           const struct cluster_patience *patience, struct view *ran, bool recalled,
                           struct error *error)
{
    int status = HEARTH_OK;

    while (!status) {
        uint64_t look_ns = clock_real() + LOOK_NS;
        struct cluster_patience slice = {look_ns < patience->deadline_ns ? look_ns : patience->deadline_ns,
                                         patience->stop};
        bool done = wait_until(cluster, answered, request, &slice);
        if (done || patience_over(patience) || clock_real() < look_ns)
            break;
        mutex_unlock(&cluster->lock);
        if (recalled)
            status = job_store_recall(cluster->store, request->job, ran, &recalled, error);
        mutex_lock(&cluster->lock);
        if (!status)
            status = explain_request(cluster, request->job, recalled ? ran : NULL, error);
    }
    return status;
}

/* A formation with a guest is short and needs no record: a measurement, a demo. */
static bool has_guest(const struct view *view, const struct group_spec *spec)
{
    for (int rank = 0; rank < spec->size; rank++) {
        int at = view_find(view, &spec->members[rank]);
        if (at >= 0 && view->members[at].features & PEER_GUEST)
            return true;
    }
    return false;
}

/* The outcome of a request. Under the lock. */
static int conclude(struct cluster *cluster, const struct cluster_request *request,
                    const struct cluster_patience *patience, struct error *error)
{
    char why[JOB_TEXT_MAX];
    const char *word;

    if (request->refused)
        return error_because(error, request->refused, HEARTH_MISMATCH, RANK_NONE, "form \"%s\": %s",
                             request->job, request->text);
    if (!request->formed)
        return HEARTH_OK;
    jobs_why_not(cluster->jobs, request->job, why, sizeof why);
    int status = impatient(patience, &word);
    return error_set(error, status, RANK_NONE, "form \"%s\": %s%s", request->job, word, why);
}

/* Waits until the request is answered, or given up. Under the lock. */
static int ask(struct cluster *cluster, struct cluster_request *request,
               const struct cluster_patience *patience, struct view *ran, bool recalled, struct error *error)
{
    list_push(&cluster->requests, &request->item);
    int status = explain_request(cluster, request->job, recalled ? ran : NULL, error);
    if (!status)
        status = wait_for_answer(cluster, request, patience, ran, recalled, error);
    list_remove(&request->item);
    if (!status || answered(cluster, request))
        status = conclude(cluster, request, patience, error);
    if (status) {
        jobs_withdraw(cluster->jobs, request->job, clock_real());
        event_signal(&cluster->wake);
    }
    return status;
}

int cluster_form(struct cluster *cluster, const struct job_request *given, uint64_t done,
                 const struct cluster_patience *patience, struct group_spec *out, struct error *error)
{
    struct cluster_request request = {.formed = out};
    struct view *ran = heap_alloc_raw(cluster->heap, 1, sizeof *ran);
    bool recalled;

    if (!ran)
        return error_set(error, HEARTH_NO_MEMORY, RANK_NONE, "form \"%s\": no memory", given->job);
    snprintf(request.job, sizeof request.job, "%s", given->job);
    int status = job_store_recall(cluster->store, request.job, ran, &recalled, error);
    if (!status) {
        mutex_lock(&cluster->lock);
        status = jobs_request(cluster->jobs, given, done, clock_real(), error);
        if (!status)
            status = ask(cluster, &request, patience, ran, recalled, error);
        mutex_unlock(&cluster->lock);
    }
    heap_free(ran);
    return status;
}

int cluster_begun(struct cluster *cluster, const struct group_spec *spec, struct error *error)
{
    struct view *view = heap_alloc_raw(cluster->heap, 1, sizeof *view);

    if (!view)
        return error_set(error, HEARTH_NO_MEMORY, RANK_NONE, "form \"%s\": no memory", spec->job);
    mutex_lock(&cluster->lock);
    *view = *consensus_view(cluster->consensus);
    mutex_unlock(&cluster->lock);
    job_record_mark(view, spec->members, spec->size);
    if (!has_guest(view, spec))
        job_store_keep(cluster->store, spec->job, view);
    heap_free(view);
    return HEARTH_OK;
}

void cluster_end(struct cluster *cluster, const struct group_spec *spec, bool finished)
{
    mutex_lock(&cluster->lock);
    finished &= jobs_whole(cluster->jobs, spec->id);
    jobs_end(cluster->jobs, spec->id, clock_real());
    for (int rank = 0; rank < spec->size; rank++)
        consensus_works(cluster->consensus, &spec->members[rank], false, 0);
    mutex_unlock(&cluster->lock);
    event_signal(&cluster->wake);
    if (finished)
        job_store_drop(cluster->store, spec->job);
}

void cluster_watch(struct cluster *cluster, struct cluster_watch *watch)
{
    mutex_lock(&cluster->lock);
    list_push(&cluster->watches, &watch->item);
    bool over = !jobs_takes_part(cluster->jobs, watch->spec);
    uint64_t lost = jobs_lost(cluster->jobs, watch->spec);
    mutex_unlock(&cluster->lock);
    if (over)
        watch->ended(watch->arg, lost, "", "it ended while its members connected");
}

void cluster_unwatch(struct cluster *cluster, struct cluster_watch *watch)
{
    mutex_lock(&cluster->lock);
    list_remove(&watch->item);
    mutex_unlock(&cluster->lock);
}

void cluster_take_samples(struct cluster *cluster, const struct cluster_sample *samples, int count,
                          uint64_t sent, uint64_t received)
{
    uint64_t now_ns = clock_real();

    mutex_lock(&cluster->lock);
    cluster->groups_sent += sent;
    cluster->groups_received += received;
    for (int i = 0; i < count; i++) {
        const struct cluster_sample *sample = &samples[i];
        if (sample->heard)
            consensus_heard(cluster->consensus, &sample->peer, now_ns);
        probes_traffic(cluster->probes, &sample->peer, sample->bytes, sample->busy_ns);
        consensus_works(cluster->consensus, &sample->peer, true, sample->late_ns);
    }
    mutex_unlock(&cluster->lock);
}

bool cluster_best_addr(struct cluster *cluster, const struct identity *peer, struct sock_addr *addr)
{
    mutex_lock(&cluster->lock);
    bool known = probes_best_addr(cluster->probes, peer, addr);
    mutex_unlock(&cluster->lock);
    return known;
}

bool cluster_arrange(struct cluster *cluster, const struct identity *members, int count, const int *now,
                     struct ring_order *out)
{
    int index[VIEW_MEMBERS_MAX];
    uint64_t changed, hosts[VIEW_MEMBERS_MAX];

    mutex_lock(&cluster->lock);
    const struct view *view = consensus_view(cluster->consensus);
    const struct topology *t = probes_links(cluster->probes, &changed);
    bool known = t->instance == view->instance && t->epoch == view->epoch;
    for (int i = 0; known && i < count; i++) {
        index[i] = view_find(view, &members[i]);
        known = index[i] >= 0;
        hosts[i] = known ? view->members[index[i]].host_id : 0;
    }
    known = known && topology_rearrange(t, index, hosts, count, now, out);
    mutex_unlock(&cluster->lock);
    return known;
}

/* ---- events ---- */

bool cluster_next_event(struct cluster *cluster, uint64_t *place, struct hearth_event *event)
{
    mutex_lock(&cluster->lock);
    bool some = event_log_next(&cluster->events, place, event);
    mutex_unlock(&cluster->lock);
    return some;
}

static bool has_event(struct cluster *cluster, void *arg)
{
    const uint64_t *place = arg;

    return cluster->events.count > *place;
}

void cluster_wait_event(struct cluster *cluster, uint64_t place, const struct cluster_patience *patience)
{
    mutex_lock(&cluster->lock);
    (void)wait_until(cluster, has_event, &place, patience);
    mutex_unlock(&cluster->lock);
}

void cluster_on_event(struct cluster *cluster, hearth_event_fn *fn, void *arg)
{
    mutex_lock(&cluster->lock);
    cluster->on_event = fn;
    cluster->on_event_arg = arg;
    mutex_unlock(&cluster->lock);
}

/* ---- texts ---- */

int64_t cluster_json(struct cluster *cluster, char *text, size_t size)
{
    struct text_buf buf = text_buf_of(text, size);

    mutex_lock(&cluster->lock);
    cluster_write_json(cluster, &buf);
    mutex_unlock(&cluster->lock);
    return (int64_t)buf.len;
}

int64_t cluster_metrics(struct cluster *cluster, char *text, size_t size)
{
    struct text_buf buf = text_buf_of(text, size);

    mutex_lock(&cluster->lock);
    cluster_write_metrics(cluster, &buf);
    mutex_unlock(&cluster->lock);
    return (int64_t)buf.len;
}
