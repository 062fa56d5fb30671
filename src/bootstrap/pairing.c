/* SPDX-License-Identifier: Apache-2.0 */
/* One end of a pair that is being joined: a table of tries, channel by way, and what was kept. */
#include "bootstrap/pairing.h"

#include <assert.h>

#define BYTES_EACH     (512.0 * 1024)
#define DATA_MAX       (MESH_CHANNELS_MAX - 1)
#define OTHER_START_NS NS_PER_S /* of the way that worked for channel 0, before the others */

int pairing_channels(const struct pairing_setup *setup, uint64_t round_trip_ns)
{
    if (setup->channels > 0)
        return setup->channels;
    if (round_trip_ns < MESH_FAR_NS)
        return MESH_CHANNELS_NEAR;
    double product = setup->rate_bytes_per_s * ((double)round_trip_ns / 1e9);
    int data = 1;
    while (data < DATA_MAX && product > (double)data * BYTES_EACH)
        data++;
    return 1 + data;
}

/* ---- tries -------------------------------------------------------------------------------------------- */

static void channel_stop(struct pairing *p, struct pairing_channel *c)
{
    for (int via = 0; via < PAIRING_VIAS; via++) {
        dialer_cancelled(p->setup.dialer, &c->tries[via]);
        dialer_unwant(p->setup.dialer, &c->tries[via]);
    }
}

/* All addresses, each a head start after the one before. `first` (-1: none) goes before all others. */
static void channel_start(struct pairing *p, struct pairing_channel *c, int first, uint64_t at_ns)
{
    for (int via = 0; via < p->setup.addr_count; via++) {
        uint64_t late = (uint64_t)via * PAIRING_HEAD_START_NS;
        if (first >= 0)
            late = via == first ? 0 : OTHER_START_NS + late;
        dialer_want_anew(p->setup.dialer, &c->tries[via], at_ns + late);
    }
}

/* As long as the peer may need for all its own tries. */
static void patience_renew(struct pairing *p, uint64_t now_ns)
{
    uint64_t attempts = (uint64_t)p->setup.connect_retries + 1;

    p->patience_ns =
        now_ns + PAIRING_LOWER_NS + attempts * (p->setup.connect_timeout_ns + PAIRING_BACKOFF_MAX);
}

void pairing_init(struct pairing *p, const struct pairing_setup *setup, uint64_t now_ns)
{
    uint64_t theirs_ns = setup->decides ? now_ns + PAIRING_LOWER_NS : 0;
    uint64_t first = setup->decides ? theirs_ns : now_ns;

    assert(setup->addr_count >= 0 && setup->addr_count <= ROSTER_ADDRS_MAX);
    *p = (struct pairing){.setup = *setup, .theirs_ns = theirs_ns};
    if (!setup->remote)
        p->setup.addr_count = 0;
    patience_renew(p, now_ns);
    for (int i = 0; i < PAIRING_TARGETS; i++)
        dial_target_init(&p->channels[i / PAIRING_VIAS].tries[i % PAIRING_VIAS], setup->key + (uint32_t)i);
    if (setup->local)
        dialer_want(setup->dialer, &p->channels[0].tries[PAIRING_LOCAL], first);
    else
        channel_start(p, &p->channels[0], -1, first);
}

static int channels_known(const struct pairing *p)
{
    return p->count > 0 ? p->count : 1;
}

void pairing_yield(struct pairing *p, uint64_t now_ns)
{
    uint64_t until_ns = now_ns + PAIRING_LOWER_NS;

    if (p->theirs_ns == 0 || until_ns <= p->theirs_ns)
        return;
    for (int i = 0; i < MESH_CHANNELS_MAX; i++) {
        for (int via = 0; via < PAIRING_VIAS; via++) {
            struct dial_target *t = &p->channels[i].tries[via];
            if (dial_target_wanted(t) && !dial_target_busy(t) && t->tries == 0)
                dialer_want(p->setup.dialer, t, t->next_ns + until_ns - p->theirs_ns);
        }
    }
    p->theirs_ns = until_ns;
}

bool pairing_fall_back(struct pairing *p, uint64_t now_ns)
{
    if (!p->setup.local || !p->setup.remote || p->fallen_back || p->channels[0].kept)
        return false;
    p->fallen_back = true;
    channel_stop(p, &p->channels[0]);
    channel_start(p, &p->channels[0], -1, now_ns);
    return true;
}

/* ---- sockets ------------------------------------------------------------------------------------------ */

static bool kind_fits(const struct pairing *p, int channel, bool local)
{
    if (local)
        return p->setup.local && channel == 0;
    return p->setup.remote;
}

