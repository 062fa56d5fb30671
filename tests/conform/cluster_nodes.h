/* SPDX-License-Identifier: Apache-2.0 */
/* Nodes of a home cluster on this machine: they find each other by one seed, without mDNS. */
#pragma once

#include <hearth.h>

#define CLUSTER_NODES_SECRET   "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"
#define CLUSTER_NODES_PATIENCE 60000 /* ms: far more than anything here takes */

/* Fails the test with the name of the status and the text of the error. */
void check(int status, int expected, const char *what);

struct cluster_nodes_setup {
    const char *secret, *transport, *health; /* NULL: CLUSTER_NODES_SECRET, and what the config has */
};
/* `seed_port`: of one that is up; 0: it is the first. */
void node_up(hearth_node **node, const struct cluster_nodes_setup *setup, int seed_port);
/* All of them, each a member for each. */
void nodes_up(hearth_node *nodes[], int count, const struct cluster_nodes_setup *setup);
void nodes_down(hearth_node *nodes[], int count);

char *json_of(hearth_node *node); /* hearth_node_status_json; for free() */
/* The number behind the first place of `key` in it; 0: it is not there. */
int number_in_status(hearth_node *node, const char *key);
int port_of(hearth_node *node);
