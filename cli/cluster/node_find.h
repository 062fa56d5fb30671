/* SPDX-License-Identifier: Apache-2.0 */
/* A node by what people call it: its id, the short form of it, or its name. */
#pragma once

#include <jansson.h>

#include "cli/shared/args.h"
#include "security/trust_list.h"

struct named_node {
    struct node_id id;
    char name[64]; /* "": not known */
};

/* Looks among the entries of the list and the members that the status of a running node names (either may be
 * NULL): members have proven their ids. A whole id is good by itself. ARGS_GO, or the exit code after a
 * message: nobody is called so, or several are, who are listed then. */
int node_find(const struct usage *usage, const char *text, const struct trust_list *list,
              const json_t *status, struct named_node *found);
