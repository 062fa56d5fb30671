/* SPDX-License-Identifier: Apache-2.0 */
/* One program that a command with a life of its own starts and looks after. */
#include "cli/run/child.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "cli/shared/args.h"
#include "core/types.h"
#include "os/clock.h"
#include "security/vault.h"

#define STOP_NS (5 * NS_PER_S) /* from SIGTERM to SIGKILL, and from there to giving up the agent */

bool child_process_start(struct child_process *w, const struct child_process_plan *plan,
                         struct output *output)
{
    const struct agent_plan start = {.vars = plan->vars, .args = plan->args};
    *w = (struct child_process){.asked = false};
    agent_init(&w->agent, output, plan->rank);
    if (plan->token)
        snprintf(w->token, sizeof w->token, "%s", plan->token);
    if (agent_start(&w->agent, &start))
        return true;
    child_process_stop(w);
    while (!child_process_over(w)) {
        (void)poll(NULL, 0, 10);
        child_process_tend(w);
    }
    snprintf(w->why, sizeof w->why, "%s", w->agent.why);
    return false;
}

static bool take(void *arg, const struct launch_message *m)
{
    struct child_process *w = arg;
    if (m->kind == LAUNCH_HELLO) {
        if (!agent_welcome(&w->agent, w->token[0] ? w->token : NULL, false))
            launch_stream_close(&w->agent.down); /* the agent ends then */
        wipe(w->token, sizeof w->token);
    } else if ((m->kind == LAUNCH_FAILED || m->kind == LAUNCH_END) && !w->ended) {
        w->ended = true;
        w->signal = m->signal;
        w->code = m->signal ? 128 + m->signal : m->number;
        snprintf(w->why, sizeof w->why, "%s", m->reason);
    }
    return true;
}

void child_process_stop(struct child_process *w)
{
    if (w->asked || child_process_over(w))
        return;
    w->asked = true;
    w->next_ns = clock_real() + STOP_NS;
    if (w->agent.greeted)
        agent_signal(&w->agent, PASS_TERM);
    else
        launch_stream_close(
            &w->agent.down); /* there is no program yet: the agent sees that nobody wants one */
}

static void escalate(struct child_process *w)
{
    if (!w->asked || child_process_over(w) || clock_real() < w->next_ns)
        return;
    w->next_ns = clock_real() + STOP_NS;
    if (w->kills++ == 0)
        agent_signal(&w->agent, PASS_KILL);
    else
        kill(w->agent.pid, SIGKILL); /* its program follows it */
}

void child_process_polls(const struct child_process *w, struct pollfd polls[CHILD_PROCESS_POLLS])
{
    agent_polls(&w->agent, polls);
}

void child_process_tend(struct child_process *w)
{
    int status;
    if (agent_hear(&w->agent, take, w) < 0)
        launch_stream_close(&w->agent.up);
    escalate(w);
    if (agent_reap(&w->agent, take, w, &status) == 0)
        return;
    wipe(w->token, sizeof w->token);
    if (w->ended)
        return;
    w->ended = true;
    w->code = w->asked ? 128 + SIGTERM : EXIT_FAILED_CHECK;
    snprintf(w->why, sizeof w->why, "its host agent was lost");
}

int child_process_patience_ms(const struct child_process *w)
{
    uint64_t now = clock_real();
    if (!child_process_over(w) && w->agent.up.fd < 0)
        return 20; /* it is about to end, and nothing but a look tells */
    if (!w->asked || child_process_over(w))
        return -1;
    return w->next_ns > now ? (int)((w->next_ns - now) / NS_PER_MS) + 1 : 0;
}

bool child_process_over(const struct child_process *w)
{
    return w->agent.pid == 0;
}
