/* SPDX-License-Identifier: Apache-2.0 */
/* Calls of other threads into the home: waiting for members, wishing for jobs, news. */
#include <stdio.h>
#include <string.h>

#include "home/inside.h"
#include "os/clock.h"

#define NAMED_MAX    4                /* nodes that a text names */
#define LOOK_NS      NS_PER_S         /* what a wish tells is looked at so often */
#define UNREACHED_NS (600 * NS_PER_S) /* a member that we could not be joined with is not tried for so long */

/* ---- waiting ---- */

typedef bool ready_fn(struct home *home, void *arg);

static bool patience_over(const struct home_patience *patience)
{
    return clock_real() >= patience->deadline_ns || stop_asked(patience->stop);
}

/* Until `ready` says so, or the patience is over. Called and returns with the lock. False: it is over, or the
 * system has no descriptor to wait at. */
static bool wait_until(struct home *home, ready_fn *ready, void *arg, const struct home_patience *patience)
{
    struct home_waiter waiter;
    bool done = ready(home, arg);

    if (done || patience_over(patience) || event_open(&waiter.event))
        return done;
    list_push(&home->waiters, &waiter.item);
    while (!done && !patience_over(patience)) {
        struct sock_wait item = {.fd = waiter.event.read_fd, .want_recv = true};
        mutex_unlock(&home->lock);
        sock_wait(&item, 1, patience->deadline_ns);
        mutex_lock(&home->lock);
        event_clear(&waiter.event);
        done = ready(home, arg);
    }
    list_remove(&waiter.item);
    event_close(&waiter.event);
    return done;
}

/* Why a call ends without what it waited for, and how its text begins then. */
static int impatient(const struct home_patience *patience, const char **word)
{
    bool stopped = stop_asked(patience->stop);

    *word = stopped ? "interrupted; " : "";
    return stopped ? HEARTH_CANCELLED : HEARTH_TIMEOUT;
}

/* ---- members ---- */

static bool enough(struct home *home, void *arg)
{
    const int *others = arg;

    return assembly_state(home->assembly) == ASSEMBLY_MEMBER &&
           assembly_census(home->assembly)->size > *others;
}

/* Why sighted nodes are not members, the first few of them. */
static void why_missing(struct home *home, struct paper *paper)
{
    struct fellows_state list[FELLOWS_MAX];
    char why[HOME_TEXT_MAX], addr[SOCK_TEXT_MAX];
    int count = fellows_list(home->fellows, list, FELLOWS_MAX), named = 0;

    for (int i = 0; i < count && named < NAMED_MAX; i++) {
        if (list[i].linked)
            assembly_why_not(home->assembly, &list[i].id, why, sizeof(why));
        else
            snprintf(why, sizeof(why), "%.150s", list[i].why);
        if (why[0] == '\0')
            continue;
        sock_addr_text(&list[i].addr, addr, sizeof(addr));
        paper_print(paper, "%s%s: %s", named++ > 0 ? "; " : ". Of those seen, ", addr, why);
    }
    char found[HOME_TEXT_MAX];
    if (named == 0 && !finder_text(home->finder, found, sizeof(found)))
        paper_print(paper, ". %s", found);
    else if (named == 0)
        paper_print(paper, ". No other node of this cluster was seen (hearth doctor finds out why)");
}

int home_wait(struct home *home, int others, const struct home_patience *patience, struct error *error)
{
    const char *word;
    char text[ERROR_TEXT_MAX], why[ASSEMBLY_TEXT_MAX];
    struct paper paper = paper_of(text, sizeof(text));

    mutex_lock(&home->lock);
    bool done = wait_until(home, enough, &others, patience);
    int status = impatient(patience, &word);
    if (!done) {
        enum assembly_state state = assembly_state(home->assembly);
        paper_print(&paper, "wait_for_peers: %s%d of %d other members are there%s%s", word,
                    assembly_census(home->assembly)->size - 1, others,
                    state != ASSEMBLY_MEMBER ? ", and this node is " : "",
                    state != ASSEMBLY_MEMBER ? assembly_state_name(state) : "");
        if (state == ASSEMBLY_STRANDED) {
            assembly_why_stranded(home->assembly, why, sizeof(why));
            paper_print(&paper, " (%s)", why);
        }
        why_missing(home, &paper);
    }
    mutex_unlock(&home->lock);
    return done ? HEARTH_OK : error_set(error, status, RANK_NONE, "%s", text);
}

/* ---- jobs ---- */

static bool answered(struct home *home, void *arg)
{
    const struct home_wish *wish = arg;
    (void)home;
    return !wish->formed || wish->refused;
}

void home_unreached(struct home *home, const struct identity *member)
{
    struct home_unreached *place = home->unreached;

    mutex_lock(&home->lock);
    for (int i = 0; i < JOB_UNREACHED_MAX; i++) {
        struct home_unreached *at = &home->unreached[i];
        bool same = identity_equal(&at->id, member), kept = identity_equal(&place->id, member);
        if (same || (!kept && at->until_ns < place->until_ns)) /* else the oldest makes room */
            place = at;
    }
    *place = (struct home_unreached){*member, clock_real() + UNREACHED_NS};
    mutex_unlock(&home->lock);
}

