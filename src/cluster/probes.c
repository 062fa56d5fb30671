/* SPDX-License-Identifier: Apache-2.0 */
/* Carries out the leader's orders, and, at the leader, gives them. */
#include "cluster/probes.h"

#include <inttypes.h>
#include <string.h>

#include "cluster/probe_peers.h"
#include "cluster/probe_run.h"
#include "cluster/probe_schedule.h"

#define RUNS_MAX      PROBES_WAITS_MAX
#define BURST_NS      (200 * NS_PER_MS)
#define BURST_TRIPS   12 /* round trips for TCP to reach full speed */
#define BURST_MAX_NS  NS_PER_S
#define DIAL_NS       (4 * NS_PER_S) /* for connecting, handshake and hello */
#define TELL_NS       (5 * NS_PER_S)
#define LINKS_NS      NS_PER_S
#define LINKS_REPEATS 10  /* factor of the interval when nothing has changed */
#define LINKS_CROWD   256 /* number of paths that doubles the interval */
#define ORDERS_MAX    4   /* per round: for orders that fail at once */

/* The current order of the leader. */
struct errand {
    bool active, running; /* running: connected */
    uint32_t number;
    struct identity to;
    struct sock_addr addr;
    uint64_t deadline_ns; /* while it is not running */
};

struct probe_slot {
    struct probe_run *run; /* NULL: free */
    bool errand;           /* our order, not that of a peer */
    struct identity peer;
};

struct probes {
    struct heap *heap;
    struct log log;
    struct peer_set *peer_set;
    struct outbox *outbox;
    struct identity self;
    struct view view; /* size 0: none yet */
    int self_at;      /* our index, -1: none */
    bool leads;
    struct schedule schedule;
    struct topology table, incoming;
    uint64_t changed; /* number of changes of the table */
    struct probe_peers peers;
    struct identity spared[VIEW_MEMBERS_MAX];
    int spared_count;
    struct errand errand;
    struct probe_slot slots[RUNS_MAX];
    uint64_t tell_ns; /* when reports may be sent again */
    bool untold;      /* the table has changed since it was sent */
    uint64_t links_ns;
    uint64_t wake_ns; /* of the next probes_pump */
};

int probes_open(const struct probes_setup *setup, struct probes **out)
{
    struct probes *p = heap_alloc(setup->heap, 1, sizeof *p);

    if (!p)
        return HEARTH_NO_MEMORY;
    p->heap = setup->heap;
    p->log = setup->log;
    p->peer_set = setup->peer_set;
    p->outbox = setup->outbox;
    p->self = setup->self;
    p->self_at = -1;
    p->wake_ns = NEVER_NS;
    /* Numbers of different leaders should differ. */
    schedule_init(&p->schedule, setup->share > 0 ? setup->share : PROBES_SHARE,
                  setup->refresh_ns > 0 ? setup->refresh_ns : PROBES_REFRESH_NS,
                  (uint32_t)(setup->self.instance ^ setup->now_ns));
    *out = p;
    return HEARTH_OK;
}

void probes_close(struct probes *p)
{
    if (!p)
        return;
    for (int i = 0; i < RUNS_MAX; i++)
        probe_run_close(p->slots[i].run);
    heap_free(p);
}

/* ---- reports ------------------------------------------------------------------------------------------ */

static void table_changed(struct probes *p)
{
    p->changed++;
    p->untold = true;
}

/* At the leader: a member's report of its paths. */
static void apply(struct probes *p, int from, const struct measured *m, uint64_t now_ns)
{
    bool changed = false;

    for (int i = 0; i < m->count; i++)
        changed |= schedule_result(&p->schedule, &p->table, from, &m->paths[i], now_ns);
    if (m->number > 0)
        (void)schedule_end(&p->schedule, &p->table, m->number, from, (enum probe_outcome)m->outcome, now_ns);
    if (changed)
        table_changed(p);
}

/* To the leader, or directly if this node leads. */
static void tell(struct probes *p, uint32_t number, enum probe_outcome outcome, uint64_t now_ns)
{
    struct measured m = {.number = number, .outcome = (uint8_t)outcome};
    uint8_t message[MEASURED_MESSAGE_MAX];

    if (p->self_at < 0)
        return;
    peers_tell(&p->peers, &m);
    p->tell_ns = now_ns + TELL_NS;
    if (p->leads) {
        apply(p, p->self_at, &m, now_ns);
        return;
    }
    size_t len = measured_encode(&m, message, sizeof message);
    outbox_put(p->outbox, &p->view.members[p->view.leader].id, MESSAGE_MEASURED, message, len);
}

static uint64_t links_pause_ns(const struct probes *p)
{
    uint64_t paths = (uint64_t)p->view.size * (uint64_t)p->view.size;
    return LINKS_NS + LINKS_NS * paths / LINKS_CROWD;
}

