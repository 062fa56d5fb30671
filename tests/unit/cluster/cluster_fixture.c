/* SPDX-License-Identifier: Apache-2.0 */
/* Drives nodes. Real sockets, real time, one thread. */
#include <unistd.h>

#include "cluster_fixture.h"
#include "connect/secure_stream.h"
#include "os/clock.h"
#include "support/suite.h"

#define DEADLINE_NS (20 * NS_PER_S)

static struct trust_list *list_against(struct heap *heap, const struct node_id *revoked)
{
    char folder[] = "/tmp/hearth-cluster-XXXXXX", path[64];
    struct trust_entry entry = {.id = *revoked, .revoked = true};
    struct trust_list *list = NULL;
    struct error error;

    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/trust", folder);
    assert_int_equal(trust_list_open(heap, path, &list, &error), HEARTH_OK);
    assert_int_equal(trust_list_set(list, revoked, &entry, &error), HEARTH_OK);
    assert_int_equal(unlink(path), 0);
    snprintf(path, sizeof path, "%s/trust.lock", folder); /* where changes wait for each other */
    (void)unlink(path);
    assert_int_equal(rmdir(folder), 0);
    return list;
}

struct credentials *fixture_credentials(struct cluster_fixture *v, const struct person_setup *person)
{
    struct credentials_setup setup = {.heap = &v->heap, .instance = person->instance};
    struct credentials *credentials = NULL;
    uint8_t bytes[SECRET_LEN];
    struct error error;

    memset(bytes, person->secret, sizeof bytes);
    if (person->revoked)
        setup.trust = list_against(&v->heap, person->revoked);
    int status =
        person->key ? node_key_load(person->key, &setup.key, &error) : node_key_fresh(&setup.key, &error);
    assert_int_equal(status, HEARTH_OK);
    assert_int_equal(secret_from_bytes(bytes, "test", &setup.secret, &error), HEARTH_OK);
    if (credentials_open(&setup, &credentials, &error) != HEARTH_OK)
        fail_msg("%s", error.text);
    return credentials;
}

void fixture_node_start(struct cluster_fixture *v, int number, struct credentials *credentials)
{
    struct fixture_node *one = &v->all[number];
    struct peer_set_setup setup = {
        .heap = &v->heap,
        .connect_timeout_ns = 5 * NS_PER_S,
        .seed = prng_u64(&v->prng),
        .now_ns = clock_real(),
    };
    struct error error;

    struct person_setup person = {.secret = FIXTURE_SECRET, .instance = prng_u64(&v->prng) | 1};
    one->credentials = credentials ? credentials : fixture_credentials(v, &person);
    setup.credentials = one->credentials;
    assert_int_equal(sock_addr_parse(v->listen, 0, &setup.listen), HEARTH_OK);
    snprintf(setup.self.name, sizeof setup.self.name, "node-%d", number);
    snprintf(setup.self.platform, sizeof setup.self.platform, "test");
    setup.self.cores = 1;
    setup.self.addr_count = sock_addr_to_net(&setup.listen, &setup.self.addrs[0]);
    if (peer_set_open(&setup, &one->peer_set, &error) != HEARTH_OK)
        fail_msg("%s", error.text);
}

void fixture_node_stop(struct cluster_fixture *v, int number)
{
    struct fixture_node *one = &v->all[number];

    secure_stream_close(one->stream);
    peer_set_close(one->peer_set);
    credentials_close(one->credentials);
    *one = (struct fixture_node){.peer_set = NULL};
    for (int i = 0; i < v->size; i++)
        v->all[i].joined[number] = 0;
}

void fixture_open(struct cluster_fixture *v, int size, uint64_t seed)
{
    memset(v, 0, sizeof *v);
    heap_init(&v->heap, 0);
    prng_init(&v->prng, seed);
    v->listen = "127.0.0.1:0";
    v->size = size;
    for (int i = 0; i < size; i++)
        fixture_node_start(v, i, NULL);
}

void fixture_close(struct cluster_fixture *v)
{
    for (int i = 0; i < v->size; i++)
        fixture_node_stop(v, i);
    assert_int_equal(v->heap.blocks, 0);
}

const struct identity *fixture_node_id(const struct cluster_fixture *v, int number)
{
    return credentials_self(v->all[number].credentials);
}

struct sock_addr fixture_node_addr(const struct cluster_fixture *v, int number)
{
    return peer_set_addr(v->all[number].peer_set);
}

