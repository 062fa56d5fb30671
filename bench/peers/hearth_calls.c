/* SPDX-License-Identifier: Apache-2.0 */
/* Hearth's remote calls, measured: rank 1 answers with what it was sent. Uses hearth.h only; rank, world and
 * transport come from the environment. */
#include <semaphore.h>
#include <stdio.h>
#include <string.h>

#include <hearth.h>

#include "bench/peers/measure.h"
#include "bench/peers/message_loop.h"

#define WAIT_MS 60000

struct own {
    hearth_node *node;
    hearth_group *world;
    int peer;
    sem_t dismissed;
    hearth_request *requests[WINDOW_MAX];
    struct hearth_message *replies[WINDOW_MAX];
    const void *asked[WINDOW_MAX]; /* what each slot's call carries */
};

static bool good(int status)
{
    if (status != HEARTH_OK)
        fprintf(stderr, "hearth: %s\n", hearth_error_text());
    return status == HEARTH_OK;
}

static bool send_one(void *self, const void *data, size_t len)
{
    const struct own *o = self;
    return good(hearth_send(o->world, o->peer, 0, data, len, NULL));
}

static bool recv_one(void *self, void *data, size_t len)
{
    const struct own *o = self;
    return good(hearth_recv(o->world, o->peer, 0, data, len, NULL, NULL));
}

static void answer(void *arg, hearth_rpc *rpc, const void *request, size_t len)
{
    (void)arg;
    hearth_rpc_reply(rpc, request, len);
}

static void end_service(void *arg, hearth_rpc *rpc, const void *request, size_t len)
{
    struct own *o = arg;
    hearth_rpc_reply(rpc, request, len);
    sem_post(&o->dismissed);
}

static bool serve(void *self)
{
    struct own *o = self;
    while (sem_wait(&o->dismissed) != 0)
        ;
    return true;
}

static bool dismiss(void *self)
{
    const struct own *o = self;
    struct hearth_message *reply;
    if (!good(hearth_rpc_call(o->world, o->peer, "end", NULL, 0, NULL, &reply)))
        return false;
    hearth_message_free(reply);
    return true;
}

static bool start_call(void *self, int slot, const void *data, size_t len)
{
    struct own *o = self;
    o->asked[slot] = data;
    return good(hearth_rpc_call_nb(o->world, o->peer, "answer", data, len, NULL, &o->replies[slot],
                                   &o->requests[slot]));
}

static bool wait_for_answer(void *self, int slot)
{
    struct own *o = self;
    int status = hearth_request_wait(o->requests[slot], WAIT_MS);
    hearth_request_close(o->requests[slot]);
    if (!good(status))
        return false;
    bool same = memcmp(o->replies[slot]->data, o->asked[slot], o->replies[slot]->len) == 0;
    hearth_message_free(o->replies[slot]);
    if (!same)
        fprintf(stderr, "hearth: an answer is not its call's\n");
    return same;
}

static bool setup(struct own *own, struct messenger *messenger)
{
    if (!good(hearth_node_open(NULL, &own->node)))
        return false;
    own->world = hearth_node_world(own->node);
    messenger->rank = hearth_group_rank(own->world);
    own->peer = 1 - messenger->rank;
    messenger->send = send_one;
    messenger->recv = recv_one;
    messenger->start_send = start_call;
    messenger->wait = wait_for_answer;
    messenger->serve = serve;
    messenger->dismiss = dismiss;
    sem_init(&own->dismissed, 0, 0);
    return good(hearth_rpc_register(own->node, "answer", answer, own, NULL)) &&
           good(hearth_rpc_register(own->node, "end", end_service, own, NULL)) &&
           good(hearth_barrier(own->world, NULL)); /* nobody calls before both have registered */
}

int main(int argc, char **argv)
{
    struct setting settings[] = {{"seconds", "0.5"}, {"window", "1"}};
    static struct own own;
    char **sizes = settings_take(argv, settings, 2);
    (void)argc;
    if (!sizes)
        return 2;
    struct messenger messenger = {.name = "hearth", .algo = "calls", .alloc = "private", .self = &own};
    struct course course = {settings[0].value, settings[1].value, sizes[0]};
    int status = setup(&own, &messenger) ? measure_messages(&messenger, &course) : 1;
    hearth_node_close(own.node);
    return status;
}