static uint64_t links_due_ns(const struct probes *p)
{
    return p->links_ns + links_pause_ns(p) * (p->untold ? 1 : LINKS_REPEATS);
}

static void tell_links(struct probes *p, uint64_t now_ns)
{
    p->links_ns = now_ns;
    p->untold = false;
    uint8_t *message = p->view.size > 1 ? heap_alloc_raw(p->heap, 1, MESSAGE_PAYLOAD_MAX) : NULL;
    if (!message)
        return; /* the next time */
    schedule_ages(&p->schedule, &p->table, now_ns);
    size_t len = topology_encode(&p->table, message, MESSAGE_PAYLOAD_MAX);
    for (int i = 0; len > 0 && i < p->view.size; i++)
        if (i != p->self_at)
            outbox_put(p->outbox, &p->view.members[i].id, MESSAGE_LINKS, message, len);
    heap_free(message);
}

/* ---- errands ------------------------------------------------------------------------------------------ */

static bool is_spared(const struct probes *p, const struct identity *id)
{
    for (int i = 0; i < p->spared_count; i++)
        if (identity_equal(&p->spared[i], id))
            return true;
    return false;
}

static bool peer_info_has(const struct peer_info *f, const struct sock_addr *addr)
{
    for (int i = 0; i < f->addr_count; i++) {
        struct sock_addr own = sock_addr_of(&f->addrs[i]);
        if (sock_addr_equal(&own, addr))
            return true;
    }
    return false;
}

/* PROBE_DONE: it has started. */
static enum probe_outcome errand_begin(struct probes *p, const struct probe_order *order, uint64_t now_ns)
{
    struct probe_peer *peer = peers_find(&p->peers, &order->to);
    int to = view_find(&p->view, &order->to);
    struct sock_addr addr = order->addr;

    if (p->errand.active || !peer || to < 0 || is_spared(p, &p->self) || is_spared(p, &order->to) ||
        (addr.len > 0 && !peer_info_has(&p->view.members[to], &addr)))
        return PROBE_NOT_NOW;
    if (addr.len == 0)
        (void)peer_best_addr(peer, &addr);
    if (peer_set_dial_probe(p->peer_set, &order->to, addr.len > 0 ? &addr : NULL, now_ns) != HEARTH_OK)
        return PROBE_FAILED;
    p->errand = (struct errand){.active = true,
                                .number = order->number,
                                .to = order->to,
                                .addr = addr,
                                .deadline_ns = now_ns + DIAL_NS};
    return PROBE_DONE;
}

static void errand_run(struct probes *p, const struct probe_order *order, uint64_t now_ns)
{
    enum probe_outcome outcome = errand_begin(p, order, now_ns);

    if (outcome != PROBE_DONE)
        tell(p, order->number, outcome, now_ns);
}

static void errand_end(struct probes *p, enum probe_outcome outcome, uint64_t now_ns)
{
    struct probe_peer *peer = peers_find(&p->peers, &p->errand.to);

    if (peer && outcome == PROBE_FAILED)
        peer_failed(peer, &p->errand.addr);
    p->errand.active = p->errand.running = false;
    tell(p, p->errand.number, outcome, now_ns);
}

static uint64_t burst_ns(struct probes *p, const struct identity *peer)
{
    const struct probe_peer *known = peers_find(&p->peers, peer);
    uint64_t trips_ns = known ? known->round_trip_us * NS_PER_US * BURST_TRIPS : 0;

    if (trips_ns <= BURST_NS)
        return BURST_NS;
    return trips_ns < BURST_MAX_NS ? trips_ns : BURST_MAX_NS;
}

/* Takes the secure stream; false: no free run. */
static bool slot_open(struct probes *p, struct secure_stream *stream, const struct identity *peer,
                      bool dialled, uint64_t now_ns)
{
    struct probe_run_setup setup = {
        .heap = p->heap, .stream = stream, .sends = dialled, .burst_ns = burst_ns(p, peer), .now_ns = now_ns};

    for (int i = 0; i < RUNS_MAX; i++) {
        struct probe_slot *slot = &p->slots[i];
        if (slot->run)
            continue;
        slot->errand = dialled;
        slot->peer = *peer;
        return probe_run_open(&setup, &slot->run) == HEARTH_OK;
    }
    secure_stream_close(stream);
    return false;
}

void probes_take(struct probes *p, struct secure_stream *stream, const struct identity *from, bool dialled,
                 uint64_t now_ns)
{
    bool awaited = p->errand.active && !p->errand.running && identity_equal(&p->errand.to, from);

    p->wake_ns = now_ns;
    if (dialled ? !awaited : is_spared(p, &p->self)) {
        secure_stream_close(stream);
        return;
    }
    bool runs = stream && slot_open(p, stream, from, dialled, now_ns);
    if (dialled && runs)
        p->errand.running = true;
    else if (dialled)
        errand_end(p, stream ? PROBE_NOT_NOW : PROBE_FAILED, now_ns);
}