static void round_trip_seen(struct pairing *p, uint64_t round_trip_ns)
{
    if (round_trip_ns > 0 && (p->round_trip_ns == 0 || round_trip_ns < p->round_trip_ns))
        p->round_trip_ns = round_trip_ns;
}

/* `via`: the address that we dialled, -1: the peer dialled. The end that dialled channel 0 dials the others,
 * too, at the same address. */
static void channel_keep(struct pairing *p, int channel, int via, bool local, uint64_t now_ns)
{
    struct pairing_channel *c = &p->channels[channel];

    c->kept = true;
    p->kept++;
    if (via >= 0)
        dialer_kept(p->setup.dialer, &c->tries[via], p->round_trip_ns, now_ns);
    channel_stop(p, c);
    patience_renew(p, now_ns);
    if (channel != 0)
        return;
    p->kept_local = local;
    p->theirs_ns = via < 0 ? now_ns + PAIRING_LOWER_NS : 0;
    for (int i = 1; i < p->count; i++)
        if (!p->channels[i].kept)
            channel_start(p, &p->channels[i], via, via < 0 ? p->theirs_ns : now_ns);
}

/* The lower rank: decides the number with channel 0. */
static enum pairing_verdict decide(struct pairing *p, int channel, int via, bool local, uint64_t now_ns)
{
    if (channel == 0)
        p->count = local ? 1 : pairing_channels(&p->setup, p->round_trip_ns);
    if (channel >= p->count)
        return PAIRING_DROP;
    channel_keep(p, channel, via, local, now_ns);
    return PAIRING_KEEP;
}

/* The higher rank: the number must be there, and always the same. */
static enum pairing_verdict obey(struct pairing *p, int channel, int channels, int via, bool local,
                                 uint64_t now_ns)
{
    if (channels <= channel || channels > (local ? 1 : MESH_CHANNELS_MAX))
        return PAIRING_DROP;
    if (p->count > 0 && channels != p->count)
        return PAIRING_DROP;
    p->count = channels;
    channel_keep(p, channel, via, local, now_ns);
    return PAIRING_KEEP;
}

enum pairing_verdict pairing_greeted(struct pairing *p, int channel, int channels, bool local,
                                     uint64_t round_trip_ns, uint64_t now_ns)
{
    if (channel >= MESH_CHANNELS_MAX || p->channels[channel].kept || !kind_fits(p, channel, local))
        return PAIRING_DROP;
    round_trip_seen(p, round_trip_ns);
    if (p->setup.decides)
        return decide(p, channel, -1, local, now_ns);
    /* A greeting may overtake the confirmation, on another socket, that tells the number. */
    if (p->count > 0 && channel >= p->count)
        return PAIRING_DROP;
    return channel == 0 || channel < channels ? PAIRING_OFFER : PAIRING_DROP;
}

enum pairing_verdict pairing_welcomed(struct pairing *p, int channel, int channels, int via,
                                      uint64_t round_trip_ns, uint64_t now_ns)
{
    if (p->channels[channel].kept || !kind_fits(p, channel, via == PAIRING_LOCAL))
        return PAIRING_DROP;
    round_trip_seen(p, round_trip_ns);
    if (p->setup.decides)
        return decide(p, channel, via, via == PAIRING_LOCAL, now_ns);
    return obey(p, channel, channels, via, via == PAIRING_LOCAL, now_ns);
}

enum pairing_verdict pairing_confirmed(struct pairing *p, int channel, int channels, bool local,
                                       uint64_t now_ns)
{
    if (p->setup.decides || p->channels[channel].kept)
        return PAIRING_DROP;
    return obey(p, channel, channels, -1, local, now_ns);
}

/* ---- the whole ---------------------------------------------------------------------------------------- */

bool pairing_done(const struct pairing *p)
{
    return p->count > 0 && p->kept == p->count;
}

/* Nothing is dialled for a channel any more, and it is not kept. */
static bool is_stuck(const struct pairing *p)
{
    for (int i = 0; i < channels_known(p); i++) {
        bool wanted = p->channels[i].kept;
        for (int via = 0; via < PAIRING_VIAS; via++)
            wanted = wanted || dial_target_wanted(&p->channels[i].tries[via]);
        if (!wanted)
            return true;
    }
    return false;
}

bool pairing_hopeless(const struct pairing *p, uint64_t now_ns)
{
    return now_ns >= p->patience_ns && is_stuck(p);
}

uint64_t pairing_due(const struct pairing *p)
{
    return is_stuck(p) ? p->patience_ns : NEVER_NS;
}
