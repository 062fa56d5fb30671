/* SPDX-License-Identifier: Apache-2.0 */
/* A member of the group that tells the others whatever it likes: a caller hears of its end within its
 * deadline, and never that nothing has happened. */
#include <limits.h>

#include "collective/state.h"
#include "core/bytes.h"
#include "node/node.h"
#include "support/suite.h"
#include "support/watchdog.h"

#define HONEST(hostile) (1 - (hostile))
#define DEADLINE_MS     2000

/* Where the numbers of an error stand, docs/wire.md. */
enum { AT_STATUS = 0, AT_REASON = 4, AT_RANK = 8, AT_ORIGIN = 12 };

/* One number of an error as it travels, that error_encode would not write. */
struct lie {
    size_t at;
    int value;
};

static void tell(hearth_node *hostile, uint8_t kind, uint64_t group_id, struct lie lie)
{
    struct group *group = hearth_node_world(hostile)->group;
    uint8_t payload[FRAME_CONTROL_MAX];
    struct error why = {
        .status = HEARTH_ABORTED, .rank = group->rank, .origin = group->rank, .text = "because"};
    struct frame frame = {.kind = kind, .group = group_id, .epoch = group->view.epoch};

    frame.length = (uint32_t)error_encode(&why, payload, sizeof payload);
    store_u32(payload + lie.at, (uint32_t)lie.value);
    mutex_lock(&hostile->baton);
    group_send(group, HONEST(group->rank), &frame, payload);
    mutex_unlock(&hostile->baton);
}

/* How a call of the honest member ends, to whom the other one says nothing else. */
static struct error end_of_a_call(int hostile, uint8_t kind, struct lie lie, bool elsewhere)
{
    struct error end = {0};
    hearth_node *nodes[2];
    hearth_request *request;
    struct hearth_opts opts;
    float x = 1;

    assert_int_equal(hearth_node_open_local(NULL, 2, nodes), HEARTH_OK);
    hearth_group *world = hearth_node_world(nodes[HONEST(hostile)]);
    hearth_opts_init(&opts);
    opts.timeout_ms = DEADLINE_MS;
    assert_int_equal(hearth_all_reduce_nb(world, &x, &x, 1, HEARTH_F32, HEARTH_OP_SUM, &opts, &request),
                     HEARTH_OK);
    tell(nodes[hostile], kind, world->group->view.group + elsewhere, lie);
    end.status = hearth_request_wait(request, -1);
    snprintf(end.text, sizeof end.text, "%s", hearth_request_error(request));
    hearth_request_close(request);
    hearth_node_close(nodes[0]);
    hearth_node_close(nodes[1]);
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

TEST(what_is_no_error_ends_nothing_but_the_sender)
{
    static const struct lie lies[] = {
        {AT_STATUS, HEARTH_PENDING},
        {AT_STATUS, HEARTH_OK},
        {AT_STATUS, 1},
        {AT_STATUS, -1},
        {AT_STATUS, -290},
        {AT_STATUS, INT_MIN},
        {AT_STATUS, INT_MAX},
        {AT_REASON, REASON_COUNT},
        {AT_REASON, -1},
        {AT_REASON, INT_MIN},
        {AT_RANK, -2},
        {AT_ORIGIN, -2},
        {AT_ORIGIN, INT_MIN},
        {AT_ORIGIN, 2},
        {AT_ORIGIN, INT_MAX},
    };

    watchdog(120, "a number that is none of an error");
    for (size_t i = 0; i < WORDS; i++)
        for (size_t k = 0; k < sizeof lies / sizeof *lies; k++) {
            struct error end = end_of_a_call(words[i].hostile, words[i].kind, lies[k], words[i].elsewhere);
            assert_int_equal(end.status, HEARTH_PEER_LOST);
            assert_non_null(strstr(end.text, "with a bad payload"));
        }
}

TEST(every_error_ends_a_call_as_one)
{
    watchdog(120, "an error that a member sends");
    for (int status = -600; status < 0; status++)
        if (hearth_status_scope(status) != HEARTH_SCOPE_NONE) {
            struct error end = end_of_a_call(1, FRAME_ABORT, (struct lie){AT_STATUS, status}, false);
            assert_true(status_is_error(end.status));
            assert_string_not_equal(end.text, "");
        }
}