static void errand_measured(struct probes *p, const struct probe_slot *slot)
{
    struct probe_peer *peer = peers_find(&p->peers, &slot->peer);
    uint32_t mbit_x10 = probe_run_result(slot->run)->mbit_x10;
    struct sock_addr local = {.len = 0};
    char text[SOCK_TEXT_MAX], who[64];

    enum path_kind kind =
        sock_local(probe_run_fd(slot->run), &local) == HEARTH_OK ? path_kind_here(&local) : PATH_UNKNOWN;
    if (peer)
        peer_probed(peer, &p->errand.addr, mbit_x10, kind);
    identity_text(&slot->peer, who, sizeof who);
    sock_addr_text(&p->errand.addr, text, sizeof text);
    log_write(&p->log, HEARTH_LOG_DEBUG, "HEARTH-PROBE", "to %s at %s: %" PRIu32 ".%" PRIu32 " Mbit/s", who,
              p->errand.addr.len > 0 ? text : "the address of its connection", mbit_x10 / 10, mbit_x10 % 10);
}

static void slot_pump(struct probes *p, struct probe_slot *slot, uint64_t now_ns)
{
    int status = probe_run_pump(slot->run);

    if (status == HEARTH_PENDING)
        return;
    bool mine = slot->errand && p->errand.running;
    if (mine && status == HEARTH_OK)
        errand_measured(p, slot);
    probe_run_close(slot->run);
    slot->run = NULL;
    if (mine)
        errand_end(p, status == HEARTH_OK ? PROBE_DONE : PROBE_FAILED, now_ns);
}

/* ---- orders ------------------------------------------------------------------------------------------- */

static void give(struct probes *p, const struct schedule_order *next, uint64_t now_ns)
{
    const struct peer_info *to = &p->view.members[next->to];
    struct probe_order order = {.number = next->number, .to = to->id};
    uint8_t message[PROBE_MESSAGE_MAX];

    if (next->addr >= 0)
        order.addr = sock_addr_of(&to->addrs[next->addr]);
    if (next->from == p->self_at) {
        errand_run(p, &order, now_ns);
        return;
    }
    size_t len = probe_order_encode(&order, message, sizeof message);
    outbox_put(p->outbox, &p->view.members[next->from].id, MESSAGE_PROBE, message, len);
}

static void lead(struct probes *p, uint64_t now_ns)
{
    struct schedule_order order;

    for (int i = 0; i < ORDERS_MAX && schedule_next(&p->schedule, &p->table, now_ns, &order); i++)
        give(p, &order, now_ns);
    if (now_ns >= links_due_ns(p))
        tell_links(p, now_ns);
}

/* ---- input -------------------------------------------------------------------------------------------- */

void probes_view(struct probes *p, const struct view *view, bool leads, uint64_t now_ns)
{
    bool another = p->view.size == 0 ||
                   !identity_equal(&p->view.members[p->view.leader].id, &view->members[view->leader].id);

    if (p->view.size == 0)
        topology_reset(&p->table, view);
    else
        topology_follow(&p->table, &p->view, view);
    p->view = *view;
    p->self_at = view_find(view, &p->self);
    schedule_view(&p->schedule, view);
    schedule_spare(&p->schedule, p->spared, p->spared_count);
    peers_view(&p->peers, view, &p->self);
    if (another)
        peers_forget_told(&p->peers);
    if (leads && !p->leads)
        schedule_take_over(&p->schedule, &p->table, now_ns);
    p->leads = leads && p->self_at >= 0;
    if (p->leads)
        schedule_hosts(&p->schedule, &p->table);
    table_changed(p);
    p->wake_ns = now_ns;
}

/* A group that starts to use a line has priority. */
static void errand_break_off(struct probes *p, uint64_t now_ns)
{
    for (int i = 0; i < RUNS_MAX; i++)
        if (p->slots[i].run && p->slots[i].errand) {
            probe_run_close(p->slots[i].run);
            p->slots[i].run = NULL;
        }
    if (p->errand.active)
        errand_end(p, PROBE_NOT_NOW, now_ns);
}

void probes_spare(struct probes *p, const struct identity *members, int count, uint64_t now_ns)
{
    count = count < VIEW_MEMBERS_MAX ? count : VIEW_MEMBERS_MAX;
    bool same = count == p->spared_count;
    for (int i = 0; same && i < count; i++)
        same = identity_equal(&p->spared[i], &members[i]);
    if (same)
        return; /* unchanged: no need to wake up */
    p->spared_count = count;
    if (count > 0)
        memcpy(p->spared, members, sizeof members[0] * (size_t)count);
    schedule_spare(&p->schedule, p->spared, p->spared_count);
    if (is_spared(p, &p->self))
        errand_break_off(p, now_ns);
    p->wake_ns = 0;
}

