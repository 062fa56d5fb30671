/* SPDX-License-Identifier: Apache-2.0 */
/* A cluster whose memory runs out: it does not open and leaves nothing behind, or it goes on when there is
 * some again. */
#include "cluster/cluster.h"
#include "os/clock.h"
#include "support/suite.h"
#include "support/watchdog.h"

#define PAUSE_NS (300 * NS_PER_MS)

struct place {
    struct heap heap, keys; /* of the cluster; of what is there before it */
    struct credentials *credentials;
    struct cluster *cluster;
};

static void place_init(struct place *p, uint64_t instance)
{
    const uint8_t bytes[SECRET_LEN] = {1, 2, 3};
    struct credentials_setup setup = {.heap = &p->keys, .instance = instance};
    struct error error;

    heap_init(&p->heap, 0);
    heap_init(&p->keys, 0);
    p->cluster = NULL;
    assert_int_equal(node_key_fresh(&setup.key, &error), HEARTH_OK);
    assert_int_equal(secret_from_bytes(bytes, "test", &setup.secret, &error), HEARTH_OK);
    assert_int_equal(credentials_open(&setup, &p->credentials, &error), HEARTH_OK);
}

static int place_open(struct place *p, const char *seeds, struct error *error)
{
    struct cluster_setup setup = {
        .heap = &p->heap,
        .credentials = p->credentials,
        .helper = "",
        .seeds = seeds,
        .bind = "127.0.0.1",
        .control = "unix:@hearth-test-memory",
        .health = health_preset_find("default"),
        .cluster = "home",
        .connect_timeout_ns = 5 * NS_PER_S,
        .deadline_ns = clock_real() + 10 * NS_PER_S,
    };
    return cluster_open(&setup, &p->cluster, error);
}

static void place_fini(struct place *p)
{
    cluster_close(p->cluster);
    credentials_close(p->credentials);
    assert_int_equal(p->heap.blocks, 0);
    assert_int_equal(p->keys.blocks, 0);
}

TEST(test_opening_without_memory)
{
    struct place place;
    struct error error;
    int64_t count = 0;
    watchdog(60, "opening without memory");
    place_init(&place, 1);
    for (; !place.cluster; count++) {
        place.heap.fail_after = count;
        int status = place_open(&place, "127.0.0.1:1", &error);
        place.heap.fail_after = -1;
        if (status != HEARTH_OK) {
            assert_int_equal(status, HEARTH_NO_MEMORY);
            assert_int_equal(place.heap.blocks, 0);
        }
    }
    assert_true(count > 8);
    place_fini(&place);
    watchdog(0, NULL);
}

static double metric(struct place *place, const char *name)
{
    char text[16384];

    assert_in_range(cluster_metrics(place->cluster, text, sizeof text), 1, sizeof text - 1);
    const char *at = strstr(text, name); /* in its type line; then the number */
    assert_non_null(at);
    at = strstr(at + 1, name);
    assert_non_null(at);
    return strtod(at + strlen(name), NULL);
}

static const struct cluster_patience *for_so_long(uint64_t ns)
{
    static struct cluster_patience patience;

    patience.deadline_ns = clock_real() + ns;
    return &patience;
}

/* What cannot be taken is said again; nobody has done anything wrong. */
TEST(test_members_without_memory)
{
    struct place places[2];
    struct error error;
    struct job_request request = {.job = "work", .min = 3};
    static struct group_spec spec;
    char json[16384], seeds[64];
    watchdog(60, "members without memory");
    for (int i = 0; i < 2; i++)
        place_init(&places[i], (uint64_t)i + 1);
    assert_int_equal(place_open(&places[0], NULL, &error), HEARTH_OK);
    assert_in_range(cluster_json(places[0].cluster, json, sizeof json), 1, sizeof json - 1);
    snprintf(seeds, sizeof seeds, "127.0.0.1:%ld", strtol(strstr(json, "\"port\": ") + 8, NULL, 10));
    assert_int_equal(place_open(&places[1], seeds, &error), HEARTH_OK);
    for (int i = 0; i < 2; i++)
        assert_int_equal(cluster_wait(places[i].cluster, 1, for_so_long(20 * NS_PER_S), &error), HEARTH_OK);
    for (int i = 0; i < 2; i++) {
        /* The other one tells the leader, which may be this one, what it requests. */
        places[i].heap.fail_after = 0;
        assert_int_equal(
            cluster_form(places[1 - i].cluster, &request, 0, for_so_long(PAUSE_NS), &spec, &error),
            HEARTH_TIMEOUT);
        places[i].heap.fail_after = -1;
    }
    for (int i = 0; i < 2; i++)
        assert_int_equal(metric(&places[i], "disconnections_total"), 0);
    for (int i = 0; i < 2; i++)
        place_fini(&places[i]);
    watchdog(0, NULL);
}
