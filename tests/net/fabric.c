/* SPDX-License-Identifier: Apache-2.0 */
/* Ports, lines, and frames under way. */
#include "net/fabric.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ETHER_AT VNET_LEN /* the Ethernet header, target first */

/* Segments travel together if that takes no longer: hosts hardly see the difference, the processor does. */
#define TOGETHER_NS 125000

bool fabric_init(struct fabric *f, int count, uint64_t seed, uint64_t now)
{
    memset(f, 0, sizeof *f);
    f->count = count;
    f->heap.items = calloc(FRAMES_MAX, sizeof *f->heap.items);
    if (!f->heap.items || !pool_init(&f->pool)) {
        free(f->heap.items);
        return false;
    }
    for (int p = 0; p < PORTS_MAX; p++) {
        f->ports[p].fd = -1;
        f->ports[p].down.queue_len = QUEUE_DEFAULT;
    }
    for (int p = 0; p < PORTS_MAX * PORTS_MAX; p++)
        f->lines[p / PORTS_MAX][p % PORTS_MAX].stage.queue_len = QUEUE_DEFAULT;
    fabric_heal(f);
    fabric_seed(f, seed, now);
    return true;
}

void fabric_fini(struct fabric *f)
{
    pool_fini(&f->pool);
    free(f->heap.items);
}

void fabric_seed(struct fabric *f, uint64_t seed, uint64_t now)
{
    f->seed = seed;
    f->start_ns = now;
    for (int a = 0; a < PORTS_MAX; a++) {
        for (int b = 0; b < PORTS_MAX; b++) {
            uint64_t stream = (uint64_t)(a * PORTS_MAX + b) * 2;
            chance_init(&f->lines[a][b].chance, seed, stream);
            chance_init(&f->lines[a][b].flood_chance, seed, stream + 1);
        }
    }
}

void fabric_heal(struct fabric *f)
{
    for (int p = 0; p < PORTS_MAX; p++) {
        f->ports[p].group = GROUP_ANY;
        f->ports[p].frozen = false;
    }
}

/* ---- who is where ---- */

/* The place of an address in the table, or the free one where it belongs. */
static struct mac *mac_find(struct fabric *f, const uint8_t *address)
{
    uint32_t hash = 0;
    for (int i = 0; i < 6; i++)
        hash = hash * 31 + address[i];
    struct mac *mac = &f->macs[hash % MACS_MAX];
    while (mac->used && memcmp(mac->address, address, sizeof mac->address) != 0)
        mac = mac == &f->macs[MACS_MAX - 1] ? f->macs : mac + 1;
    return mac;
}

static void mac_learn(struct fabric *f, const uint8_t *address, int port)
{
    struct mac *mac = mac_find(f, address);
    if (address[0] & 1)
        return;
    if (!mac->used && f->mac_count == MACS_MAX / 2)
        return; /* its frames are flooded */
    f->mac_count += !mac->used;
    memcpy(mac->address, address, sizeof mac->address);
    mac->used = 1;
    mac->port = (uint8_t)port;
}

/* The port of a frame's target, -1 for all. */
static int target_of(struct fabric *f, const uint8_t *address)
{
    if (address[0] & 1)
        return -1;
    const struct mac *mac = mac_find(f, address);
    return mac->used ? mac->port : -1;
}

/* ---- in ---- */

/* How many segments may travel as one from a to b. */
static uint32_t together(const struct fabric *f, int a, int b, const struct segments *s)
{
    if (s->count == 1 || b < 0)
        return 1;
    const struct line *line = &f->lines[a][b];
    const struct stage *stages[] = {&f->ports[a].up, &line->stage, &f->ports[b].down};
    uint64_t most = effects_single(&line->effects) ? 1 : s->count, wire = segments_wire(s, 0, 1);
    for (int i = 0; i < 3; i++) {
        uint64_t one = stage_time(stages[i], wire);
        if (one && most > TOGETHER_NS / one)
            most = TOGETHER_NS / one;
    }
    return most ? (uint32_t)most : 1;
}

static void line_put(struct fabric *f, const struct frame *like, const struct segments *s, uint32_t first,
                     uint32_t count)
{
    struct frame *frame = pool_get(&f->pool, segments_len(s, first, count));
    if (!frame) {
        f->pool_drops++;
        return;
    }
    frame->group_move = like->group_move;
    frame->source = like->source;
    frame->target = like->target;
    frame->len = (uint32_t)segments_cut(s, first, count, frame->data);
    heap_push(&f->heap, frame->group_move.first_ns, frame);
}

/* Segments that are through the uplink of a go onto the line to b. */
static void line_enter(struct fabric *f, struct frame like, const struct segments *s, uint32_t first,
                       uint32_t count)
{
    struct line *line = &f->lines[like.source][like.target];
    int here = f->ports[like.source].group, there = f->ports[like.target].group;
    if (here != there && here != GROUP_ANY && there != GROUP_ANY) {
        line->cut_off++;
        return;
    }
    bool flood = s->data[ETHER_AT] & 1;
    struct fate fate = chance_fate(flood ? &line->flood_chance : &line->chance, &line->effects);
    if (fate.lost) {
        line->lost++;
        return;
    }
    if (!stage_pass(&line->stage, &like.group_move))
        return;
    uint64_t delay = chance_delay(&line->chance, &line->effects, like.group_move.first_ns - f->start_ns);
    if (fate.held)
        delay += line->effects.reorder_ns;
    like.group_move.first_ns += delay;
    like.group_move.last_ns += delay;
    line->held += fate.held;
    line->doubled += fate.doubled;
    line_put(f, &like, s, first, count);
    if (fate.doubled)
        line_put(f, &like, s, first, count);
}

