/* SPDX-License-Identifier: Apache-2.0 */
/* The public interface of requests. */
#include <inttypes.h>
#include <string.h>

#include "node/node.h"

/* How long wait_any sleeps at one node's bell when requests of several nodes are waited for. */
#define TURN_NS (NS_PER_MS / 2)

static int refuse(int status, const char *text)
{
    return error_set(error_last(), status, RANK_NONE, "%s", text);
}

static int request_check(const hearth_request *request, const char *text)
{
    if (!request)
        return refuse(HEARTH_INVALID, text);
    return node_forked(request->node) ? refuse(HEARTH_FORKED, hearth_status_text(HEARTH_FORKED)) : HEARTH_OK;
}

/* -1 and very long timeouts: the operations have their own deadlines. */
static uint64_t deadline_of(int64_t timeout_ms)
{
    uint64_t now = clock_real();
    if (timeout_ms < 0 || (uint64_t)timeout_ms >= (NEVER_NS - now) / NS_PER_MS)
        return NEVER_NS;
    return now + (uint64_t)timeout_ms * NS_PER_MS;
}

static int timeout_check(int64_t timeout_ms)
{
    if (timeout_ms >= -1)
        return HEARTH_OK;
    return error_set(error_last(), HEARTH_INVALID, RANK_NONE,
                     "wait: timeout_ms is %" PRId64 "; it takes -1 or more", timeout_ms);
}

static int report(hearth_request *request, int status)
{
    if (status != HEARTH_OK && status != HEARTH_PENDING)
        *error_last() = request->completion.error;
    return status;
}

int hearth_request_test(hearth_request *request)
{
    int status = request_check(request, "test: request is NULL");
    return status != HEARTH_OK ? status : report(request, node_test(request));
}

int hearth_request_wait(hearth_request *request, int64_t timeout_ms)
{
    int status = timeout_check(timeout_ms);
    if (status == HEARTH_OK)
        status = request_check(request, "wait: request is NULL");
    return status != HEARTH_OK ? status : report(request, node_wait(request, deadline_of(timeout_ms)));
}

int hearth_request_wait_all(hearth_request *const *requests, size_t count, int64_t timeout_ms)
{
    uint64_t deadline = deadline_of(timeout_ms);
    int first = timeout_check(timeout_ms);
    if (first != HEARTH_OK)
        return first;
    if (!requests && count > 0)
        return refuse(HEARTH_INVALID, "wait_all: requests is NULL");
    for (size_t i = 0; i < count; i++) {
        if (!requests[i])
            continue;
        int status = request_check(requests[i], "");
        if (status == HEARTH_OK)
            status = node_wait(requests[i], deadline);
        if (status == HEARTH_PENDING || status == HEARTH_FORKED)
            return status;
        if (first == HEARTH_OK)
            first = report(requests[i], status);
    }
    return first;
}

/* Checks each once; requests of one node are driven together. */
static int test_each(hearth_request *const *requests, size_t count, size_t *index)
{
    for (size_t i = 0; i < count; i++) {
        if (!requests[i])
            continue;
        int status = node_test(requests[i]);
        if (status == HEARTH_PENDING)
            continue;
        *index = i;
        return report(requests[i], status);
    }
    return HEARTH_PENDING;
}

int hearth_request_wait_any(hearth_request *const *requests, size_t count, int64_t timeout_ms, size_t *index)
{
    uint64_t deadline = deadline_of(timeout_ms);
    size_t first = count;
    for (size_t i = count; requests && i > 0; i--)
        first = requests[i - 1] ? i - 1 : first;
    if (!index)
        return refuse(HEARTH_INVALID, "wait_any: index is NULL");
    if (first == count)
        return error_set(error_last(), HEARTH_INVALID, RANK_NONE,
                         requests ? "wait_any: all %zu requests are NULL"
                                  : "wait_any: requests is NULL (count is %zu)",
                         count);
    int status = timeout_check(timeout_ms);
    if (status == HEARTH_OK)
        status = request_check(requests[first], "");
    if (status != HEARTH_OK)
        return status;
    struct bell *bell = requests[first]->node->bell;
    for (;;) {
        uint32_t heard = bell_heard(bell);
        status = test_each(requests, count, index);
        uint64_t now = clock_real();
        if (status != HEARTH_PENDING || now >= deadline)
            return status;
        uint64_t turn = now + TURN_NS < deadline ? now + TURN_NS : deadline;
        bell_wait(bell, BELL_CALLER, heard, 0, turn);
    }
}

int hearth_request_cancel(hearth_request *request)
{
    int status = request_check(request, "cancel: request is NULL");
    if (status == HEARTH_OK)
        node_cancel(request);
    return status;
}

int hearth_request_fd(hearth_request *request)
{
    int status = request_check(request, "request_fd: request is NULL");
    if (status != HEARTH_OK)
        return status;
    hearth_node *node = request->node;
    mutex_lock(&node->baton);
    if (request->event.read_fd < 0) {
        status = event_open(&request->event);
        if (status == HEARTH_OK && request->settled)
            event_signal(&request->event);
    }
    int fd = request->event.read_fd;
    mutex_unlock(&node->baton);
    return status == HEARTH_OK ? fd : refuse(status, "request_fd: no descriptor from the system");
}

const char *hearth_request_error(const hearth_request *request)
{
    return request && request->settled ? request->text : "";
}

int hearth_request_error_rank(const hearth_request *request)
{
    return request && request->settled ? request->completion.error.rank : RANK_NONE;
}

enum hearth_reason hearth_request_error_reason(const hearth_request *request)
{
    return request && request->settled ? request->completion.error.reason : HEARTH_REASON_NONE;
}

enum hearth_fate hearth_request_error_fate(const hearth_request *request)
{
    return request && request->settled ? request->completion.error.fate : HEARTH_FATE_NONE;
}

void hearth_request_close(hearth_request *request)
{
    if (request && !node_forked(request->node))
        node_release(request);
}
