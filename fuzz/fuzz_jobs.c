/* SPDX-License-Identifier: Apache-2.0 */
/* The first byte says which message. One that is accepted must encode to the bytes it came from; a machine
 * that requests, leads or follows takes all of them without harm. */
#include <stdlib.h>
#include <string.h>

#include "membership/jobs_messages.h"

static void fill(struct view *view)
{
    memset(view, 0, sizeof *view);
    view->instance = 77;
    view->epoch = 5;
    view->term = 3;
    view->size = 3;
    for (int i = 0; i < view->size; i++) {
        memset(view->members[i].id.node.bytes, 0xa5, NODE_ID_LEN);
        view->members[i].id.node.bytes[0] = (uint8_t)i;
        view->members[i].id.instance = UINT64_C(0x1000) + (uint64_t)i;
    }
}

/* As member 1, led by 0 or by ourselves; the message comes from 0. */
static void feed(uint8_t kind, const uint8_t *bytes, size_t len, bool leads, bool malformed)
{
    static struct view view;
    const struct job_request request = {.job = "red", .min = 1, .settings = "v=1"};
    struct heap heap;
    struct outbox box;
    struct jobs *jobs;
    struct job_news news;
    struct error error;
    const char *what = NULL;

    heap_init(&heap, 0);
    outbox_init(&box, &heap);
    fill(&view);
    view.leader = leads;
    struct jobs_setup setup = {.heap = &heap, .outbox = &box, .self = view.members[1].id, .seed = 1};
    if (jobs_open(&setup, &jobs))
        abort();
    jobs_view(jobs, &view, leads, true, 1);
    if (jobs_request(jobs, &request, 0, 1, &error))
        abort();
    jobs_tick(jobs, 1);
    int status = jobs_input(jobs, &(struct received){&view.members[0].id, kind, bytes, len}, 2, &what);
    if (status != HEARTH_OK && (status != HEARTH_PROTOCOL || !what))
        abort();
    if (malformed && status == HEARTH_OK)
        abort();
    for (uint64_t now_ns = 2; now_ns < 4 * NS_PER_S; now_ns += 200 * NS_PER_MS)
        jobs_tick(jobs, now_ns);
    while (jobs_news(jobs, &news))
        if (news.kind == JOB_FORMED && news.spec->size < 1)
            abort();
    jobs_close(jobs);
    outbox_fini(&box);
    if (heap.blocks != 0)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    static uint8_t again[MESSAGE_PAYLOAD_MAX];
    static struct report report;
    static struct form form;
    static struct board board;
    const char *what = NULL;
    size_t again_len = 0;
    int status = HEARTH_PROTOCOL;

    if (len < 1 || len > sizeof again)
        return 0;
    uint8_t kind = (uint8_t)(MESSAGE_REPORT + bytes[0] % 3);
    bytes++;
    len--;
    if (kind == MESSAGE_REPORT && (status = report_decode(&report, bytes, len, &what)) == HEARTH_OK)
        again_len = report_encode(&report, again, sizeof again);
    if (kind == MESSAGE_FORM && (status = form_decode(&form, bytes, len, &what)) == HEARTH_OK)
        again_len = form_encode(&form, again, sizeof again);
    if (kind == MESSAGE_BOARD && (status = board_decode(&board, bytes, len, &what)) == HEARTH_OK)
        again_len = board_encode(&board, again, sizeof again);
    if (status ? !what : again_len != len || memcmp(again, bytes, len) != 0)
        abort();
    feed(kind, bytes, len, false, status != HEARTH_OK);
    feed(kind, bytes, len, true, status != HEARTH_OK);
    return 0;
}
