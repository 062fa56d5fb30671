/* SPDX-License-Identifier: Apache-2.0 */
/* Opens nodes that find each other on this machine. */
#include "cluster_nodes.h"
#include "support/suite.h"

#define STATUS_MAX 65536

void check(int status, int expected, const char *what)
{
    if (status != expected)
        fail_msg("%s: %s, not %s: %s", what, hearth_status_name(status), hearth_status_name(expected),
                 hearth_error_text());
}

char *json_of(hearth_node *node)
{
    char *text = malloc(STATUS_MAX);
    assert_non_null(text);
    assert_in_range(hearth_node_status_json(node, text, STATUS_MAX), 2, STATUS_MAX - 1);
    return text;
}

int number_in_status(hearth_node *node, const char *key)
{
    char *text = json_of(node);
    const char *at = strstr(text, key);
    int number = at ? (int)strtol(at + strlen(key), NULL, 10) : 0;
    free(text);
    return number;
}

int port_of(hearth_node *node)
{
    int port = number_in_status(node, "\"port\": ");
    assert_int_not_equal(port, 0);
    return port;
}

void node_up(hearth_node **node, const struct cluster_nodes_setup *setup, int seed_port)
{
    char seeds[64];
    struct hearth_config config;
    hearth_config_init(&config);
    snprintf(seeds, sizeof seeds, "127.0.0.1:%d", seed_port);
    config.discover = "mdns";
    config.mdns = "";
    config.seeds = seed_port > 0 ? seeds : NULL;
    config.secret = setup->secret ? setup->secret : CLUSTER_NODES_SECRET;
    config.key_file = "fresh";
    config.bind = "127.0.0.1";
    config.port = 0;
    if (setup->transport)
        config.transport = setup->transport;
    if (setup->health)
        config.health = setup->health;
    config.form_timeout_ms = CLUSTER_NODES_PATIENCE;
    check(hearth_node_open(&config, node), HEARTH_OK, "open");
}

void nodes_up(hearth_node *nodes[], int count, const struct cluster_nodes_setup *setup)
{
    node_up(&nodes[0], setup, 0);
    int port = port_of(nodes[0]);
    for (int i = 1; i < count; i++)
        node_up(&nodes[i], setup, port);
    for (int i = 0; i < count; i++)
        check(hearth_node_wait_for_peers(nodes[i], count - 1, CLUSTER_NODES_PATIENCE), HEARTH_OK,
              "wait_for_peers");
}

void nodes_down(hearth_node *nodes[], int count)
{
    for (int i = 0; i < count; i++)
        hearth_node_close(nodes[i]);
}