void fixture_node_meet(struct cluster_fixture *v, int who, int other)
{
    struct sock_addr addr = fixture_node_addr(v, other);

    peer_set_known_addr(v->all[who].peer_set, &addr, fixture_node_id(v, other), false, clock_real());
}

/* ---- news ---- */

static int number_of(const struct cluster_fixture *v, const struct identity *id)
{
    for (int i = 0; i < v->size; i++)
        if (v->all[i].peer_set && identity_equal(fixture_node_id(v, i), id))
            return i;
    return -1;
}

void message_fill(uint8_t *payload, size_t len, uint64_t mark)
{
    struct prng prng;

    prng_init(&prng, mark);
    for (size_t i = 0; i < len; i += 8) {
        uint64_t bits = prng_u64(&prng);
        memcpy(payload + i, &bits, len - i < 8 ? len - i : 8);
    }
    if (len >= 8)
        memcpy(payload, &mark, 8);
}

static bool message_good(const uint8_t *payload, size_t len)
{
    static uint8_t expected[65536];
    uint64_t mark;

    if (len < 8)
        return true;
    memcpy(&mark, payload, 8);
    message_fill(expected, len, mark);
    return memcmp(payload, expected, len) == 0;
}

static void hear(struct cluster_fixture *v, struct fixture_node *one, const struct peer_news *news)
{
    int number = number_of(v, &news->info.id);

    switch (news->kind) {
    case PEER_LINKED:
        one->linked++;
        if (number >= 0)
            one->joined[number]++;
        snprintf(one->info, sizeof one->info, "%s", news->info.name);
        break;
    case PEER_AGAIN:
        one->again++;
        snprintf(one->info, sizeof one->info, "%s", news->info.name);
        break;
    case PEER_LOST:
        one->lost++;
        if (number >= 0)
            one->joined[number]--;
        snprintf(one->text, sizeof one->text, "%s", news->text);
        break;
    case PEER_MESSAGE:
        one->messages++;
        one->bytes += news->len;
        one->damaged += !message_good(news->payload, news->len);
        one->kind = news->message;
        one->len = news->len;
        break;
    case PEER_PROBE:
        one->probes += !!news->stream;
        one->probes_failed += !news->stream;
        secure_stream_close(one->stream);
        one->stream = news->stream;
        one->secure_stream_dialled = news->dialled;
        snprintf(one->text, sizeof one->text, "%s", news->text);
        break;
    }
}

/* ---- time ---- */

static void wait_all(const struct cluster_fixture *v)
{
    static struct sock_wait items[FIXTURE_NODES_MAX * PEER_SET_WAITS_MAX];
    uint64_t deadline_ns = clock_real() + (v->relay ? 1 : 20) * NS_PER_MS;
    size_t count = 0;

    for (int i = 0; i < v->size; i++)
        if (v->all[i].peer_set)
            count += peer_set_waits(v->all[i].peer_set, items + count, PEER_SET_WAITS_MAX, &deadline_ns);
    (void)sock_wait(items, count, deadline_ns);
}

void fixture_node_move(struct cluster_fixture *v, int number)
{
    struct fixture_node *one = &v->all[number];
    struct peer_news news;

    if (!one->peer_set)
        return;
    peer_set_pump(one->peer_set, clock_real());
    while (peer_news(one->peer_set, &news))
        hear(v, one, &news);
}

void fixture_step(struct cluster_fixture *v)
{
    wait_all(v);
    for (int i = 0; i < v->size; i++) /* sometimes one is slow, sometimes another */
        fixture_node_move(v, (int)prng_below(&v->prng, (uint64_t)v->size));
    if (v->relay)
        relay_step(v->relay, &v->prng);
}

void fixture_until(struct cluster_fixture *v, fixture_fn *done, void *arg)
{
    uint64_t deadline_ns = clock_real() + DEADLINE_NS;

    while (!done(v, arg)) {
        assert_true(clock_real() < deadline_ns);
        fixture_step(v);
    }
}

void fixture_for(struct cluster_fixture *v, uint64_t time_ns)
{
    uint64_t deadline_ns = clock_real() + time_ns;

    while (clock_real() < deadline_ns)
        fixture_step(v);
}

bool joined(const struct cluster_fixture *v, int a, int b)
{
    return v->all[a].joined[b] == 1 && v->all[b].joined[a] == 1;
}

bool fixture_whole(struct cluster_fixture *v, void *none)
{
    for (int a = 0; a < v->size; a++)
        for (int b = a + 1; b < v->size; b++)
            if (v->all[a].peer_set && v->all[b].peer_set && !joined(v, a, b))
                return false;
    return true;
}
