/* SPDX-License-Identifier: Apache-2.0 */
/* hearth-worker: a member of a home cluster that works as long as it can, for tests. It waits until so many
 * are there, forms a group, adds over it step by step, and forms it again when somebody is lost or wants to
 * come in. It tells each group that has made a step, how its members are joined, and what it waits for.
 *
 *     hearth-worker THERE MIN     members to wait for, members of the group */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <hearth.h>

#define JOB         "work"
#define FORM_MS     2000
#define PATIENCE_MS 60000
#define STEP_US     20000

static char waits[256];

static void fail(const char *what)
{
    fprintf(stderr, "worker: %s: %s\n", what, hearth_error_text());
    exit(1);
}

/* Says once what it waits for, or whom it lost on the way. 0: it failed for another reason. */
static int still_waits(int status)
{
    if (status != HEARTH_TIMEOUT && status != HEARTH_VIEW_CHANGED && status != HEARTH_PEER_LOST &&
        status != HEARTH_ABORTED && status != HEARTH_GROUP_BROKEN)
        return 0;
    if (strcmp(waits, hearth_error_text()) != 0)
        printf("%s\n", hearth_error_text());
    snprintf(waits, sizeof waits, "%s", hearth_error_text());
    return 1;
}

static void tell(hearth_node *node, int size)
{
    char links[8192];

    if (hearth_node_links_text(node, links, sizeof links) >= (int64_t)sizeof links)
        fail("links");
    printf("%swith %d\n", links, size);
}

static int wanted(hearth_node *node)
{
    struct hearth_event event = {.size = sizeof event};
    int found = 0;

    while (hearth_node_next_event(node, &event, 0) == HEARTH_OK)
        found |= event.kind == HEARTH_EVENT_JOB_WANTED && strcmp(event.text, JOB) == 0;
    return found;
}

static void reform(hearth_node *node, hearth_group **group)
{
    int status;

    while ((status = hearth_group_reform(group, NULL)) != HEARTH_OK)
        if (!still_waits(status))
            fail("reform");
    (void)wanted(node); /* who asked before is in */
}

int main(int argc, char **argv)
{
    struct hearth_config config;
    hearth_node *node = NULL;
    hearth_group *group = NULL;
    int status, told = 0;

    if (argc != 3)
        return 2;
    setvbuf(stdout, NULL, _IOLBF, 0);
    hearth_config_init(&config);
    config.discover = "mdns";
    config.form_timeout_ms = FORM_MS;
    if (hearth_config_env(&config) || hearth_node_open(&config, &node) ||
        hearth_node_wait_for_peers(node, (int)strtol(argv[1], NULL, 10) - 1, PATIENCE_MS))
        fail("nobody is there");
    while ((status = hearth_group_form(node, JOB, (int)strtol(argv[2], NULL, 10), NULL, &group)) != HEARTH_OK)
        if (!still_waits(status))
            fail("form");
    for (;;) {
        int32_t one = 1;
        status = wanted(node) ? HEARTH_VIEW_CHANGED
                              : hearth_all_reduce(group, &one, &one, 1, HEARTH_I32, HEARTH_OP_SUM, NULL);
        if (status == HEARTH_VIEW_CHANGED) {
            reform(node, &group);
            told = 0;
        } else if (status != HEARTH_OK || one != hearth_group_size(group)) {
            fail("all_reduce");
        } else if (!told) {
            tell(node, one);
            told = 1;
        }
        usleep(STEP_US);
    }
}