/* What a wish tells beside what is wished for; it may change while we wait. Under the lock. */
static int explain_wish(struct home *home, const char *job, const struct census *ran, struct error *error)
{
    struct identity apart[JOB_UNREACHED_MAX];
    uint64_t now_ns = clock_real();
    int count = 0;

    for (int i = 0; i < JOB_UNREACHED_MAX; i++)
        if (now_ns < home->unreached[i].until_ns)
            apart[count++] = home->unreached[i].id;
    jobs_unreached(home->jobs, job, apart, count, now_ns);
    if (jobs_remember(home->jobs, job, ran, now_ns))
        return error_set(error, HEARTH_NO_MEMORY, RANK_NONE, "form \"%s\": no memory", job);
    event_signal(&home->wake);
    return HEARTH_OK;
}

/* What is remembered may be forgotten meanwhile, by a person (`recalled`: there is something), and who could
 * not be reached be linked with us: both are looked at again now and then. */
static int wait_for_answer(struct home *home, struct home_wish *wish, const struct home_patience *patience,
                           struct census *ran, bool recalled, struct error *error)
{
    int status = HEARTH_OK;

    while (!status) {
        uint64_t look_ns = clock_real() + LOOK_NS;
        struct home_patience slice = {look_ns < patience->deadline_ns ? look_ns : patience->deadline_ns,
                                      patience->stop};
        bool done = wait_until(home, answered, wish, &slice);
        if (done || patience_over(patience) || clock_real() < look_ns)
            break;
        mutex_unlock(&home->lock);
        if (recalled)
            status = job_store_recall(home->store, wish->job, ran, &recalled, error);
        mutex_lock(&home->lock);
        if (!status)
            status = explain_wish(home, wish->job, recalled ? ran : NULL, error);
    }
    return status;
}

/* A formation with a guest is over soon and has nothing to lose: a measurement, a demo. */
static bool has_guest(const struct census *census, const struct formation *formation)
{
    for (int rank = 0; rank < formation->size; rank++) {
        int at = census_find(census, &formation->members[rank]);
        if (at >= 0 && census->members[at].flags & FELLOW_GUEST)
            return true;
    }
    return false;
}

/* What came of a wish. Under the lock. */
static int conclude(struct home *home, const struct home_wish *wish, const struct home_patience *patience,
                    struct error *error)
{
    char why[JOB_TEXT_MAX];
    const char *word;

    if (wish->refused)
        return error_set(error, HEARTH_MISMATCH, RANK_NONE, "form \"%s\": %s", wish->job, wish->text);
    if (!wish->formed)
        return HEARTH_OK;
    jobs_why_not(home->jobs, wish->job, why, sizeof(why));
    int status = impatient(patience, &word);
    return error_set(error, status, RANK_NONE, "form \"%s\": %s%s", wish->job, word, why);
}

static int form_with(struct home *home, const struct job_wish *given, uint64_t done,
                     const struct home_patience *patience, struct formation *out, struct census *view,
                     struct error *error)
{
    struct home_wish wish = {.formed = out};
    bool recalled;

    snprintf(wish.job, sizeof(wish.job), "%s", given->job);
    int status = job_store_recall(home->store, wish.job, view, &recalled, error);
    if (status)
        return status;
    mutex_lock(&home->lock);
    status = jobs_wish(home->jobs, given, done, clock_real(), error);
    if (status) {
        mutex_unlock(&home->lock);
        return status;
    }
    list_push(&home->wishes, &wish.item);
    status = explain_wish(home, wish.job, recalled ? view : NULL, error);
    if (!status)
        status = wait_for_answer(home, &wish, patience, view, recalled, error);
    list_remove(&wish.item);
    if (!status || answered(home, &wish))
        status = conclude(home, &wish, patience, error);
    if (status) {
        jobs_unwish(home->jobs, wish.job, clock_real());
        event_signal(&home->wake);
    }
    mutex_unlock(&home->lock);
    return status;
}

int home_form(struct home *home, const struct job_wish *given, uint64_t done,
              const struct home_patience *patience, struct formation *out, struct error *error)
{
    struct census *view = heap_alloc_raw(home->heap, 1, sizeof(*view));

    if (!view)
        return error_set(error, HEARTH_NO_MEMORY, RANK_NONE, "form \"%s\": no memory", given->job);
    int status = form_with(home, given, done, patience, out, view, error);
    heap_free(view);
    return status;
}

int home_begun(struct home *home, const struct formation *formation, struct error *error)
{
    struct census *view = heap_alloc_raw(home->heap, 1, sizeof(*view));

    if (!view)
        return error_set(error, HEARTH_NO_MEMORY, RANK_NONE, "form \"%s\": no memory", formation->job);
    mutex_lock(&home->lock);
    *view = *assembly_census(home->assembly);
    mutex_unlock(&home->lock);
    job_record_mark(view, formation->members, formation->size);
    if (!has_guest(view, formation))
        job_store_keep(home->store, formation->job, view);
    heap_free(view);
    return HEARTH_OK;
}

