/* SPDX-License-Identifier: Apache-2.0 */
/* One round of the home's thread: what comes goes to the machine that it concerns, what machines say goes
 * out, and what has happened is told to whoever wants to know. */
#include <stdio.h>
#include <string.h>

#include "home/gossip.h"
#include "home/inside.h"

#define GOSSIP_NS   (10 * NS_PER_S)
#define GOSSIP_SOON (100 * NS_PER_MS) /* several come at once: one letter for all */
#define NEWS_MAX    4096              /* of one round */
#define TRUST_NS    (500 * NS_PER_MS)

/* ---- who is there ---- */

struct home_linked *home_find_linked(struct home *home, const struct identity *id)
{
    for (int i = 0; i < home->linked_count; i++)
        if (identity_equal(&home->linked[i].fellow.id, id))
            return &home->linked[i];
    return NULL;
}

static void link_up(struct home *home, const struct fellow *fellow, uint64_t now_ns)
{
    struct home_linked *linked = home_find_linked(home, &fellow->id);

    if (!linked && home->linked_count == FELLOWS_MAX) {
        fellows_drop(home->fellows, &fellow->id, "this node is joined to as many as it can be");
        return;
    }
    if (!linked) {
        linked = &home->linked[home->linked_count++];
        linked->late_ns = 0;
        linked->works_with_us = false;
        home->links_made++;
        const struct health *known = assembly_health(home->assembly, &fellow->id);
        if (known && known->answered > 0)
            home->links_again++;
    }
    linked->fellow = *fellow;
    for (int i = 0; i < JOB_UNREACHED_MAX; i++) /* by a new way, or at a new address */
        if (identity_equal(&home->unreached[i].id, &fellow->id))
            home->unreached[i].until_ns = 0;
    assembly_linked(home->assembly, fellow, now_ns);
    if (!home->gossip_due)
        home->gossip_ns = now_ns + GOSSIP_SOON;
    home->gossip_due = true;
}

static void link_down(struct home *home, const struct identity *id, uint64_t now_ns)
{
    struct home_linked *linked = home_find_linked(home, id);

    if (!linked)
        return;
    *linked = home->linked[--home->linked_count];
    home->links_lost++;
    assembly_unlinked(home->assembly, id, PARTING_BROKE, now_ns);
}

/* ---- gossip ---- */

static void gossip(struct home *home, uint64_t now_ns)
{
    const struct fellow *all[FELLOWS_MAX];
    uint8_t letter[GOSSIP_LEN_MAX];

    if (now_ns < home->gossip_ns)
        return;
    home->gossip_ns = now_ns + GOSSIP_NS;
    home->gossip_due = false;
    for (int i = 0; i < home->linked_count; i++)
        all[i] = &home->linked[i].fellow;
    size_t len = gossip_encode(all, home->linked_count, letter, sizeof(letter));
    for (int i = 0; len > 0 && i < home->linked_count; i++)
        outbox_put(&home->outbox, &home->linked[i].fellow.id, LETTER_PEERS, letter, len);
}

struct gossip_ear {
    struct home *home;
    uint64_t now_ns;
};

static void hear_peer(void *arg, const struct identity *id, const struct sock_addr *addr)
{
    const struct gossip_ear *ear = arg;

    if (!identity_equal(id, &fellows_self(ear->home->fellows)->id))
        fellows_candidate(ear->home->fellows, addr, id, true, ear->now_ns);
}

/* ---- what was found ---- */

static void dial_found(struct home *home, uint64_t now_ns)
{
    const uint8_t *space = secret_namespace(credentials_secret(home->setup.credentials));
    uint64_t changed;
    int count, seed_count;
    const struct sighting *found = finder_sightings(home->finder, &count, &changed);
    const struct sock_addr *seeds = finder_seeds(home->finder, &seed_count);

    for (int i = 0; i < seed_count; i++)
        fellows_candidate(home->fellows, &seeds[i], NULL, false, now_ns);
    if (changed == home->sightings_told)
        return;
    home->sightings_told = changed;
    for (int i = 0; i < count; i++)
        if (memcmp(found[i].space, space, NAMESPACE_LEN) == 0)
            fellows_candidate(home->fellows, &found[i].addr, &found[i].id, false, now_ns);
}

