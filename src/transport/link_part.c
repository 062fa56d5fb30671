/* SPDX-License-Identifier: Apache-2.0 */
/* The end of a link: in peace, with a goodbye behind the last frame, or at once. */
#include "transport/link.h"
#include "wire/record.h"

/* ---- closing ---- */

static void drop_data_queues(struct link *link)
{
    for (enum link_class c = 0; c < LINK_CLASSES; c++) {
        struct link_queue *queue = &link->queues[c];
        for (; queue->count > 0; queue->count--) {
            heap_free(queue->items[queue->head].copy);
            queue->head = (queue->head + 1) % LINK_DATA_QUEUE;
        }
    }
}

static void drop_queues(struct link *link)
{
    for (; link->control_count > 0; link->control_count--) {
        heap_free(link->control[link->control_head].copy);
        link->control_head = (link->control_head + 1) % link->control_capacity;
    }
    for (uint64_t left = link->lent_mask; left != 0; left &= left - 1)
        heap_free(link->lent[__builtin_ctzll(left)].copy);
    link->lent_mask = 0;
    drop_data_queues(link);
    heap_free(link->control);
    link->control = NULL;
    link->control_capacity = 0;
}

static void close_pipes(struct link *link)
{
    for (int i = 0; i < link->pipe_count; i++) {
        struct pipe *pipe = &link->pipes[i];
        if (pipe->out_busy)
            heap_free(pipe->out.copy);
        pipe->out_busy = false;
        pipe->conn->transport->close(pipe->conn);
        pipe->conn = NULL;
        pipe->in_target = pipe->in_cookie = NULL;
    }
    link->up = false;
}

void link_fini(struct link *link)
{
    if (!link_up(link))
        return;
    close_pipes(link);
    drop_queues(link);
}

/* ---- saying goodbye ---- */

static void *drop_data(void *arg, struct link *link, int pipe, const struct frame *frame, bool lends,
                       void **cookie)
{
    (void)arg, (void)link, (void)pipe, (void)frame, (void)lends, (void)cookie;
    return NULL;
}

static void drop_payload(void *arg, struct link *link, const struct frame *frame, void *cookie,
                         struct loan *loan)
{
    (void)arg, (void)link, (void)frame, (void)cookie, (void)loan;
}

static void drop_control(void *arg, struct link *link, const struct frame *frame, const uint8_t *payload)
{
    (void)arg, (void)link, (void)frame, (void)payload;
}

static void drop_sent(void *arg, struct link *link, const struct link_item *item)
{
    (void)arg, (void)link, (void)item;
}

static void drop_event(void *arg, struct link *link)
{
    (void)arg, (void)link;
}

static void drop_down(void *arg, struct link *link, const struct error *why)
{
    (void)arg, (void)link, (void)why;
}

static const struct link_events no_events = {
    .on_data = drop_data,
    .on_payload = drop_payload,
    .on_control = drop_control,
    .on_sent = drop_sent,
    .on_room = drop_event,
    .on_held_up = drop_event,
    .on_down = drop_down,
};

/* No data after a goodbye, but the frame that has begun is finished, at once. */
static void begin_bye(struct link *link, const struct error *bye)
{
    link->bye_len = (uint32_t)error_encode(bye, link->bye, sizeof link->bye);
    link->parting = true;
    drop_data_queues(link);
    link->throttle = NULL;
    for (int i = 0; i < link->pipe_count; i++) {
        link->pipes[i].out.owner = NULL;
        link->pipes[i].out_free = link->pipes[i].out_len;
    }
}

void link_part(struct link *link, const struct error *bye)
{
    if (!link_up(link) || link->parting)
        return;
    link->events = &no_events;
    for (int i = 0; i < link->pipe_count; i++)
        link->pipes[i].in_target = link->pipes[i].in_cookie = NULL;
    begin_bye(link, bye);
}

void link_dismiss(struct link *link, const struct error *bye)
{
    if (!link_up(link) || link->parting)
        return;
    begin_bye(link, bye);
    link_pump_out(link);
    link_lost(link, bye->reason, bye->text);
}

/* Whether every pipe has said goodbye and nothing of it is held. */
static bool bye_left(const struct link *link)
{
    for (int i = 0; i < link->pipe_count; i++)
        if (!link->pipes[i].said_bye || link->pipes[i].out_busy || pipe_holds(&link->pipes[i]))
            return false;
    return true;
}

/* Our last word is out: those that must not be closed yet are read until the peer has closed its end. */
void link_part_on(struct link *link)
{
    bool wait = false;
    if (!link->parting || link->finished || link->failure.status != HEARTH_OK || !bye_left(link))
        return;
    link->finished = true;
    for (int i = 0; i < link->pipe_count; i++) {
        struct conn *conn = link->pipes[i].conn;
        if (!conn->transport->finish)
            continue;
        conn->transport->finish(conn);
        wait = true;
    }
    if (!wait)
        link_fail(link, HEARTH_CLOSED, "it was closed");
}
