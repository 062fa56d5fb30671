/* SPDX-License-Identifier: Apache-2.0 */
/* hearth-toiler: a member of a home cluster that has no time, for tests. It forms a group, and then adds over
 * it without a pause while threads of its own keep all processors busy. What it hears of the others meanwhile
 * is one line of JSON.
 *
 *     hearth-toiler MIN PRESET SECONDS     members of the group; of health; how long to toil */
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <hearth.h>

#define COUNT        (1024 * 1024) /* elements of an all-reduce */
#define SPINNERS_MAX 64
#define PATIENCE_MS  20000
#define TIMEOUT_MS   60000

static atomic_bool over, toiling;
static atomic_int degraded, unhealthy, dead, left, lost;
static float data[COUNT];

static void fail(const char *what)
{
    fprintf(stderr, "toiler: %s: %s\n", what, hearth_error_text());
    exit(1);
}

static double now_s(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static void *spin(void *arg)
{
    (void)arg;
    while (!atomic_load(&over))
        continue;
    return NULL;
}

static void hear(void *arg, const struct hearth_event *event)
{
    (void)arg;
    if (!atomic_load(&toiling))
        return;
    if (event->kind == HEARTH_EVENT_HEALTH) {
        degraded += strcmp(event->health, "degraded") == 0;
        unhealthy += strcmp(event->health, "unhealthy") == 0;
        dead += strcmp(event->health, "dead") == 0;
    }
    left += event->kind == HEARTH_EVENT_LEFT;
    lost += event->kind == HEARTH_EVENT_QUORUM_LOST;
}

/* All go on until all have had enough. Gives the number of calls. */
static int toil(hearth_group *group, double seconds)
{
    struct hearth_opts opts;
    double end_s = now_s() + seconds;
    uint8_t more = 1;
    int calls = 0;

    hearth_opts_init(&opts);
    opts.timeout_ms = TIMEOUT_MS;
    for (; more; calls++) {
        if (hearth_all_reduce(group, data, data, COUNT, HEARTH_F32, HEARTH_OP_SUM, &opts))
            fail("all_reduce");
        more = now_s() < end_s;
        if (hearth_all_reduce(group, &more, &more, 1, HEARTH_U8, HEARTH_OP_MAX, &opts))
            fail("all_reduce");
    }
    return calls;
}

int main(int argc, char **argv)
{
    pthread_t threads[SPINNERS_MAX];
    long spinners = sysconf(_SC_NPROCESSORS_ONLN);
    struct hearth_config config;
    hearth_node *node = NULL;
    hearth_group *group = NULL;

    if (argc != 4)
        return 2;
    int min = (int)strtol(argv[1], NULL, 10);
    hearth_config_init(&config);
    config.discover = "mdns";
    config.health = argv[2];
    config.form_timeout_ms = PATIENCE_MS;
    if (hearth_config_env(&config) || hearth_node_open(&config, &node) ||
        hearth_node_on_event(node, hear, NULL) || hearth_node_wait_for_peers(node, min - 1, PATIENCE_MS) ||
        hearth_group_form(node, "toil", min, NULL, &group))
        fail("no group");
    spinners = spinners < SPINNERS_MAX ? spinners : SPINNERS_MAX;
    atomic_store(&toiling, true);
    for (long i = 0; i < spinners; i++)
        if (pthread_create(&threads[i], NULL, spin, NULL))
            fail("no thread");
    int calls = toil(group, strtod(argv[3], NULL));
    atomic_store(&toiling, false);
    atomic_store(&over, true);
    for (long i = 0; i < spinners; i++)
        pthread_join(threads[i], NULL);
    printf("{\"size\": %d, \"calls\": %d, \"degraded\": %d, \"unhealthy\": %d, \"dead\": %d, \"left\": %d, "
           "\"quorum_lost\": %d}\n",
           hearth_group_size(group), calls, degraded, unhealthy, dead, left, lost);
    (void)hearth_barrier(group, NULL); /* a group ends with the first who leaves: some may not be done yet */
    hearth_node_close(node);
    return 0;
}