void probes_round_trip(struct probes *p, const struct identity *id, uint64_t round_trip_ns, uint32_t loss_ppm,
                       enum path_kind kind)
{
    struct probe_peer *peer = peers_find(&p->peers, id);

    if (peer)
        peer_round_trip(peer, round_trip_ns, loss_ppm, kind);
}

void probes_traffic(struct probes *p, const struct identity *id, uint64_t bytes, uint64_t time_ns)
{
    struct probe_peer *peer = peers_find(&p->peers, id);

    if (peer)
        peer_traffic(peer, bytes, time_ns);
}

static int take_links(struct probes *p, const void *payload, size_t len, const char **what)
{
    if (topology_decode(&p->incoming, payload, len) != HEARTH_OK) {
        *what = "links: malformed table";
        return HEARTH_PROTOCOL;
    }
    if (p->incoming.instance != p->view.instance || p->incoming.epoch != p->view.epoch ||
        p->incoming.size != p->view.size)
        return HEARTH_OK; /* of another view: the leader sends it again */
    p->table = p->incoming;
    p->changed++;
    return HEARTH_OK;
}

int probes_input(struct probes *p, const struct received *message, uint64_t now_ns, const char **what)
{
    int at = view_find(&p->view, message->from);
    bool leader = at >= 0 && at == p->view.leader && !p->leads;
    struct probe_order order;
    struct measured measured;

    p->wake_ns = now_ns;
    switch (message->kind) {
    case MESSAGE_PROBE:
        if (!probe_order_decode(&order, message->payload, message->len, what))
            return HEARTH_PROTOCOL;
        if (leader)
            errand_run(p, &order, now_ns);
        return HEARTH_OK;
    case MESSAGE_MEASURED:
        if (!measured_decode(&measured, message->payload, message->len, what))
            return HEARTH_PROTOCOL;
        if (p->leads && at >= 0)
            apply(p, at, &measured, now_ns);
        return HEARTH_OK;
    case MESSAGE_LINKS:
        return leader ? take_links(p, message->payload, message->len, what) : HEARTH_OK;
    default:
        *what = "not a message of probes";
        return HEARTH_PROTOCOL;
    }
}

static uint64_t earlier(uint64_t a_ns, uint64_t b_ns)
{
    return a_ns < b_ns ? a_ns : b_ns;
}

void probes_pump(struct probes *p, uint64_t now_ns)
{
    for (int i = 0; i < RUNS_MAX; i++)
        if (p->slots[i].run)
            slot_pump(p, &p->slots[i], now_ns);
    if (p->errand.active && !p->errand.running && now_ns >= p->errand.deadline_ns)
        errand_end(p, PROBE_FAILED, now_ns);
    if (p->leads)
        lead(p, now_ns);
    if (now_ns >= p->tell_ns && peers_have_news(&p->peers))
        tell(p, 0, PROBE_DONE, now_ns);

    p->wake_ns = p->view.size > 1 ? (p->tell_ns > now_ns ? p->tell_ns : now_ns + TELL_NS) : NEVER_NS;
    if (p->errand.active && !p->errand.running)
        p->wake_ns = earlier(p->wake_ns, p->errand.deadline_ns);
    if (p->leads && p->view.size > 1)
        p->wake_ns =
            earlier(earlier(p->wake_ns, links_due_ns(p)), schedule_deadline(&p->schedule, &p->table, now_ns));
}

size_t probes_waits(const struct probes *p, struct sock_wait *items, size_t max, uint64_t *deadline_ns)
{
    size_t count = 0;

    *deadline_ns = earlier(*deadline_ns, p->wake_ns);
    for (int i = 0; i < RUNS_MAX; i++)
        if (p->slots[i].run && count < max)
            items[count++] = probe_run_wait(p->slots[i].run, deadline_ns);
    return count;
}

/* ---- state -------------------------------------------------------------------------------------------- */

const struct topology *probes_links(const struct probes *p, uint64_t *changed)
{
    if (changed)
        *changed = p->changed;
    return &p->table;
}

bool probes_best_addr(const struct probes *p, const struct identity *id, struct sock_addr *out)
{
    for (int i = 0; i < p->peers.count; i++)
        if (identity_equal(&p->peers.list[i].id, id))
            return peer_best_addr(&p->peers.list[i], out);
    return false;
}

bool probes_settled(const struct probes *p)
{
    return p->leads && schedule_settled(&p->schedule);
}

bool probes_sketched(const struct probes *p)
{
    return p->leads && schedule_sketched(&p->schedule, &p->table);
}