/* ---- letters ---- */

static int route(struct home *home, const struct fellows_news *news, uint64_t now_ns, const char **what)
{
    const struct identity *from = &news->fellow.id;
    struct gossip_ear ear = {home, now_ns};

    if (news->letter == LETTER_LEAVE)
        jobs_left(home->jobs, from);
    switch (news->letter) {
    case LETTER_LEAVE:
        fellows_left(home->fellows, from);
        return assembly_input(home->assembly, from, news->letter, news->payload, news->len, now_ns, what);
    case LETTER_BEAT:
    case LETTER_CENSUS:
    case LETTER_CALL:
    case LETTER_VOTE:
    case LETTER_PROPOSE:
    case LETTER_ACCEPT:
    case LETTER_DISSOLVE:
        return assembly_input(home->assembly, from, news->letter, news->payload, news->len, now_ns, what);
    case LETTER_REPORT:
    case LETTER_FORM:
    case LETTER_BOARD:
        return jobs_input(home->jobs, from, news->letter, news->payload, news->len, now_ns, what);
    case LETTER_PROBE:
    case LETTER_MEASURED:
    case LETTER_LINKS:
        return probes_input(home->probes, from, news->letter, news->payload, news->len, now_ns, what);
    case LETTER_PEERS:
        *what = "peers";
        return gossip_decode(news->payload, news->len, hear_peer, &ear);
    default:
        *what = "a letter that does not belong here";
        return HEARTH_PROTOCOL;
    }
}

static void take_letter(struct home *home, const struct fellows_news *news, uint64_t now_ns)
{
    const char *what = "?";
    char why[HOME_TEXT_MAX];

    assembly_heard(home->assembly, &news->fellow.id, now_ns);
    if (route(home, news, now_ns, &what) != HEARTH_PROTOCOL)
        return; /* taken, or no memory for it: then it is said again */
    snprintf(why, sizeof(why), "it sent a letter (kind %d) that breaks the protocol: %s", news->letter, what);
    fellows_drop(home->fellows, &news->fellow.id, why);
}

static void take_news(struct home *home, uint64_t now_ns)
{
    struct fellows_news news;

    for (int i = 0; i < NEWS_MAX && fellows_news(home->fellows, &news); i++) {
        switch (news.kind) {
        case FELLOWS_LINKED:
        case FELLOWS_AGAIN:
            link_up(home, &news.fellow, now_ns);
            break;
        case FELLOWS_LOST:
            link_down(home, &news.fellow.id, now_ns);
            break;
        case FELLOWS_LETTER:
            take_letter(home, &news, now_ns);
            break;
        case FELLOWS_PROBE:
            probes_take(home->probes, news.tunnel, &news.fellow.id, news.dialled, now_ns);
            break;
        }
    }
}

void home_flush(struct home *home)
{
    struct outbox_letter *letter;

    while ((letter = outbox_take(&home->outbox)) != NULL) {
        (void)fellows_send(home->fellows, &letter->to, letter->kind, letter->payload, letter->len);
        heap_free(letter);
    }
}

/* ---- what people and programs want to know ---- */

void home_tell(struct home *home, const struct home_event *event)
{
    home->events[home->event_count++ % HOME_EVENTS_MAX] = *event;
    if (home->on_event)
        home->on_event(home->on_event_arg, event);
}

