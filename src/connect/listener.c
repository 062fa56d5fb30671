/* SPDX-License-Identifier: Apache-2.0 */
/* Judges the first words of half-open connections: only a greeting that means us is answered. */
#include "connect/listener.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#define LOCAL_TEXT 64

/* All of it is there. */
static enum half_open_verdict judge_greeting(struct listener *listener,
                                             const struct half_open_incoming *incoming, const uint8_t *bytes,
                                             const char **why)
{
    const struct listener_self *self = &listener->self;
    struct greeting g;

    if (greeting_decode(&g, bytes, why))
        return HALF_OPEN_AWAY;
    if (g.kind != GREETING_GREET)
        *why = "its greeting is an answer to no question";
    else if (self->cluster == 0 || g.cluster != self->cluster)
        *why = "it belongs to another cluster";
    else if (g.to != (uint32_t)self->rank || g.to_instance != self->instance)
        *why = "it looks for another member";
    else if (listener->receiving)
        return HALF_OPEN_THROUGH;
    else {
        listener_refuse(incoming->stream, &g, GREETING_JOINED);
        return HALF_OPEN_TAKEN;
    }
    return HALF_OPEN_AWAY;
}

/* Bytes that cannot become a greeting are not waited for. */
static enum half_open_verdict judge(void *arg, const struct half_open_incoming *incoming,
                                    const uint8_t *bytes, size_t len, size_t *wants, const char **why)
{
    static const uint8_t start[] = {MESSAGE_MAGIC & 0xff, MESSAGE_MAGIC >> 8, MESSAGE_VERSION};

    (void)wants;
    if (memcmp(bytes, start, len < sizeof start ? len : sizeof start) != 0) {
        *why = "what it says is no Hearth greeting";
        return HALF_OPEN_AWAY;
    }
    return len < GREETING_LEN ? HALF_OPEN_MORE : judge_greeting(arg, incoming, bytes, why);
}

int listener_open(const struct half_open_setup *setup, struct listener **out, struct error *error)
{
    struct listener *listener = heap_alloc(setup->heap, 1, sizeof *listener);
    struct half_open_setup half_open = *setup;

    half_open.words_first = half_open.words_max = GREETING_LEN;
    half_open.judge = judge;
    half_open.arg = listener;
    if (!listener)
        return error_set(error, HEARTH_NO_MEMORY, RANK_NONE, "no memory for the listening port");
    int status = half_open_open(&half_open, &listener->half_open, error);
    if (status) {
        heap_free(listener);
        return status;
    }
    *out = listener;
    return HEARTH_OK;
}

void listener_close(struct listener *listener)
{
    if (!listener)
        return;
    half_open_close(listener->half_open);
    heap_free(listener);
}

void listener_local_addr(uint64_t cluster, int rank, struct sock_addr *out)
{
    char text[LOCAL_TEXT];

    snprintf(text, sizeof text, "unix:@hearth-%016llx-%d", (unsigned long long)cluster, rank);
    int status = sock_addr_parse(text, 0, out);
    assert(status == HEARTH_OK); /* plain and short */
    (void)status;
}

int listener_open_local(struct listener *listener, struct error *error)
{
    struct sock_addr addr;

    listener_local_addr(listener->self.cluster, listener->self.rank, &addr);
    return half_open_listen(listener->half_open, &addr, error);
}

void listener_refuse(struct secure_stream *stream, const struct greeting *greeting,
                     enum greeting_reason reason)
{
    struct greeting answer = {
        .kind = GREETING_REFUSE,
        .reason = (uint8_t)reason,
        .channel = greeting->channel,
        .channels = greeting->channels,
        .from = greeting->to,
        .to = greeting->from,
        .cluster = greeting->cluster,
        .from_instance = greeting->to_instance,
        .to_instance = greeting->from_instance,
    };
    uint8_t bytes[GREETING_LEN];

    greeting_encode(&answer, bytes);
    /* It fits into an empty socket, or the socket is broken; either way we are through with it. */
    (void)secure_stream_send(stream, bytes, sizeof bytes);
    secure_stream_close(stream);
}

void listener_receive(struct listener *listener, const struct listener_self *self)
{
    listener->self = *self;
    listener->receiving = true;
    half_open_trust(listener->half_open, self->credentials);
}

void listener_settle(struct listener *listener)
{
    struct half_open_incoming incoming;
    struct greeting greeting;

    while (listener_take(listener, &incoming, &greeting))
        listener_refuse(incoming.stream, &greeting, GREETING_JOINED);
    listener->receiving = false;
    if (listener->self.credentials)
        half_open_settle(listener->half_open, "we are joined to all");
    listener->self.credentials = NULL;
    half_open_trust(listener->half_open, NULL);
    half_open_close_local(listener->half_open);
}

bool listener_take(struct listener *listener, struct half_open_incoming *incoming, struct greeting *greeting)
{
    uint8_t bytes[GREETING_LEN];
    size_t len;
    const char *what;

    if (!half_open_take(listener->half_open, incoming, bytes, &len))
        return false;
    int status = greeting_decode(greeting, bytes, &what);
    assert(status == HEARTH_OK); /* it was judged */
    (void)status;
    return true;
}