void home_end(struct home *home, const struct formation *formation, bool finished)
{
    mutex_lock(&home->lock);
    finished &= jobs_whole(home->jobs, formation->id);
    jobs_end(home->jobs, formation->id, clock_real());
    mutex_unlock(&home->lock);
    event_signal(&home->wake);
    if (finished)
        job_store_drop(home->store, formation->job);
}

void home_watch(struct home *home, struct home_watch *watch)
{
    mutex_lock(&home->lock);
    list_push(&home->watches, &watch->item);
    bool over = !jobs_takes_part(home->jobs, watch->formation);
    uint64_t lost = jobs_lost(home->jobs, watch->formation);
    mutex_unlock(&home->lock);
    if (over)
        watch->ended(watch->arg, lost, "", "it ended while it was being made");
}

void home_unwatch(struct home *home, struct home_watch *watch)
{
    mutex_lock(&home->lock);
    list_remove(&watch->item);
    mutex_unlock(&home->lock);
}

void home_traffic(struct home *home, const struct identity *peer, uint64_t bytes, uint64_t time_ns)
{
    mutex_lock(&home->lock);
    probes_traffic(home->probes, peer, bytes, time_ns);
    mutex_unlock(&home->lock);
}

void home_moved(struct home *home, uint64_t sent, uint64_t received)
{
    mutex_lock(&home->lock);
    home->groups_sent += sent;
    home->groups_received += received;
    mutex_unlock(&home->lock);
}

void home_skew(struct home *home, const struct identity *peer, uint64_t late_ns)
{
    mutex_lock(&home->lock);
    struct home_linked *linked = home_find_linked(home, peer);
    if (linked) {
        linked->works_with_us = true;
        linked->late_ns = late_ns;
    }
    mutex_unlock(&home->lock);
}

void home_apart(struct home *home, const struct identity *peer)
{
    mutex_lock(&home->lock);
    struct home_linked *linked = home_find_linked(home, peer);
    if (linked) {
        linked->works_with_us = false;
        linked->late_ns = 0;
    }
    mutex_unlock(&home->lock);
}

bool home_best_addr(struct home *home, const struct identity *peer, struct sock_addr *addr)
{
    mutex_lock(&home->lock);
    bool known = probes_best_addr(home->probes, peer, addr);
    mutex_unlock(&home->lock);
    return known;
}

bool home_arrange(struct home *home, const struct identity *members, int count, const int *now,
                  struct arrangement *out)
{
    int index[CENSUS_MEMBERS_MAX];
    uint64_t changed, hosts[CENSUS_MEMBERS_MAX];

    mutex_lock(&home->lock);
    const struct census *census = assembly_census(home->assembly);
    const struct topology *t = probes_links(home->probes, &changed);
    bool known = t->instance == census->instance && t->epoch == census->epoch;
    for (int i = 0; known && i < count; i++) {
        index[i] = census_find(census, &members[i]);
        known = index[i] >= 0;
        hosts[i] = known ? census->members[index[i]].host_id : 0;
    }
    known = known && topology_rearrange(t, index, hosts, count, now, out);
    mutex_unlock(&home->lock);
    return known;
}

/* ---- news ---- */

bool home_next_event(struct home *home, uint64_t *place, struct home_event *event)
{
    mutex_lock(&home->lock);
    uint64_t oldest = home->event_count > HOME_EVENTS_MAX ? home->event_count - HOME_EVENTS_MAX : 0;
    *place = *place > oldest ? *place : oldest;
    bool some = *place < home->event_count;
    if (some)
        *event = home->events[(*place)++ % HOME_EVENTS_MAX];
    mutex_unlock(&home->lock);
    return some;
}

static bool has_event(struct home *home, void *arg)
{
    const uint64_t *place = arg;

    return home->event_count > *place;
}

void home_wait_event(struct home *home, uint64_t place, const struct home_patience *patience)
{
    mutex_lock(&home->lock);
    (void)wait_until(home, has_event, &place, patience);
    mutex_unlock(&home->lock);
}

void home_on_event(struct home *home, home_event_fn *fn, void *arg)
{
    mutex_lock(&home->lock);
    home->on_event = fn;
    home->on_event_arg = arg;
    mutex_unlock(&home->lock);
}

/* ---- texts ---- */

int64_t home_json(struct home *home, char *text, size_t size)
{
    struct paper paper = paper_of(text, size);

    mutex_lock(&home->lock);
    home_write_json(home, &paper);
    mutex_unlock(&home->lock);
    return (int64_t)paper.len;
}

int64_t home_metrics(struct home *home, char *text, size_t size)
{
    struct paper paper = paper_of(text, size);

    mutex_lock(&home->lock);
    home_write_metrics(home, &paper);
    mutex_unlock(&home->lock);
    return (int64_t)paper.len;
}
