/* SPDX-License-Identifier: Apache-2.0 */
/* A member of the group that tells the others whatever it likes: a caller hears of its end within its
 * deadline, and never that nothing has happened. */
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "collective/state.h"
#include "core/bytes.h"
#include "node/node.h"
#include "support/watchdog.h"

#define HONEST(hostile) (1 - (hostile))
#define DEADLINE_MS     2000

/* An error as it travels, with a status that error_encode would not write. */
static void tell(hearth_node *hostile, uint8_t kind, uint64_t group_id, int status)
{
    struct group *group = hearth_world(hostile)->group;
    uint8_t payload[FRAME_CONTROL_MAX];
    struct error why = {.status = HEARTH_ABORTED, .rank = group->rank, .text = "because"};
    struct frame frame = {.kind = kind, .group = group_id, .epoch = group->view.epoch};

    frame.length = (uint32_t)error_encode(&why, payload, sizeof payload);
    store_u32(payload, (uint32_t)status);
    mutex_lock(&hostile->baton);
    group_send(group, HONEST(group->rank), &frame, payload);
    mutex_unlock(&hostile->baton);
}

/* How a call of the honest member ends, to whom the other one says nothing else. */
static struct error end_of_a_call(int hostile, uint8_t kind, int status, bool elsewhere)
{
    struct error end = {0};
    hearth_node *nodes[2];
    hearth_request *request;
    struct hearth_opts opts;
    float x = 1;

    assert_int_equal(hearth_open_local(NULL, 2, nodes), HEARTH_OK);
    hearth_group *world = hearth_world(nodes[HONEST(hostile)]);
    hearth_opts_init(&opts);
    opts.timeout_ms = DEADLINE_MS;
    assert_int_equal(hearth_all_reduce_nb(world, &x, &x, 1, HEARTH_F32, HEARTH_SUM, &opts, &request),
                     HEARTH_OK);
    tell(nodes[hostile], kind, world->group->view.group + elsewhere, status);
    end.status = hearth_wait(request, -1);
    snprintf(end.text, sizeof end.text, "%s", hearth_request_error(request));
    hearth_request_free(request);
    hearth_close(nodes[0]);
    hearth_close(nodes[1]);
    return end;
}

static const struct {
    int hostile; /* rank: verdicts come from the arbiter, disputes go to it */
    uint8_t kind;
    bool elsewhere; /* about a group that the honest member has not made yet */
} words[] = {
    {1, FRAME_ABORT, false}, {1, FRAME_ABORT, true},    {1, FRAME_BYE, false},    {1, FRAME_DISPUTE, false},
    {0, FRAME_ABORT, false}, {0, FRAME_VERDICT, false}, {0, FRAME_VERDICT, true},
};
#define WORDS (sizeof words / sizeof *words)

static void what_is_no_error_ends_nothing_but_the_sender(void **state)
{
    static const int statuses[] = {HEARTH_PENDING, HEARTH_OK, 1, -1, -210, INT_MIN, INT_MAX};

    (void)state;
    watchdog(120, "a status that is no error");
    for (size_t i = 0; i < WORDS; i++)
        for (size_t k = 0; k < sizeof statuses / sizeof *statuses; k++) {
            struct error end =
                end_of_a_call(words[i].hostile, words[i].kind, statuses[k], words[i].elsewhere);
            assert_int_equal(end.status, HEARTH_PEER_LOST);
            assert_non_null(strstr(end.text, "with a bad payload"));
        }
}

static void every_error_ends_a_call_as_one(void **state)
{
    (void)state;
    watchdog(120, "an error that a member sends");
    for (int status = -600; status < 0; status++)
        if (hearth_status_scope(status) != HEARTH_SCOPE_NONE && status != HEARTH_PENDING) {
            struct error end = end_of_a_call(1, FRAME_ABORT, status, false);
            assert_true(status_is_error(end.status));
            assert_string_not_equal(end.text, "");
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_no_error_ends_nothing_but_the_sender),
        cmocka_unit_test(every_error_ends_a_call_as_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