void fabric_accept(struct fabric *f, int port, const uint8_t *data, size_t len, uint64_t now)
{
    struct port *p = &f->ports[port];
    struct segments s;
    if (!segments_parse(&s, data, len)) {
        p->bad_frames++;
        return;
    }
    if (p->frozen) {
        p->frozen_drops++;
        return;
    }
    mac_learn(f, data + ETHER_AT + 6, port);
    int target = target_of(f, data + ETHER_AT);
    if (target == port)
        return;
    uint32_t step = together(f, port, target, &s);
    for (uint32_t first = 0; first < s.count; first += step) {
        uint32_t count = step < s.count - first ? step : s.count - first;
        struct frame like = {
            .source = (uint16_t)port,
            .group_move = {now, now, segments_wire(&s, first, count), segments_wire(&s, first, 1)}};
        if (!stage_pass(&p->up, &like.group_move))
            return;
        for (int b = target < 0 ? 0 : target; b < (target < 0 ? f->count : target + 1); b++) {
            like.target = (uint16_t)b;
            if (b != port)
                line_enter(f, like, &s, first, count);
        }
    }
}

/* ---- out ---- */

static void down_enter(struct fabric *f, struct frame *frame)
{
    struct port *port = &f->ports[frame->target];
    if (!stage_pass(&port->down, &frame->group_move)) {
        pool_put(&f->pool, frame);
        return;
    }
    frame->next = NULL;
    if (port->head)
        port->tail->next = frame;
    else
        port->head = frame;
    port->tail = frame;
}

static void port_deliver(struct fabric *f, struct port *port, uint64_t now)
{
    while (port->head && port->head->group_move.last_ns <= now) {
        struct frame *frame = port->head;
        port->head = frame->next;
        if (port->frozen)
            port->frozen_drops++;
        else if (write(port->fd, frame->data, frame->len) != (ssize_t)frame->len)
            port->host_drops++; /* its device is down or out of memory */
        pool_put(&f->pool, frame);
    }
}

void fabric_run(struct fabric *f, uint64_t now)
{
    while (f->heap.count && f->heap.items[0].at_ns <= now)
        down_enter(f, heap_pop(&f->heap));
    for (int p = 0; p < f->count; p++)
        port_deliver(f, &f->ports[p], now);
}

uint64_t fabric_next(const struct fabric *f)
{
    uint64_t next = f->heap.count ? f->heap.items[0].at_ns : UINT64_MAX;
    for (int p = 0; p < f->count; p++) {
        const struct frame *head = f->ports[p].head;
        if (head && head->group_move.last_ns < next)
            next = head->group_move.last_ns;
    }
    return next;
}

/* ---- counters ---- */

static void stage_stats(FILE *out, const char *name, const struct stage *s)
{
    fprintf(out, "\"%s\":{\"frames\":%" PRIu64 ",\"bytes\":%" PRIu64 ",\"dropped\":%" PRIu64 "}", name,
            s->frames, s->bytes, s->dropped);
}

void fabric_stats(const struct fabric *f, FILE *out)
{
    fprintf(out, "{\"seed\":%" PRIu64 ",\"pool_drops\":%" PRIu64 ",\"ports\":[", f->seed, f->pool_drops);
    for (int p = 0; p < f->count; p++) {
        const struct port *port = &f->ports[p];
        fprintf(out, "%s{\"port\":%d,\"group\":%d,\"frozen\":%s,", p ? "," : "", p, port->group,
                port->frozen ? "true" : "false");
        stage_stats(out, "up", &port->up);
        fputc(',', out);
        stage_stats(out, "down", &port->down);
        fprintf(out, ",\"frozen_drops\":%" PRIu64 ",\"host_drops\":%" PRIu64 ",\"bad_frames\":%" PRIu64 "}",
                port->frozen_drops, port->host_drops, port->bad_frames);
    }
    fputs("],\"lines\":[", out);
    const char *comma = "";
    for (int i = 0; i < f->count * f->count; i++) {
        const struct line *line = &f->lines[i / f->count][i % f->count];
        if (line->stage.frames + line->stage.dropped + line->lost + line->cut_off == 0)
            continue;
        fprintf(out, "%s{\"from\":%d,\"to\":%d,", comma, i / f->count, i % f->count);
        stage_stats(out, "line", &line->stage);
        fprintf(out,
                ",\"lost\":%" PRIu64 ",\"duplicated\":%" PRIu64 ",\"reordered\":%" PRIu64
                ",\"partition\":%" PRIu64 "}",
                line->lost, line->doubled, line->held, line->cut_off);
        comma = ",";
    }
    fputs("]}", out);
}
