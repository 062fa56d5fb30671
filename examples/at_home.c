/* SPDX-License-Identifier: Apache-2.0 */
/* Machines that find each other sum vectors. Once: `hearth init` on one machine, `hearth join` on the
 * others. Run: build/examples/at_home on two or more of them at about the same time. */
#include <stdio.h>

#include <hearth.h>

int main(void)
{
    struct hearth_config config;
    hearth_node *node = NULL;
    hearth_group *group = NULL;
    hearth_config_init(&config);
    int status = hearth_config_env(&config);
    config.discover = "mdns";
    if (!status)
        status = hearth_node_open(&config, &node);
    if (!status)
        status = hearth_node_wait_for_peers(node, 1, 30000); /* at least one other, within half a minute */
    if (!status)
        status = hearth_group_form(node, "home", 2, NULL, &group); /* all members that run this now */
    float x[2] = {1, group ? (float)hearth_group_rank(group) : 0};
    if (!status)
        status = hearth_all_reduce(group, x, x, 2, HEARTH_F32, HEARTH_OP_SUM, NULL);
    if (status)
        fprintf(stderr, "%s\n", hearth_error_text()); /* names the members, and why others are not */
    else
        printf("rank %d of %d: %g machines, ranks add up to %g\n", hearth_group_rank(group),
               hearth_group_size(group), (double)x[0], (double)x[1]);
    hearth_node_close(node);
    return status != HEARTH_OK;
}
