/* SPDX-License-Identifier: Apache-2.0 */
/* PROBE, MEASURED and results byte by byte; every one that is cut, too long or out of range is refused. */
#include "cluster/probe_messages.h"
#include "support/suite.h"

static const char *what;

static struct identity person(uint8_t fill)
{
    struct identity id = {.instance = fill};
    memset(id.node.bytes, fill, sizeof id.node.bytes);
    return id;
}

TEST(orders)
{
    static const char *const addrs[] = {NULL, "10.77.0.2:52416", "[fd77::2]:52416"};
    static const size_t lens[] = {45, 52, 64};
    uint8_t bytes[PROBE_MESSAGE_MAX + 1];
    struct probe_order back;

    for (int i = 0; i < 3; i++) {
        struct probe_order order = {.number = 7, .to = person(3)};
        if (addrs[i])
            assert_int_equal(sock_addr_parse(addrs[i], 0, &order.addr), HEARTH_OK);
        assert_int_equal(probe_order_encode(&order, bytes, sizeof bytes), lens[i]);
        assert_true(probe_order_decode(&back, bytes, lens[i], &what));
        assert_int_equal(back.number, 7);
        assert_true(identity_equal(&back.to, &order.to));
        assert_true(sock_addr_equal(&back.addr, &order.addr));
        for (size_t len = 0; len < lens[i]; len++) {
            uint8_t less[PROBE_MESSAGE_MAX];
            assert_false(probe_order_decode(&back, bytes, len, &what));
            assert_int_equal(probe_order_encode(&order, less, len), 0);
        }
        assert_false(probe_order_decode(&back, bytes, lens[i] + 1, &what));
    }
    bytes[45] = 5; /* no family */
    assert_false(probe_order_decode(&back, bytes, 64, &what));
    assert_string_equal(what, "probe: invalid address");
    memset(bytes, 0, 4);
    assert_false(probe_order_decode(&back, bytes, 64, &what));
    assert_string_equal(what, "probe: no number");
}

static struct measured full(int count)
{
    struct measured m = {.number = 9, .outcome = PROBE_FAILED, .count = count};

    for (int i = 0; i < count; i++)
        m.paths[i] = (struct measured_path){.to = person((uint8_t)(i + 1)),
                                            .mbit_x10 = 1000u + (uint32_t)i,
                                            .round_trip_us = 250,
                                            .loss_ppm = 1000000,
                                            .kind = PATH_WIRELESS,
                                            .how = MEASURED_TRAFFIC};
    return m;
}

TEST(measured_is_read_back)
{
    static uint8_t bytes[MEASURED_MESSAGE_MAX + 1];
    struct measured m, back;

    for (int count = 0; count <= MEASURED_PATHS_MAX; count++) {
        size_t len = 8 + (size_t)count * 56;
        m = full(count);
        assert_int_equal(measured_encode(&m, bytes, sizeof bytes), len);
        assert_true(measured_decode(&back, bytes, len, &what));
        assert_true(back.number == 9 && back.outcome == PROBE_FAILED && back.count == count);
        for (int i = 0; i < count; i++) {
            assert_true(identity_equal(&back.paths[i].to, &m.paths[i].to));
            assert_int_equal(back.paths[i].mbit_x10, 1000 + i);
            assert_int_equal(back.paths[i].round_trip_us, 250);
            assert_int_equal(back.paths[i].loss_ppm, 1000000);
            assert_int_equal(back.paths[i].kind, PATH_WIRELESS);
            assert_int_equal(back.paths[i].how, MEASURED_TRAFFIC);
        }
        assert_false(measured_decode(&back, bytes, len + 1, &what));
        assert_false(measured_decode(&back, bytes, len - 1, &what));
    }
}

/* Each field, one by one, with what it may not be. */
TEST(measured_is_checked)
{
    static const struct {
        size_t at;
        uint8_t byte;
    } rows[] = {
        {4, 3}, {5, 0}, {5, 64}, {6, 1}, {8 + 51, 1}, {8 + 52, 6}, {8 + 53, 3}, {8 + 53, 0}, {8 + 54, 1},
    };
    static uint8_t bytes[MEASURED_MESSAGE_MAX];
    struct measured m = full(1), back;

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        size_t len = measured_encode(&m, bytes, sizeof bytes);
        bytes[rows[i].at] = rows[i].byte;
        what = NULL;
        assert_false(measured_decode(&back, bytes, len, &what));
        assert_non_null(what);
    }
    m.number = 0; /* then nothing has failed */
    assert_false(measured_decode(&back, bytes, measured_encode(&m, bytes, sizeof bytes), &what));
}

TEST(results)
{
    struct probe_result result = {.mbit_x10 = 9876, .bytes = 5000000000, .time_ns = 6000000000}, back;
    uint8_t bytes[RESULT_LEN + 1] = {0};

    probe_result_encode(&result, bytes);
    assert_int_equal(bytes[0], LOAD_RESULT);
    assert_true(probe_result_decode(&back, bytes, RESULT_LEN));
    assert_true(back.mbit_x10 == 9876 && back.bytes == result.bytes && back.time_ns == result.time_ns);
    assert_false(probe_result_decode(&back, bytes, RESULT_LEN - 1));
    assert_false(probe_result_decode(&back, bytes, RESULT_LEN + 1));
    bytes[1] = 1;
    assert_false(probe_result_decode(&back, bytes, RESULT_LEN));
}