static void tell_assembly(struct home *home)
{
    static const enum home_event_kind kinds[] = {
        [ASSEMBLY_JOINED] = HOME_MEMBER_JOINED,  [ASSEMBLY_LEFT] = HOME_MEMBER_LEFT,
        [ASSEMBLY_LEADER] = HOME_LEADER_CHANGED, [ASSEMBLY_VIEW] = HOME_VIEW_CHANGED,
        [ASSEMBLY_HEALTH] = HOME_MEMBER_HEALTH,  [ASSEMBLY_LOST_QUORUM] = HOME_QUORUM_LOST,
        [ASSEMBLY_QUORUM] = HOME_QUORUM_BACK,    [ASSEMBLY_CONFLICT] = HOME_TROUBLE,
        [ASSEMBLY_COPIED_KEY] = HOME_TROUBLE,
    };
    struct assembly_event found;

    while (assembly_event(home->assembly, &found)) {
        struct home_event event = {
            .kind = kinds[found.kind],
            .who = found.who,
            .health = found.health,
            .epoch = found.epoch,
            .term = found.term,
            .size = assembly_census(home->assembly)->size,
        };
        snprintf(event.name, sizeof(event.name), "%s", found.name);
        snprintf(event.text, sizeof(event.text), "%s", found.text);
        home_tell(home, &event);
    }
}

static void end_formation(struct home *home, const struct job_news *news)
{
    struct list *item, *after;
    char who[FELLOW_NAME_MAX + NODE_ID_SHORT];

    identity_text(&news->who, who, sizeof(who));
    LIST_EACH (item, after, &home->watches) {
        const struct home_watch *watch = container_of(item, struct home_watch, item);
        if (watch->formation == news->id)
            watch->ended(watch->arg, news->lost, who, news->text);
    }
}

static void answer_wish(struct home *home, const struct job_news *news)
{
    struct list *item, *after;

    LIST_EACH (item, after, &home->wishes) {
        struct home_wish *wish = container_of(item, struct home_wish, item);
        if (strcmp(wish->job, news->job) != 0 || !wish->formed)
            continue;
        if (news->kind == JOB_FORMED) {
            *wish->formed = *news->formation;
            wish->formed = NULL;
        } else {
            wish->refused = true;
            snprintf(wish->text, sizeof(wish->text), "%s", news->text);
        }
    }
}

static void tell_jobs(struct home *home)
{
    struct job_news news;

    while (jobs_news(home->jobs, &news)) {
        struct home_event event = {.kind = HOME_JOB_WANTED, .who = news.who};
        switch (news.kind) {
        case JOB_FORMED:
        case JOB_REFUSED:
            answer_wish(home, &news);
            break;
        case JOB_ENDED:
            end_formation(home, &news);
            break;
        case JOB_WANTED:
            snprintf(event.text, sizeof(event.text), "%s", news.job);
            home_tell(home, &event);
            break;
        }
    }
}

/* ---- who may stay ---- */

/* A key that is revoked while we run loses its connection, and with it its place. */
static void watch_trust(struct home *home, uint64_t now_ns)
{
    struct trust_list *list = credentials_trust(home->setup.credentials);
    struct error why;

    if (!list || now_ns < home->trust_ns)
        return;
    home->trust_ns = now_ns + TRUST_NS;
    int status = trust_list_refresh(list, &why);
    if (status != HEARTH_OK && status != HEARTH_PENDING && !home->trust_told)
        log_write(&home->log, HEARTH_LOG_WARN, "HEARTH-TRUST", "the list of who may come stays as it was: %s",
                  why.text);
    home->trust_told = status != HEARTH_OK && status != HEARTH_PENDING;
    for (int i = 0; status == HEARTH_OK && i < home->linked_count; i++) {
        const struct identity *id = &home->linked[i].fellow.id;
        enum trust_verdict verdict = trust_list_judge(list, &id->node);
        if (verdict != TRUST_YES)
            fellows_drop(home->fellows, id, trust_verdict_text(verdict));
    }
}

/* A connection over a way that does not exist any more takes minutes to end by itself. Who is there again, by
 * this way or another, is joined anew. */
static void drop_silent(struct home *home)
{
    for (int i = 0; i < home->linked_count; i++) {
        const struct identity *id = &home->linked[i].fellow.id;
        const struct health *h = assembly_health(home->assembly, id);
        if (h && h->linked && h->state == HEALTH_DEAD)
            fellows_drop(home->fellows, id, "nothing was heard from it for long");
    }
}

