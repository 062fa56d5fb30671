/* SPDX-License-Identifier: Apache-2.0 */
/* Asks the node that runs here, under the same user and config folder, how things are; and finds a node by
 * what people call it. */
#pragma once

#include <jansson.h>

#include "cli/shared/args.h"
#include "security/trust_list.h"

#define EXIT_CODES_NODE "0 shown, 1 the node did not answer as it should, 2 wrong usage, 3 no node runs here."
enum { EXIT_NO_NODE = 3 }; /* beside those of args.h: there is nobody to ask */

/* One question, "status": the answer as an object, the caller's then. ARGS_GO; EXIT_NO_NODE without a word:
 * nobody answers; EXIT_FAILED_CHECK with a message: somebody does, and wrongly. */
int ask_node(const struct usage *usage, json_t **answer);
/* The same, and if nobody answers it says so, and what to do. */
int ask_running_node(const struct usage *usage, json_t **answer);

struct named_node {
    struct node_id id;
    char name[64]; /* "": not known */
};

/* By its id, the short form of it or its name, among the entries of the list and the members that the status
 * of a running node names (either may be NULL): members have proven their ids. A whole id is good by itself.
 * ARGS_GO, or the exit code after a message: none is called so, or several are, which are listed then. */
int node_find(const struct usage *usage, const char *text, const struct trust_list *list,
              const json_t *status, struct named_node *found);
