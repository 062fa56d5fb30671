/* SPDX-License-Identifier: Apache-2.0 */
/* Serialisers, and chance by a seed. Pure: the time is an argument. */
#include "net/shape.h"

/* Jitter goes from one drawn value to the next in this time or longer. */
#define WANDER_NS 10000000ull

/* ---- serialiser ---- */

uint64_t stage_time(const struct stage *stage, uint64_t wire)
{
    return stage->rate ? wire * 8 * NS_PER_S / stage->rate : 0;
}

/* Segments that travel as one are a pipeline: the first leaves while the others still come in. All of them
   are through when the stage has sent them all, and not before the last one, once it is in, is sent. */
bool stage_pass(struct stage *stage, struct group_move *p)
{
    uint64_t whole = stage_time(stage, p->wire), one = stage_time(stage, p->segment);
    uint64_t begin = stage->free_ns > p->first_ns ? stage->free_ns : p->first_ns;
    uint64_t limit = stage->queue_len ? stage_time(stage, stage->queue_len) : stage->queue_ns;
    if (stage->rate && limit && begin - p->first_ns + whole > limit) {
        stage->dropped++;
        return false;
    }
    stage->frames++;
    stage->bytes += p->wire;
    if (!stage->rate)
        return true;
    uint64_t trail = p->last_ns + one;
    p->first_ns = begin + one;
    p->last_ns = begin + whole > trail ? begin + whole : trail;
    stage->free_ns = p->last_ns;
    return true;
}

/* ---- chance ---- */

enum draw { DRAW_LOSS, DRAW_STATE, DRAW_BAD, DRAW_REORDER, DRAW_DUPLICATE, DRAW_JITTER };

/* The finaliser of splitmix64. */
static uint64_t mix(uint64_t x)
{
    x += 0x9e3779b97f4a7c15ull;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
    return x ^ (x >> 31);
}

/* 0 <= x < 1. Each use of a frame's number has its own draw: that one effect is on changes no other. */
static double uniform(const struct chance *chance, uint64_t number, enum draw draw)
{
    return (double)(mix(mix(chance->key ^ number) + (uint64_t)draw) >> 11) * 0x1p-53;
}

void chance_init(struct chance *chance, uint64_t seed, uint64_t stream)
{
    *chance = (struct chance){.key = mix(mix(seed) + stream)};
}

bool effects_single(const struct effects *e)
{
    return e->loss > 0 || e->bad_enter > 0 || e->reorder > 0 || e->duplicate > 0;
}

struct fate chance_fate(struct chance *chance, const struct effects *e)
{
    uint64_t number = chance->count++;
    if (!effects_single(e))
        return (struct fate){.lost = false};
    double state = uniform(chance, number, DRAW_STATE);
    chance->bad = chance->bad ? state >= e->bad_leave : state < e->bad_enter;
    return (struct fate){
        .lost = uniform(chance, number, DRAW_LOSS) < e->loss ||
                (chance->bad && uniform(chance, number, DRAW_BAD) < e->bad_loss),
        .doubled = uniform(chance, number, DRAW_DUPLICATE) < e->duplicate,
        .held = uniform(chance, number, DRAW_REORDER) < e->reorder,
    };
}

/* The slope of the wander is less than 1/2 in either direction; that is what keeps frames in order. */
uint64_t chance_delay(const struct chance *chance, const struct effects *e, uint64_t since_ns)
{
    if (!e->jitter_ns)
        return e->delay_ns;
    uint64_t period = e->jitter_ns * 4 > WANDER_NS ? e->jitter_ns * 4 : WANDER_NS;
    uint64_t at = since_ns / period;
    double from = uniform(chance, at, DRAW_JITTER), to = uniform(chance, at + 1, DRAW_JITTER);
    double share = from + (to - from) * (double)(since_ns % period) / (double)period;
    double delay = (double)e->delay_ns + (2 * share - 1) * (double)e->jitter_ns;
    return delay > 0 ? (uint64_t)delay : 0;
}
