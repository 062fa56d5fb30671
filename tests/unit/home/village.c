/* SPDX-License-Identifier: Apache-2.0 */
/* Drives nodes. Real sockets, real time, one thread. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "bootstrap/tunnel.h"
#include "os/clock.h"
#include "village.h"

#define DEADLINE_NS (20 * NS_PER_S)

static struct trust_list *list_against(struct heap *heap, const struct node_id *revoked)
{
    char folder[] = "/tmp/hearth-village-XXXXXX", path[64];
    struct trust_entry entry = {.id = *revoked, .revoked = true};
    struct trust_list *list = NULL;
    struct error error;

    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof(path), "%s/trust", folder);
    assert_int_equal(trust_list_open(heap, path, &list, &error), HEARTH_OK);
    assert_int_equal(trust_list_set(list, revoked, &entry, &error), HEARTH_OK);
    assert_int_equal(unlink(path), 0);
    snprintf(path, sizeof(path), "%s/trust.lock", folder); /* where changes wait for each other */
    (void)unlink(path);
    assert_int_equal(rmdir(folder), 0);
    return list;
}

struct credentials *villager_person(struct village *v, const struct person_setup *person)
{
    struct credentials_setup setup = {.heap = &v->heap, .instance = person->instance};
    struct credentials *credentials = NULL;
    uint8_t bytes[SECRET_LEN];
    struct error error;