/* ---- what machines must know of each other ---- */

static void spare_busy(struct home *home, uint64_t now_ns)
{
    struct identity busy[CENSUS_MEMBERS_MAX];

    probes_spare(home->probes, busy, jobs_taking_part(home->jobs, busy), now_ns);
}

/* A job that is remembered runs in the newest view: a quorum of that one may go on with it. */
static void remember_view(struct home *home, const struct census *census)
{
    char job[JOB_NAME_MAX];
    uint64_t instance;

    for (int i = 0; job_store_kept(home->store, i, job, &instance); i++)
        if (instance == census->instance || jobs_runs(home->jobs, job))
            job_store_keep_soon(home->store, job, census);
}

static void tell_machines(struct home *home, uint64_t now_ns)
{
    const struct census *census = assembly_census(home->assembly);
    bool leads = assembly_leads(home->assembly);
    bool quorum = assembly_state(home->assembly) == ASSEMBLY_MEMBER;
    uint64_t links = 0;

    if (census->instance != home->told_instance || census->epoch != home->told_epoch ||
        leads != home->told_leads || quorum != home->told_quorum) {
        jobs_census(home->jobs, census, leads, quorum, now_ns);
        probes_census(home->probes, census, leads, now_ns);
        if (quorum && (census->instance != home->told_instance || census->epoch != home->told_epoch))
            remember_view(home, census);
        home->told_instance = census->instance;
        home->told_epoch = census->epoch;
        home->told_leads = leads;
        home->told_quorum = quorum;
    }
    if (assembly_state(home->assembly) == ASSEMBLY_STRANDED)
        jobs_stranded(home->jobs, now_ns);
    const struct topology *table = probes_links(home->probes, &links);
    if (leads && links != home->links_told) {
        jobs_links(home->jobs, table);
        home->links_told = links;
    }
    jobs_measuring(home->jobs, leads && !probes_sketched(home->probes));
    spare_busy(home, now_ns);
}

/* Before anything else is heard, and also while we are about to join others: who works does not. */
static void tell_work(struct home *home, uint64_t now_ns)
{
    assembly_set_begun(home->assembly, jobs_running(home->jobs));
    assembly_set_busy(home->assembly, jobs_busy(home->jobs, now_ns));
}

/* Round trips that beats have measured, for the map. */
static void tell_round_trips(struct home *home, uint64_t now_ns)
{
    const struct fellow *self = fellows_self(home->fellows);

    if (now_ns < home->measure_ns)
        return;
    for (int i = 0; i < home->linked_count; i++) {
        const struct fellow *peer = &home->linked[i].fellow;
        const struct health *h = assembly_health(home->assembly, &peer->id);
        if (!h || h->latency_ns == 0)
            continue;
        uint64_t beats = h->answered + h->failed;
        uint32_t loss_ppm = beats > 0 ? (uint32_t)(h->failed * 1000000 / beats) : 0;
        probes_round_trip(home->probes, &peer->id, h->least_latency_ns, loss_ppm,
                          peer->host_id == self->host_id ? WAY_SAME_HOST : WAY_UNKNOWN);
    }
}

void home_pump(struct home *home, uint64_t now_ns)
{
    finder_pump(home->finder, now_ns);
    home_look_around(home, now_ns);
    watch_trust(home, now_ns);
    dial_found(home, now_ns);
    fellows_pump(home->fellows, now_ns);
    take_news(home, now_ns);
    assembly_tick(home->assembly, now_ns);
    drop_silent(home);
    tell_machines(home, now_ns);
    tell_round_trips(home, now_ns);
    jobs_tick(home->jobs, now_ns);
    tell_work(home, now_ns);
    probes_pump(home->probes, now_ns);
    gossip(home, now_ns);
    tell_assembly(home);
    tell_jobs(home);
    home_flush(home);
}
