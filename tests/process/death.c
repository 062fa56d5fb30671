/* SPDX-License-Identifier: Apache-2.0 */
/* Strikes a member down, and looks whether the others notice in time. */
#include "process/death.h"

#include <signal.h>
#include <unistd.h>

#include "support/watchdog.h"

#define SILENCE_MS   60000 /* no test waits for it: who else is silent for a while waits for a processor */
#define TOGETHER_MAX 4

void death_expect(const struct death *d)
{
    set_number_env("HEARTH_PEER_TIMEOUT_MS",
                   d->signal == SIGSTOP ? PEER_TIMEOUT_MS * slow_factor() : SILENCE_MS);
}

void death_close(hearth_node *node, struct note *note)
{
    uint64_t begin = now_ns();
    hearth_node_close(node);
    atomic_store(&note->close_ns, now_ns() - begin);
}

void trial_strike(struct trial *s, unsigned us_max)
{
    uint64_t seed = s->death.seed ^ 0xdead;
    struct team *team = &s->team;
    if (!team_ready(team, 30))
        return;
    usleep((unsigned)draw_below(&seed, us_max)); /* anywhere in an operation, not at its beginning */
    s->end_ns = now_ns();
    if (s->death.signal != 0)
        team_kill(team, s->death.victim, s->death.signal);
    atomic_store(&team->board->stop, true);
    if (s->death.resting)
        usleep((unsigned)draw_below(&seed, 20000)); /* so that the others know it already, or do not */
    atomic_store(&team->board->go, true);
}

/* The frozen one may live on when the others are through: it must see that it is alone. */
static void thaw(struct trial *s)
{
    struct team *team = &s->team;
    uint64_t deadline = now_ns() + (uint64_t)(FROZEN_MS_MAX * slow_factor()) * 1000000u;
    for (int i = 0; i < team->size; i++)
        while (i != s->death.victim && atomic_load(&team->board->notes[i].close_ns) == 0 &&
               now_ns() < deadline)
            sleep_ms(1);
    team_kill(team, s->death.victim, SIGCONT);
}

void trial_end(struct trial *s, const struct trial_plan *plan, double worst[2])
{
    struct team *team = &s->team;
    double limit = (s->death.signal == SIGSTOP ? FROZEN_MS_MAX : CLOSED_MS_MAX) * slow_factor();
    if (s->death.signal == SIGSTOP)
        thaw(s);
    team_join(team, 30);
    atomic_store(&team->board->over, true);
    for (int i = 0; i < team->size; i++) {
        const struct note *note = &team->board->notes[i];
        double ms = note->failed_ns > s->end_ns ? (double)(note->failed_ns - s->end_ns) / 1e6 : 0;
        double close_ms = (double)note->close_ns / 1e6;
        if (i == s->death.victim)
            continue;
        check(ms < limit && close_ms < limit,
              "seed %llu, %s: rank %d of %d needed %.0f ms to fail, %.0f to close",
              (unsigned long long)s->death.seed, team->transport, i, team->size, ms, close_ms);
        worst[0] = ms > worst[0] ? ms : worst[0];
        worst[1] = close_ms > worst[1] ? close_ms : worst[1];
    }
    if (plan->inspect)
        plan->inspect(s);
    team_free(team);
}

static void trial_begin(struct trial *s, const struct trial_plan *plan, unsigned long number)
{
    int size = 2 + (int)(number / 2 % (unsigned long)(plan->size_max - 1));
    s->death.seed = first_seed() + number;
    uint64_t seed = s->death.seed;
    s->death.victim = (int)draw_below(&seed, (uint64_t)size);
    s->death.shared = draw(&seed) & 1;
    team_start(&s->team, size, plan->transports[number % plan->transport_count], plan->member, &s->death);
    trial_strike(s, plan->strike_us_max);
}

void scenes_play(const struct trial_plan *plan, struct death death)
{
    double worst[2] = {0};
    for (unsigned long i = 0; i < plan->count; i += plan->together) {
        struct trial trials[TOGETHER_MAX] = {0};
        watchdog(200 * (unsigned)slow_factor(), plan->what);
        for (unsigned long j = 0; j < plan->together; j++) {
            trials[j].death = death;
            trial_begin(&trials[j], plan, i + j);
        }
        for (unsigned long j = 0; j < plan->together; j++)
            trial_end(&trials[j], plan, worst);
        checks_end();
    }
    print_message("%s: %lu times; slowest error %.1f ms, slowest close %.1f ms\n", plan->what, plan->count,
                  worst[0], worst[1]);
}
