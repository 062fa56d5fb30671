/* SPDX-License-Identifier: Apache-2.0 */
/* What was measured of a path is kept for as long as the path looks the same, and no longer. */
#include "node/transport_choice.h"
#include "os/clock.h"
#include "support/suite.h"

#define MINUTE (60 * NS_PER_S)

static struct transport_choices choices;

static int open_choices(void **state)
{
    return transport_choices_init(&choices);
}

static int close_choices(void **state)
{
    transport_choices_fini(&choices);
    return 0;
}

static struct transport_path path_of(unsigned peer, const char *addr, uint64_t round_trip_ms)
{
    struct transport_path path = {.round_trip_ns = round_trip_ms * NS_PER_MS};
    memset(&path.node, 0, sizeof path.node);
    memcpy(&path.node, &peer, sizeof peer);
    assert_int_equal(sock_addr_parse(addr, 1, &path.addr), HEARTH_OK);
    return path;
}

static void keep(unsigned peer, uint64_t now_ns, bool quic)
{
    struct transport_path path = path_of(peer, "10.0.0.1:5000", 40);
    transport_choice_keep(&choices, &path, now_ns, &(struct transport_choice){quic, "measured"});
}

static bool found(unsigned peer, const char *addr, uint64_t round_trip_ms, uint64_t now_ns)
{
    struct transport_path path = path_of(peer, addr, round_trip_ms);
    struct transport_choice choice;
    return transport_choice_find(&choices, &path, now_ns, &choice);
}

TEST_WITH(kept_while_the_path_looks_the_same, open_choices, close_choices)
{
    struct transport_path path = path_of(1, "10.0.0.1:6000", 50);
    struct transport_choice choice;

    assert_false(found(1, "10.0.0.1:5000", 40, MINUTE));
    keep(1, MINUTE, true);
    assert_true(transport_choice_find(&choices, &path, 2 * MINUTE, &choice)); /* another port, 50 ms */
    assert_true(choice.quic);
    assert_string_equal(choice.reason, "measured");
    assert_true(found(1, "10.0.0.1:5000", 21, 2 * MINUTE));
    assert_true(found(1, "10.0.0.1:5000", 79, 2 * MINUTE));
}

TEST_WITH(another_path_is_measured_again, open_choices, close_choices)
{
    keep(1, MINUTE, true);
    assert_false(found(2, "10.0.0.1:5000", 40, 2 * MINUTE));
    assert_false(found(1, "10.0.0.2:5000", 40, 2 * MINUTE));
    assert_false(found(1, "10.0.0.1:5000", 19, 2 * MINUTE));
    assert_false(found(1, "10.0.0.1:5000", 81, 2 * MINUTE));
    assert_true(found(1, "10.0.0.1:5000", 40, 30 * MINUTE));
    assert_false(found(1, "10.0.0.1:5000", 40, 31 * MINUTE));
}

TEST_WITH(the_newest_counts, open_choices, close_choices)
{
    struct transport_path path = path_of(1, "10.0.0.1:5000", 40);
    struct transport_choice choice;

    keep(1, MINUTE, true);
    keep(1, 2 * MINUTE, false);
    assert_true(transport_choice_find(&choices, &path, 3 * MINUTE, &choice));
    assert_false(choice.quic);
    transport_choice_forget(&choices, &path.node);
    assert_false(found(1, "10.0.0.1:5000", 40, 3 * MINUTE));
}

TEST_WITH(the_oldest_gives_way, open_choices, close_choices)
{
    for (unsigned i = 0; i <= TRANSPORT_CHOICES_MAX; i++)
        keep(i, MINUTE + i, true);
    assert_false(found(0, "10.0.0.1:5000", 40, 2 * MINUTE));
    for (unsigned i = 1; i <= TRANSPORT_CHOICES_MAX; i++)
        assert_true(found(i, "10.0.0.1:5000", 40, 2 * MINUTE));
}