    memset(bytes, person->secret, sizeof(bytes));
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

void villager_start(struct village *v, int number, struct credentials *credentials)
{
    struct villager *one = &v->all[number];
    struct fellows_setup setup = {
        .heap = &v->heap,
        .connect_timeout_ns = 5 * NS_PER_S,
        .seed = prng_u64(&v->prng),
        .now_ns = clock_real(),
    };
    struct error error;

    struct person_setup person = {.secret = VILLAGE_SECRET, .instance = prng_u64(&v->prng) | 1};
    one->credentials = credentials ? credentials : villager_person(v, &person);
    setup.credentials = one->credentials;
    assert_int_equal(sock_addr_parse(v->listen, 0, &setup.listen), HEARTH_OK);
    snprintf(setup.self.name, sizeof(setup.self.name), "villager-%d", number);
    snprintf(setup.self.platform, sizeof(setup.self.platform), "test");
    setup.self.cores = 1;
    setup.self.addr_count = 1;
    setup.self.addr_lens[0] = (uint8_t)sock_addr_encode(&setup.listen, setup.self.addrs[0], FELLOW_ADDR_MAX);
    if (fellows_open(&setup, &one->fellows, &error) != HEARTH_OK)
        fail_msg("%s", error.text);
}

void villager_stop(struct village *v, int number)
{
    struct villager *one = &v->all[number];

    tunnel_close(one->tunnel);
    fellows_close(one->fellows);
    credentials_close(one->credentials);
    *one = (struct villager){.fellows = NULL};
    for (int i = 0; i < v->size; i++)
        v->all[i].joined[number] = 0;
}

void village_open(struct village *v, int size, uint64_t seed)
{
    memset(v, 0, sizeof(*v));
    heap_init(&v->heap, 0);
    prng_init(&v->prng, seed);
    v->listen = "127.0.0.1:0";
    v->size = size;
    for (int i = 0; i < size; i++)
        villager_start(v, i, NULL);
}

void village_close(struct village *v)
{
    for (int i = 0; i < v->size; i++)
        villager_stop(v, i);
    assert_int_equal(v->heap.blocks, 0);
}

const struct identity *villager_id(const struct village *v, int number)
{
    return credentials_self(v->all[number].credentials);
}

struct sock_addr villager_addr(const struct village *v, int number)
{
    return fellows_addr(v->all[number].fellows);
}

void villager_meet(struct village *v, int who, int other)
{
    struct sock_addr addr = villager_addr(v, other);

    fellows_candidate(v->all[who].fellows, &addr, villager_id(v, other), false, clock_real());
}

/* ---- news ---- */

static int number_of(const struct village *v, const struct identity *id)
{
    for (int i = 0; i < v->size; i++)
        if (v->all[i].fellows && identity_equal(villager_id(v, i), id))
            return i;
    return -1;
}

void letter_fill(uint8_t *payload, size_t len, uint64_t mark)
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

static bool letter_good(const uint8_t *payload, size_t len)
{
    static uint8_t expected[65536];
    uint64_t mark;

    if (len < 8)
        return true;
    memcpy(&mark, payload, 8);
    letter_fill(expected, len, mark);
    return memcmp(payload, expected, len) == 0;
}

static void hear(struct village *v, struct villager *one, const struct fellows_news *news)
{
    int number = number_of(v, &news->fellow.id);

    switch (news->kind) {
    case FELLOWS_LINKED:
        one->linked++;
        if (number >= 0)
            one->joined[number]++;
        snprintf(one->fellow, sizeof(one->fellow), "%s", news->fellow.name);
        break;
    case FELLOWS_AGAIN:
        one->again++;
        snprintf(one->fellow, sizeof(one->fellow), "%s", news->fellow.name);
        break;
    case FELLOWS_LOST:
        one->lost++;
        if (number >= 0)
            one->joined[number]--;
        snprintf(one->text, sizeof(one->text), "%s", news->text);
        break;
    case FELLOWS_LETTER:
        one->letters++;
        one->bytes += news->len;
        one->damaged += !letter_good(news->payload, news->len);
        one->kind = news->letter;
        one->len = news->len;
        break;
    case FELLOWS_PROBE:
        one->probes += news->tunnel != NULL;
        one->probes_failed += news->tunnel == NULL;
        tunnel_close(one->tunnel);
        one->tunnel = news->tunnel;
        one->tunnel_dialled = news->dialled;
        snprintf(one->text, sizeof(one->text), "%s", news->text);
        break;
    }
}

/* ---- time ---- */

static void wait_all(const struct village *v)
{
    static struct sock_wait items[VILLAGERS_MAX * FELLOWS_WAITS_MAX];
    uint64_t deadline_ns = clock_real() + (v->relay ? 1 : 20) * NS_PER_MS;
    size_t count = 0;

    for (int i = 0; i < v->size; i++)
        if (v->all[i].fellows)
            count += fellows_waits(v->all[i].fellows, items + count, FELLOWS_WAITS_MAX, &deadline_ns);
    (void)sock_wait(items, count, deadline_ns);
}

void villager_move(struct village *v, int number)
{
    struct villager *one = &v->all[number];
    struct fellows_news news;

    if (!one->fellows)
        return;
    fellows_pump(one->fellows, clock_real());
    while (fellows_news(one->fellows, &news))
        hear(v, one, &news);
}

void village_step(struct village *v)
{
    wait_all(v);
    for (int i = 0; i < v->size; i++) /* sometimes one is slow, sometimes another */
        villager_move(v, (int)prng_below(&v->prng, (uint64_t)v->size));
    if (v->relay)
        relay_step(v->relay, &v->prng);
}

void village_until(struct village *v, village_fn *done, void *arg)
{
    uint64_t deadline_ns = clock_real() + DEADLINE_NS;

    while (!done(v, arg)) {
        assert_true(clock_real() < deadline_ns);
        village_step(v);
    }
}

void village_for(struct village *v, uint64_t time_ns)
{
    uint64_t deadline_ns = clock_real() + time_ns;

    while (clock_real() < deadline_ns)
        village_step(v);
}

bool joined(const struct village *v, int a, int b)
{
    return v->all[a].joined[b] == 1 && v->all[b].joined[a] == 1;
}

bool village_whole(struct village *v, void *none)
{
    (void)none;
    for (int a = 0; a < v->size; a++)
        for (int b = a + 1; b < v->size; b++)
            if (v->all[a].fellows && v->all[b].fellows && !joined(v, a, b))
                return false;
    return true;
}
